"""A plan's buffers on the device: guard zones, and poison where no content is defined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ptxbench.core import Buffer, LaunchPlan
from ptxbench.devices.cuda.driver import Bytes, Driver, Handle

GUARD_BYTES = 64 * 1024
"""On both sides of every buffer. A multiple of 256, so that buffers stay as aligned as their allocation."""

GUARD_WORD = 0xA5C3_96E1
POISON_WORD = 0xFFB5_FFB5
"""NaN as fp32, and both halves NaN as bf16 and fp16: what a kernel leaves unwritten can never pass."""

_READ_ONLY = "input"
_SCRATCH = ("workspace", "allocation")
_UNDEFINED = ("output", *_SCRATCH)


@dataclass(frozen=True)
class Import:
    """Another process's allocation: its IPC handle and where in it the buffer's bytes begin."""

    handle: bytes
    offset: int


@dataclass(frozen=True)
class _Region:
    """``start`` is the allocation's address, ``address`` the buffer's. Without guards the memory is someone else's."""

    buffer: Buffer
    start: int
    address: int
    guarded: bool
    imported: bool = False


class PlanMemory:
    """Every buffer of one plan, allocated or imported. Not for several threads."""

    def __init__(self, driver: Driver, plan: LaunchPlan, module: Handle, imports: Mapping[str, Import]) -> None:
        """Allocates everything; symbols are found in ``module``."""
        self._driver = driver
        self._regions: dict[str, _Region] = {}
        self._inputs: dict[str, bytearray] = {}
        for buffer in plan.buffers:
            self._regions[buffer.name] = self._place(buffer, module, imports.get(buffer.name))
        self.addresses = {name: region.address for name, region in self._regions.items()}

    def _place(self, buffer: Buffer, module: Handle, source: Import | None) -> _Region:
        if buffer.role == "symbol":
            address, _ = self._driver.symbol(module, buffer.name)
            return _Region(buffer, address, address, guarded=False)
        if source is not None:
            start = self._driver.import_(source.handle)
            return _Region(buffer, start, start + source.offset, guarded=False, imported=True)
        start = self._driver.allocate(2 * GUARD_BYTES + -(-buffer.bytes // 256) * 256)
        return _Region(buffer, start, start + GUARD_BYTES, guarded=True)

    def size(self, name: str) -> int:
        """The size of a buffer in bytes; `KeyError` for a name that the plan does not have."""
        return self._regions[name].buffer.bytes

    def write(self, name: str, data: Bytes) -> None:
        """Sets a buffer's content. An input's bytes are remembered, to find out whether the kernel changed them."""
        region = self._regions[name]
        if len(data) != region.buffer.bytes:
            raise ValueError(f"buffer {name} has {region.buffer.bytes} bytes, not {len(data)}")
        self._driver.write(region.address, data)
        self._driver.synchronise()
        if region.buffer.role == _READ_ONLY:
            self._inputs[name] = bytearray(data)

    def read(self, name: str) -> bytearray:
        """A buffer's content."""
        region = self._regions[name]
        return self._driver.read(region.address, region.buffer.bytes)

    def export(self, name: str) -> Import:
        """What another process needs to map this buffer."""
        region = self._regions[name]
        return Import(self._driver.export(region.start), region.address - region.start)

    def reset(self) -> None:
        """Guards intact, everything of ours without defined content poisoned. What is imported is its owner's."""
        for region in self._regions.values():
            if region.guarded:
                self._driver.fill(region.start, GUARD_WORD, GUARD_BYTES)
                self._driver.fill(*self._after(region))
            if region.buffer.role in _UNDEFINED and not region.imported:
                self._driver.fill(region.address, POISON_WORD, region.buffer.bytes)
        # Fills are asynchronous and our streams do not wait for the default stream.
        self._driver.synchronise()

    def poison_scratch(self, stream: Handle) -> None:
        """Enqueues poisoning workspace and allocations, whose content a call must not find again in the next."""
        for region in self._regions.values():
            if region.buffer.role in _SCRATCH and region.buffer.bytes >= 4:
                self._driver.call(
                    "cuMemsetD32Async", region.address, POISON_WORD, region.buffer.bytes // 4, stream
                )

    @staticmethod
    def _after(region: _Region) -> tuple[int, int, int]:
        """(address, word, bytes) of the guard behind a buffer. It begins at the first word that is not the buffer's."""
        begin = region.address + -(-region.buffer.bytes // 4) * 4
        end = region.address + -(-region.buffer.bytes // 256) * 256 + GUARD_BYTES
        return begin, GUARD_WORD, end - begin

    def stray_writes(self) -> tuple[str, ...]:
        """Names of buffers whose guard zones were written to since `reset`."""
        return tuple(name for name, region in self._regions.items() if region.guarded and not self._intact(region))

    def _intact(self, region: _Region) -> bool:
        word = bytearray(GUARD_WORD.to_bytes(4, "little"))
        zones = ((region.start, GUARD_BYTES), (self._after(region)[0], self._after(region)[2]))
        return all(self._driver.read(address, count) == word * (count // 4) for address, count in zones)

    def changed_inputs(self) -> tuple[str, ...]:
        """Names of inputs whose bytes differ from what was written."""
        return tuple(name for name, content in self._inputs.items() if self.read(name) != content)

    def close(self) -> None:
        """Gives everything back."""
        for region in self._regions.values():
            if region.imported:
                self._driver.close_import(region.start)
            elif region.guarded:
                self._driver.free(region.start)
        self._regions.clear()
