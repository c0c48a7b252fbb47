"""Tensor maps: from the driver API's numbers to readable records, held against the encoder's rules."""

from __future__ import annotations

from collections.abc import Iterator

from ptxbench.core import (
    DTYPES,
    INTERLEAVES,
    L2_PROMOTIONS,
    OOB_FILLS,
    SWIZZLES,
    Address,
    TensorMap,
    map_complaints,
    map_reach,
)
from ptxbench.record.addresses import Place
from ptxbench.record.recording import RawMap
from ptxbench.record.refusal import contract_error, launch_error


def readable(raw: RawMap, base: Address) -> TensorMap:
    """The plan's record of a map that `check_map` accepted."""
    return TensorMap(
        mode=raw.mode, dtype=DTYPES[raw.dtype], base=base, dims=raw.dims, strides=raw.strides, box=raw.box,
        element_strides=raw.element_strides, interleave=INTERLEAVES[raw.interleave], swizzle=SWIZZLES[raw.swizzle],
        l2_promotion=L2_PROMOTIONS[raw.l2_promotion], oob_fill=OOB_FILLS[raw.oob_fill], lower_corner=raw.lower_corner,
        upper_corner=raw.upper_corner,
    )


def check_map(raw: RawMap, place: Place | None, number: int) -> None:
    """Raises `Refusal` if the encoder would refuse the map, or if it reaches beyond its buffer.

    ``place`` is where its base lies (None: in no buffer), ``number`` counts the launcher's maps from 0, for messages.
    """
    where = place.region.name or "an allocation" if place else "no buffer"
    name = f"The tensor map {number} (on {where}, dimensions {list(raw.dims)}, box {list(raw.box)})"
    for complaint in _complaints(raw, place):
        raise launch_error(f"{name} is invalid: {complaint}.", "Write the arguments so that they meet this rule.")
    if place is None:
        raise contract_error(
            f"{name} does not begin in a tensor argument, the workspace or an allocation.",
            "Write the map on a pointer argument or on memory from cudaMalloc.",
        )
    _check_bounds(raw, place, name)


def _complaints(raw: RawMap, place: Place | None) -> Iterator[str]:
    yield from _enumerator_complaints(raw)
    address = None if place is None else place.region.base + place.offset
    yield from map_complaints(readable(raw, Address(buffer="")), address)


def _enumerator_complaints(raw: RawMap) -> Iterator[str]:
    rows = (
        ("data type", raw.dtype, DTYPES),
        ("interleave", raw.interleave, INTERLEAVES),
        ("swizzle", raw.swizzle, SWIZZLES),
        ("L2 promotion", raw.l2_promotion, L2_PROMOTIONS),
        ("fill", raw.oob_fill, OOB_FILLS),
    )
    for what, value, names in rows:
        if value >= len(names):
            yield f"{value} is no {what}"


def _check_bounds(raw: RawMap, place: Place, name: str) -> None:
    """Every element of the map must lie in its buffer."""
    if place.offset < 0:
        raise contract_error(
            f"{name} begins {-place.offset} bytes before its buffer.", "Write the map on the buffer's start."
        )
    reach, widest = map_reach(readable(raw, Address(buffer="")))
    end = place.offset + reach
    if end > place.region.bytes:
        raise contract_error(
            f"{name} reaches to byte {end} of a buffer of {place.region.bytes} bytes; dimension {widest} "
            f"({raw.dims[widest]} elements) goes furthest.",
            "Write dimensions and strides from the sizes, innermost first, with strides in bytes.",
        )
