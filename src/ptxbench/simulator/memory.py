"""Device memory of one run: buffers at simulated addresses, poisoned allocations, blocks with their holes filled."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ptxbench.core import Address, Block, Buffer, DeviceError, LaunchPlan, PointerPatch
from ptxbench.simulator.library import MachineRun
from ptxbench.simulator.lower.image import GlobalVariable, Image
from ptxbench.simulator.tensormap import TENSOR_MAP_BYTES, encode_tensor_map

_FIRST_ADDRESS: Final = 0x7000_0000_0000
_SPACING: Final = 128 * 1024  # unmapped bytes between buffers; the machine treats 64 KiB around each as its guard range
_PLACE: Final = 256  # buffers are 256-byte aligned and no better, as the launcher was promised
_POISON: Final = struct.pack("<I", 0x7FD57FD5)  # NaN as bf16, f16, f32 and f64


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes of the host that stand for a range of device memory; ``writable`` says whether kernels may write to it."""

    name: str
    address: int
    data: memoryview
    writable: bool


class DeviceMemory:
    """The buffers of a plan without problems (`core.plan_problem`) and the variables of a program, at addresses 256
    modulo 512.
    """

    def __init__(self, plan: LaunchPlan, image: Image, buffers: Mapping[str, memoryview]) -> None:
        self.regions: dict[str, Region] = {}
        self.inputs = frozenset(buffer.name for buffer in plan.buffers if buffer.role == "input")
        self._next = _FIRST_ADDRESS
        self._variables = {variable.name: variable for variable in image.globals}
        for buffer in plan.buffers:
            self._add(buffer.name, self._bytes_of(buffer, buffers), writable=self._writable(buffer))
        for variable in image.globals:
            if variable.name not in self.regions:
                self._add(variable.name, memoryview(bytearray(variable.data)), writable=not variable.constant)
        for variable in image.globals:
            self._relocate(variable, image)

    def map_into(self, run: MachineRun, image: Image) -> None:
        """Maps every region, and tells the machine where the program's variables lie."""
        for region in self.regions.values():
            if region.data.nbytes:
                run.map(region.address, region.data, writable=region.writable, name=region.name)
        for variable in image.globals:
            run.place_global(self.regions[variable.name].address)

    def address(self, place: Address) -> int:
        """The device address of a place in a buffer."""
        return self.regions[place.buffer].address + place.offset

    def slice(self, place: Address, size: int) -> memoryview:
        """Host bytes of a range; `DeviceError` if the plan leaves the buffer."""
        region = self.regions[place.buffer]
        if place.offset < 0 or size < 0 or place.offset + size > region.data.nbytes:
            raise DeviceError(f"the plan reaches {size} bytes at {place.offset} of {place.buffer}, outside the buffer")
        return region.data[place.offset : place.offset + size]

    def fill(self, block: Block, size: int = 0) -> bytearray:
        """A block's bytes with addresses and tensor maps in its holes, padded with zeros to ``size``."""
        data = bytearray(block.data)
        data.extend(bytes(max(0, size - len(data))))
        for patch in block.patches:
            if isinstance(patch, PointerPatch):
                struct.pack_into("<Q", data, patch.at, self.address(patch.to))
            else:
                encoded = encode_tensor_map(patch.map, self.address(patch.map.base))
                data[patch.at : patch.at + TENSOR_MAP_BYTES] = encoded
        return data

    def _bytes_of(self, buffer: Buffer, buffers: Mapping[str, memoryview]) -> memoryview:
        if buffer.role == "allocation":
            try:
                return memoryview(bytearray(_poison(buffer.bytes)))
            except MemoryError as error:
                raise DeviceError(f"no memory for an allocation of {buffer.bytes} bytes") from error
        if buffer.role == "symbol":
            variable = self._variables.get(buffer.name)
            return memoryview(bytearray(variable.data if variable else bytes(buffer.bytes)))
        if buffer.name not in buffers:
            raise DeviceError(f"the plan has a buffer {buffer.name}, and no bytes were given for it")
        data = buffers[buffer.name].cast("B")
        if data.nbytes != buffer.bytes:
            raise DeviceError(f"buffer {buffer.name} has {data.nbytes} bytes where the plan says {buffer.bytes}")
        return data

    def _writable(self, buffer: Buffer) -> bool:
        variable = self._variables.get(buffer.name)
        constant = buffer.role == "symbol" and variable is not None and variable.constant
        return buffer.role != "input" and not constant

    def _add(self, name: str, data: memoryview, *, writable: bool) -> None:
        self.regions[name] = Region(name, self._next + _PLACE, data, writable)
        self._next += (data.nbytes + _SPACING + 2 * _PLACE - 1) // (2 * _PLACE) * (2 * _PLACE)

    def _relocate(self, variable: GlobalVariable, image: Image) -> None:
        data = self.regions[variable.name].data
        for at, index, addend in variable.relocations:
            struct.pack_into("<Q", data, at, self.regions[image.globals[index].name].address + addend)


def _poison(size: int) -> bytes:
    return (_POISON * (size // len(_POISON) + 1))[:size]
