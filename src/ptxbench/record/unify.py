"""Three recordings of one launcher become one plan's nodes.

What a plan holds is what stays the same. Between the recordings every address was moved, so a word that differs must be
an address (or a tensor map) in all of them, of the same buffer and offset; anything else that differs means that the
launcher is no function of the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ptxbench.core import (
    Address,
    Artifact,
    Block,
    Buffer,
    CopyNode,
    KernelNode,
    MemsetNode,
    Node,
    Patch,
    PointerPatch,
    TensorMapPatch,
)
from ptxbench.record.addresses import Place, Region
from ptxbench.record.explain import unequal_maps, unexplained_map, unexplained_word
from ptxbench.record.labels import kernel_label
from ptxbench.record.launches import effective_cluster
from ptxbench.record.parameters import parameter_at
from ptxbench.record.process import Call, map_magic
from ptxbench.record.recording import RawCopy, RawKernel, RawMap, RawMemset, RawNode
from ptxbench.record.refusal import Refusal, contract_error, launch_error
from ptxbench.record.tensor_maps import readable

CANONICAL = 1
"""Index of the recording whose order and bytes the plan takes: the second call of the first process."""

_MAP_BYTES = 128
_MAP_ALIGNMENT = 64

Where = Callable[[int, int], str]
"""Names the place of (byte offset, length), for messages."""


class Unifier:
    """Turns matching raw nodes into plan nodes and collects the buffers that they use, in order of first use."""

    def __init__(self, artifact: Artifact, calls: Sequence[Call], reads: Mapping[str, bytearray]) -> None:
        self._artifact = artifact
        self._calls = calls
        self._reads = reads
        self._allocations: list[dict[int, str]] = [{} for _ in calls]
        self.buffers: dict[str, Buffer] = {}

    def node(self, raws: Sequence[RawNode]) -> Node:
        """One node of the plan from the same node of every recording; raises `Refusal` where they disagree."""
        raw = raws[CANONICAL]
        if isinstance(raw, RawKernel):
            return self._kernel(raw, [r for r in raws if isinstance(r, RawKernel)])
        if isinstance(raw, RawMemset):
            to = self._address([r.to for r in raws if isinstance(r, RawMemset)], raws, "The destination of a fill")
            return MemsetNode(to=to, value=raw.value, width=raw.width, count=raw.count, after=raw.after)
        return self._copy(raw, [r for r in raws if isinstance(r, RawCopy)])

    def _kernel(self, raw: RawKernel, raws: Sequence[RawKernel]) -> KernelNode:
        facts = self._artifact.kernel(raw.kernel)
        reads, label = self._reads[raw.kernel], kernel_label(raw.kernel)
        blocks = [bytes(a & b for a, b in zip(bytes.fromhex(r.parameters), reads, strict=True)) for r in raws]
        parameters = self._block(blocks, raws, lambda at, size: f"{parameter_at(facts, at, size)} of {label}")
        _check_map_alignment(parameters, 0)
        return KernelNode(
            kernel=raw.kernel, grid=raw.grid, block=raw.block, cluster=effective_cluster(raw, facts),
            explicit_cluster=any(raw.cluster) or facts.required_cluster is not None,
            dynamic_shared=raw.dynamic_shared, parameters=parameters, cooperative=raw.cooperative,
            programmatic=raw.programmatic, after=raw.after,
        )

    def _copy(self, raw: RawCopy, raws: Sequence[RawCopy]) -> CopyNode:
        to = self._address([r.to for r in raws], raws, "The destination of a copy")
        if raw.payload is None:
            source = self._address([r.source or 0 for r in raws], raws, "The source of a copy")
        else:
            payloads = [bytes.fromhex(r.payload or "") for r in raws]
            source = self._block(payloads, raws, lambda at, size: f"bytes {at} to {at + size - 1} for {to.buffer}")
            if self.buffers[to.buffer].role != "symbol":
                _check_map_alignment(source, to.offset)
        return CopyNode(to=to, source=source, bytes=raw.bytes, after=raw.after)

    def _address(self, words: Sequence[int], raws: Sequence[RawNode], what: str) -> Address:
        places = [call.addresses.find(word) for call, word in zip(self._calls, words, strict=True)]
        return self._place(places, raws, lambda: unexplained_word(self._calls, what, words, places))

    def _place(
        self, places: Sequence[Place | None], raws: Sequence[RawNode], refusal: Callable[[], Refusal]
    ) -> Address:
        """The buffer and offset on which all places agree."""
        addresses: list[Address] = []
        for index, (call, place) in enumerate(zip(self._calls, places, strict=True)):
            if place is None or call.addresses.is_stale(place):
                raise refusal()
            if place.region.role == "allocation" and place.region.base in raws[index].freed:
                raise launch_error(
                    "Work is launched on an allocation that was freed before.",
                    "Write the cudaFree after the last launch.",
                )
            addresses.append(Address(buffer=self._name(index, place.region), offset=place.offset))
        if any(address != addresses[CANONICAL] for address in addresses):
            raise refusal()
        return addresses[CANONICAL]

    def _name(self, index: int, region: Region) -> str:
        """The buffer's name in the plan; allocations are numbered by first use, the same in every process."""
        name = region.name
        if region.role == "allocation":
            names = self._allocations[index]
            name = names.setdefault(region.base, f"allocation{len(names)}")
        if index == CANONICAL and region.role in ("allocation", "symbol"):
            self._add_buffer(Buffer(name=name, role=region.role, bytes=region.bytes))
        return name

    def _add_buffer(self, buffer: Buffer) -> None:
        known = self.buffers.setdefault(buffer.name, buffer)
        if known != buffer:
            raise contract_error(
                f"The variable {buffer.name} has the name of another buffer of the plan.", "Write another name for it."
            )

    def _block(self, blobs: Sequence[bytes], raws: Sequence[RawNode], where: Where) -> Block:
        """The common bytes, with patches for every address and tensor map."""
        size = len(blobs[CANONICAL])
        words = np.stack([np.frombuffer(blob.ljust(-(-size // 8) * 8, b"\0"), dtype="<u8") for blob in blobs])
        differing = np.flatnonzero((words != words[0]).any(axis=0))
        data = bytearray(blobs[CANONICAL])
        patches: list[Patch] = []
        covered = 0
        for word in map(int, differing):
            at = 8 * word
            if at < covered:
                continue
            values = [int(value) for value in words[:, word]]
            if values == [map_magic(call.process) for call in self._calls] and at + _MAP_BYTES <= size:
                patches.append(self._map(at, words[:, word : word + _MAP_BYTES // 8], raws, where))
                covered = at + _MAP_BYTES
            else:
                what = where(*_differing_bytes(at, values))
                patches.append(PointerPatch(at=at, to=self._address(values, raws, what[:1].upper() + what[1:])))
                covered = at + 8
            data[at:covered] = bytes(covered - at)
        return Block(data=bytes(data), patches=tuple(patches))

    def _map(self, at: int, words: np.ndarray, raws: Sequence[RawNode], where: Where) -> TensorMapPatch:
        maps: list[RawMap] = []
        for call, row in zip(self._calls, words, strict=True):
            number = int(row[1])
            if number >= len(call.returned.maps) or row[2:].any():
                raise contract_error(
                    f"The tensor map in {where(at, _MAP_BYTES)} was changed after it was encoded.",
                    "Write the map with cuTensorMapEncodeTiled and copy it whole.",
                )
            maps.append(call.returned.maps[number])
        shapes = [m.model_copy(update={"base": 0}) for m in maps]
        if any(shape != shapes[CANONICAL] for shape in shapes):
            raise unequal_maps(where(at, _MAP_BYTES), shapes)
        places = [call.addresses.find(m.base) for call, m in zip(self._calls, maps, strict=True)]
        base = self._place(places, raws, lambda: unexplained_map(self._calls, where(at, _MAP_BYTES), places))
        return TensorMapPatch(at=at, map=readable(maps[CANONICAL], base))


def _differing_bytes(at: int, values: Sequence[int]) -> tuple[int, int]:
    """(offset, length): the half of the word that differs, or the whole word."""
    low = len({value & 0xFFFFFFFF for value in values}) > 1
    high = len({value >> 32 for value in values}) > 1
    return (at, 8) if low and high else (at, 4) if low else (at + 4, 4)


def _check_map_alignment(block: Block, offset: int) -> None:
    for patch in block.patches:
        if isinstance(patch, TensorMapPatch) and (offset + patch.at) % _MAP_ALIGNMENT:
            raise launch_error(
                f"A tensor map lies at byte {offset + patch.at}, and the device reads it at multiples of "
                f"{_MAP_ALIGNMENT} bytes.",
                "Write it as a CUtensorMap, which has that alignment, and copy arrays of them to aligned offsets.",
            )
