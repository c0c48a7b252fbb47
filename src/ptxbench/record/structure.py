"""Do the recordings agree on what is launched, before any address is looked at? If not: in which way?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from ptxbench.record.labels import cause_of, kernel_label
from ptxbench.record.process import Call
from ptxbench.record.recording import RawCopy, RawKernel, RawMemset, RawNode
from ptxbench.record.refusal import contract_error

Fields = dict[str, object]

_ADVICE = (
    "Write launch as a function of the sizes only: no call counters, cached choices, pointer bits, environment, clock "
    "or random numbers."
)


def check_structure(calls: Sequence[Call]) -> None:
    """Raises `Refusal` unless first call, second call and the call in a fresh process launch the same work.

    The reason names the difference and what it follows: the number of the call, or the process and its addresses.
    """
    shapes = [[_fields(node) for node in call.returned.nodes] for call in calls]
    first, second, fresh = shapes
    if first == second == fresh:
        return
    if first != second:
        _check_first_call_only(calls[0].returned.nodes, calls[1].returned.nodes)
    cause = cause_of(first, second, fresh)
    if first == second:
        _explain(second, fresh, ("one process", "another process"), cause)
    _explain(first, second, ("the first call", "the second call"), cause)


def _fields(node: RawNode) -> Fields:
    """Everything that must agree between recordings, by the name that messages use."""
    match node:
        case RawKernel():
            return {
                "what": f"a launch of {kernel_label(node.kernel)}",
                "kernel": node.kernel,
                "grid": node.grid,
                "block": node.block,
                "cluster": node.cluster,
                "dynamic shared memory": node.dynamic_shared,
                "cooperative": node.cooperative,
                "programmatic": node.programmatic,
                "order": node.after,
            }
        case RawMemset():
            return {
                "what": "a fill",
                "value": node.value,
                "width": node.width,
                "count": node.count,
                "order": node.after,
            }
        case RawCopy():
            kind = "from the device" if node.payload is None else "from the host"
            return {"what": f"a copy {kind}", "bytes": node.bytes, "order": node.after}


def _check_first_call_only(first: Sequence[RawNode], second: Sequence[RawNode]) -> None:
    """The common mistake of its own: work that is done once and expected to last."""
    extra = _extra(first, second)
    if extra:
        raise contract_error(
            f"The first call does {_fields(extra[0])['what']} that the second call does not do, and nothing lasts from "
            "call to call in a plan.",
            "Write every launch, copy and fill in every call; only allocations, attributes and entry points may be set "
            "up once.",
        )


def _extra(first: Sequence[RawNode], second: Sequence[RawNode]) -> list[RawNode]:
    """Nodes of ``first`` that are left over if all of ``second`` are found in it in order; empty if they are not."""
    rest = [_shape_without_order(node) for node in second]
    extra: list[RawNode] = []
    for node in first:
        if rest and _shape_without_order(node) == rest[0]:
            rest.pop(0)
        else:
            extra.append(node)
    return [] if rest else extra


def _shape_without_order(node: RawNode) -> Fields:
    return {name: value for name, value in _fields(node).items() if name != "order"}


def _explain(one: Sequence[Fields], other: Sequence[Fields], names: tuple[str, str], cause: str) -> NoReturn:
    """Names the first step and field that differ."""
    prefix = f"What launch does is no function of the sizes but depends {cause}"
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        if left == right:
            continue
        if left["what"] != right["what"]:
            raise contract_error(
                f"{prefix}: step {number} is {left['what']} in {names[0]} and {right['what']} in {names[1]}.", _ADVICE
            )
        field = next(name for name in left if left[name] != right[name])
        raise contract_error(
            f"{prefix}: step {number}, {left['what']}, has {field} {left[field]} in {names[0]} and {right[field]} in "
            f"{names[1]}.",
            _ADVICE,
        )
    raise contract_error(f"{prefix}: {names[0]} has {len(one)} steps, {names[1]} has {len(other)}.", _ADVICE)
