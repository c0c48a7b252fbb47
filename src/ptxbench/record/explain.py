"""Why a word or a tensor map that differs between the recordings is no address of one buffer."""

from __future__ import annotations

from collections.abc import Sequence

from ptxbench.record.addresses import Place
from ptxbench.record.labels import cause_of
from ptxbench.record.process import Call
from ptxbench.record.recording import RawMap
from ptxbench.record.refusal import Refusal, contract_error

_PURE = (
    "Write launch as a function of its arguments only: no counters, no values kept from earlier calls, no clock, random"
    " numbers or environment; initialise the padding of structs that are copied ({} does)."
)


def unexplained_word(
    calls: Sequence[Call], what: str, words: Sequence[int], places: Sequence[Place | None]
) -> Refusal:
    """``places`` are what the ``words`` of the recordings would mean as addresses."""
    stale = _stale(calls, places)
    if stale is not None:
        return contract_error(
            f"{what} holds the pointer {stale.region.name} of an earlier call.",
            "Write the pointer arguments of each call into that call's launches; keep no pointer in a static variable.",
        )
    if all(1 << 40 <= word < 1 << 47 for word in words):
        return contract_error(
            f"{what} holds a host address, which means nothing on the device.",
            "Write host data to the device with cudaMemcpyAsync, or pass it by value.",
        )
    if len(set(words)) == 1:
        return contract_error(
            f"{what} is {words[0]:#x}, which is the address of no buffer.",
            "Write addresses of the arguments, the workspace or an allocation.",
        )
    if any(place is None for place in places):
        values = ", ".join(f"{word:#x}" for word in words)
        return contract_error(
            f"{what} is no function of the sizes but depends {cause_of(*words)}; three recordings have {values}.", _PURE
        )
    return contract_error(
        f"{what} is an address of another buffer or offset from call to call.",
        "Write launch so that it chooses buffers and offsets by the sizes only.",
    )


def unexplained_map(calls: Sequence[Call], where: str, places: Sequence[Place | None]) -> Refusal:
    """``places`` are the base addresses of one tensor map in the recordings."""
    stale = _stale(calls, places)
    if stale is not None:
        return contract_error(
            f"The tensor map in {where} was encoded in an earlier call and still holds that call's pointer "
            f"{stale.region.name}.",
            "Write cuTensorMapEncodeTiled in every call, on the pointers of that call; it costs about a microsecond.",
        )
    return contract_error(f"The tensor map in {where} lies on another buffer or offset from call to call.", _PURE)


def unequal_maps(where: str, maps: Sequence[RawMap]) -> Refusal:
    """The maps differ in something other than their base address."""
    fields = [raw.model_dump() for raw in maps]
    name = next(name for name in fields[0] if len({str(row[name]) for row in fields}) > 1)
    values = [row[name] for row in fields]
    return contract_error(
        f"The {name} of the tensor map in {where} is no function of the sizes but depends {cause_of(*values)}.", _PURE
    )


def _stale(calls: Sequence[Call], places: Sequence[Place | None]) -> Place | None:
    """The first place that belongs to another call than the one that uses it."""
    for call, place in zip(calls, places, strict=True):
        if place is not None and call.addresses.is_stale(place):
            return place
    return None
