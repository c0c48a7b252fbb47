"""What makes a plan one that an executor can follow, whoever wrote it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ptxbench.core.map_rules import form_complaints
from ptxbench.core.plan import (
    Address,
    Block,
    Buffer,
    CopyNode,
    KernelNode,
    LaunchPlan,
    MemsetNode,
    TensorMap,
    TensorMapPatch,
)

LARGEST_BUFFERS = 1 << 38
"""Bytes of all buffers of a plan together: more than any device has."""

_POINTER_BYTES, _MAP_BYTES = 8, 128
_FARTHEST = 1 << 40  # bytes from its buffer that a pointer may lie
_U32, _U64 = 1 << 32, 1 << 64


def plan_problem(plan: LaunchPlan, variables: Collection[str] = ()) -> str:
    """The first thing in ``plan`` that no executor could do, as a clause (``node 2: ...``); empty if there is none.

    ``variables`` are those of the program that addresses may name beside the plan's own buffers. Whether the target can
    launch a kernel so, and whether it reads and writes what it may, is no matter of the plan.
    """
    return next(_problems(plan, frozenset(variables)), "")


def _problems(plan: LaunchPlan, variables: frozenset[str]) -> Iterator[str]:
    buffers: dict[str, Buffer] = {}
    for buffer in plan.buffers:
        if buffer.name in buffers:
            yield f"buffer {buffer.name} is there twice"
        if buffer.bytes < 0:
            yield f"buffer {buffer.name} has {buffer.bytes} bytes"
        buffers[buffer.name] = buffer
    total = sum(buffer.bytes for buffer in plan.buffers)
    if total > LARGEST_BUFFERS:
        yield f"its buffers have {total} bytes, and {LARGEST_BUFFERS} are the most"
    places = _Places(buffers, variables)
    for number, node in enumerate(plan.nodes):
        loose = [index for index in node.after if not 0 <= index < number]
        if loose:
            yield f"node {number}: it comes after node {loose[0]}, which is no earlier one"
        match node:
            case KernelNode():
                found = _kernel_problems(node, places)
            case MemsetNode():
                found = places.range(node.to, node.width * node.count)
            case CopyNode():
                found = _copy_problems(node, places)
        yield from (f"node {number}: {problem}" for problem in found)


class _Places:
    """The buffers that addresses are in. Of variables of the program, sizes are not known here."""

    def __init__(self, buffers: Mapping[str, Buffer], variables: frozenset[str]) -> None:
        self._buffers, self._variables = buffers, variables

    def name(self, address: Address) -> Iterator[str]:
        """A buffer that does not exist."""
        if address.buffer not in self._buffers and address.buffer not in self._variables:
            yield f"it names {address.buffer}, which is neither a buffer of the plan nor a variable"

    def pointer(self, address: Address) -> Iterator[str]:
        """An address that is no number of 64 bits wherever the buffer lies."""
        yield from self.name(address)
        if abs(address.offset) > _FARTHEST:
            yield f"a pointer lies {address.offset} bytes from the start of {address.buffer}"

    def range(self, address: Address, size: int) -> Iterator[str]:
        """Bytes that are outside of their buffer."""
        yield from self.name(address)
        buffer = self._buffers.get(address.buffer)
        end = address.offset + size
        if address.offset < 0 or size < 0 or (buffer is not None and end > buffer.bytes):
            most = "" if buffer is None else f", which has {buffer.bytes}"
            yield f"it reaches {size} bytes at {address.offset} of {address.buffer}{most}: outside the buffer"


def _kernel_problems(node: KernelNode, places: _Places) -> Iterator[str]:
    for what, extents in (("grid", node.grid), ("block", node.block), ("cluster", node.cluster)):
        if any(not 0 <= extent < _U32 for extent in extents):
            yield f"its {what} is {extents}"
    if not 0 <= node.dynamic_shared < _U32:
        yield f"its dynamic shared memory has {node.dynamic_shared} bytes"
    yield from _block_problems(node.parameters, places)


def _copy_problems(node: CopyNode, places: _Places) -> Iterator[str]:
    yield from places.range(node.to, node.bytes)
    if isinstance(node.source, Address):
        yield from places.range(node.source, node.bytes)
        return
    if len(node.source.data) < node.bytes:
        yield f"it copies {node.bytes} bytes of a payload that has {len(node.source.data)}"
    yield from _block_problems(node.source, places)


def _block_problems(block: Block, places: _Places) -> Iterator[str]:
    for patch in block.patches:
        size = _MAP_BYTES if isinstance(patch, TensorMapPatch) else _POINTER_BYTES
        if not 0 <= patch.at <= len(block.data) - size:
            yield f"{size} bytes at {patch.at} are outside its block of {len(block.data)} bytes"
        if not isinstance(patch, TensorMapPatch):
            yield from places.pointer(patch.to)
            continue
        on = f"its tensor map on {patch.map.base.buffer}"
        yield from places.pointer(patch.map.base)
        yield from (f"{on} is none: {found}" for found in form_complaints(patch.map))
        yield from (f"{on} has a {found}" for found in _number_problems(patch.map))


def _number_problems(tensor_map: TensorMap) -> Iterator[str]:
    """Numbers that no field of an encoded map can hold."""
    corners = (*tensor_map.lower_corner, *tensor_map.upper_corner)
    for what, values, least, end in (
        ("dimension", tensor_map.dims, 0, _U64),
        ("stride", tensor_map.strides, 0, _U64),
        ("box extent", tensor_map.box, 1, 1 << 16),
        ("element stride", tensor_map.element_strides, 1, 1 << 8),
        ("corner", corners, -(1 << 15), 1 << 15),
    ):
        yield from (f"{what} of {value}" for value in values if not least <= value < end)
