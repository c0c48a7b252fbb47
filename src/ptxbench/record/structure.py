"""Do the recordings agree on what is launched, before any address is looked at? If not: in which way?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

from ptxbench.record.process import Call
from ptxbench.record.recording import RawCopy, RawKernel, RawMemset, RawNode
from ptxbench.record.refusal import contract_error

_FIRST, _SECOND, _FRESH = 0, 1, 2

Fields = dict[str, object]


def check_structure(calls: Sequence[Call]) -> None:
    """Raises `Refusal` unless first call, second call and the call in a fresh process launch the same work.

    The reason names the difference and what it follows: the number of the call, or the process and its addresses.
    """
    shapes = [[_fields(node) for node in call.returned.nodes] for call in calls]
    if shapes[_FIRST] == shapes[_SECOND] == shapes[_FRESH]:
        return
    if shapes[_FIRST] == shapes[_SECOND]:
        _explain(
            shapes[_SECOND], shapes[_FRESH], ("one process", "another process"), "on the process or the pointer values",
            "Write launch so that it reads nothing but the sizes: no pointer bits, environment, clock or random numbers.",
        )
    _check_first_call_only(calls[_FIRST].returned.nodes, calls[_SECOND].returned.nodes)
    _explain(
        shapes[_FIRST], shapes[_SECOND], ("the first call", "the second call"),
        "on how often launch was called before" if shapes[_FIRST] == shapes[_FRESH] else "on something else",
        "Write launch without call counters, cached choices, pointer bits, clock or random numbers.",
    )


def _fields(node: RawNode) -> Fields:
    """Everything that must agree between recordings, by the name that messages use."""
    match node:
        case RawKernel():
            return {
                "what": f"a launch of {node.kernel}", "grid": node.grid, "block": node.block, "cluster": node.cluster,
                "dynamic shared memory": node.dynamic_shared, "cooperative": node.cooperative,
                "programmatic": node.programmatic, "size of the parameters": len(node.parameters) // 2, "order": node.after,
            }
        case RawMemset():
            return {
                "what": "a fill", "value": node.value, "width": node.width, "count": node.count, "order": node.after
            }
        case RawCopy():
            kind = "from the device" if node.payload is None else "from the host"
            return {"what": f"a copy {kind}", "bytes": node.bytes, "order": node.after}


def _check_first_call_only(first: Sequence[RawNode], second: Sequence[RawNode]) -> None:
    """The common mistake of its own: data that is written once and expected to stay."""
    if len(first) <= len(second) or any(isinstance(node, RawKernel) for node in _extra(first, second)):
        return
    extra = next(_extra(first, second), None)
    if extra is not None:
        raise contract_error(
            f"The first call does {_fields(extra)['what']} that the second call does not do, and a plan starts with nothing kept.",
            "Write every copy and fill in every call; only allocations, attributes and entry points may be set up once.",
        )


def _extra(first: Sequence[RawNode], second: Sequence[RawNode]) -> Iterator[RawNode]:
    """Nodes of ``first`` that are left over when those of ``second`` are matched to it in order."""
    rest = [_shape_without_order(node) for node in second]
    for node in first:
        if rest and _shape_without_order(node) == rest[0]:
            rest.pop(0)
        else:
            yield node


def _shape_without_order(node: RawNode) -> Fields:
    return {name: value for name, value in _fields(node).items() if name != "order"}


def _explain(
    one: Sequence[Fields], other: Sequence[Fields], names: tuple[str, str], cause: str, advice: str
) -> NoReturn:
    prefix = f"What launch does is no function of the sizes but depends {cause}"
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        for field in left.keys() | right.keys():
            if left.get(field) == right.get(field) or left["what"] != right["what"]:
                continue
            raise contract_error(
                f"{prefix}: in {names[0]} step {number}, {left['what']}, has {field} {left[field]}, in {names[1]} {right[field]}.",
                advice,
            )
        if left["what"] != right["what"]:
            raise contract_error(
                f"{prefix}: step {number} is {left['what']} in {names[0]} and {right['what']} in {names[1]}.", advice
            )
    raise contract_error(f"{prefix}: {names[0]} has {len(one)} steps, {names[1]} has {len(other)}.", advice)
