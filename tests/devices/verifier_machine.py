"""The verifier's kernels on the simulator: a `Machine` whose every allocation is a buffer with guarded ends."""

from __future__ import annotations

import bisect
import functools
import re
import struct
from collections.abc import Sequence
from pathlib import Path

from ptxbench.build import find_toolchain
from ptxbench.core import (
    Address,
    Artifact,
    Block,
    Buffer,
    KernelFacts,
    KernelNode,
    LaunchPlan,
    Observation,
    ParameterSlot,
    PointerPatch,
    RunOptions,
    Target,
)
from ptxbench.devices.cuda.verifier.arrays import THREADS, Array, Field, packed
from ptxbench.devices.cuda.verifier.build import compiled
from ptxbench.native import Cache
from ptxbench.simulator import Program, execute, load

KERNELS = (
    "fill_inputs", "product_f64", "product_f32", "softmax_exact", "softmax_honest", "softmax_noise", "slope_exact",
    "delta_noise", "gradient_errors", "scores_exact", "query_noise", "gradient_honest", "round_rows", "error_scale",
    "gemm_epilogue", "write_inputs", "compare_inputs", "poison_output", "compare_words", "compare_output",
)

_GAP = 1 << 20


def program(cache: Cache) -> Program:
    """All kernels, lowered for the simulator; once in a process."""
    nvcc = find_toolchain().cuda / "bin" / "nvcc"
    return _lowered(compiled(nvcc, cache, "verifier.ptx", "-ptx", "-arch=compute_90a"))


@functools.cache
def _lowered(ptx: Path) -> Program:
    # The simulator takes a parameter's address in a register for one of local memory; generic loads it reads right.
    return load(re.sub(r"ld\.param(\.\w+\s+%\w+, \[%rd)", r"ld\1", ptx.read_text()), KERNELS)


class SimulatedMachine:
    """See `Machine`. Addresses are numbers of its own; freed memory is unmapped, so that late use is a fault."""

    granule = 4096

    def __init__(self, of: Program) -> None:
        self._program = of
        self._artifact = _artifact(of)
        self._memory: dict[int, bytearray] = {}
        self._next = _GAP
        self.launches: list[str] = []

    def allocate(self, count: int) -> int:
        address = self._next
        self._memory[address] = bytearray(b"\xd5\x7f" * (count // 2 + 1))[:count]
        self._next += -(-count // _GAP) * _GAP + _GAP
        return address

    def free(self, address: int) -> None:
        del self._memory[address]

    @property
    def allocations(self) -> int:
        return len(self._memory)

    def write(self, address: int, data: bytes | bytearray | memoryview) -> None:
        start, offset = self._place(address)
        self._memory[start][offset : offset + len(data)] = data

    def read(self, address: int, count: int) -> bytearray:
        start, offset = self._place(address)
        return self._memory[start][offset : offset + count]

    def fill(self, address: int, word: int, count: int) -> None:
        self.write(address, (struct.pack("<I", word) * (count // 4 + 1))[:count])

    def launch(self, kernel: str, grid: tuple[int, int, int], fields: Sequence[Field]) -> None:
        patches = tuple(
            PointerPatch(at=8 * index, to=self._named(field.address))
            for index, field in enumerate(fields)
            if isinstance(field, Array)
        )
        node = KernelNode(
            kernel=kernel, grid=grid, block=(THREADS, 1, 1), cluster=(1, 1, 1), dynamic_shared=0,
            parameters=Block(data=packed(fields), patches=patches),
        )
        buffers = tuple(
            Buffer(name=str(address), role="output", bytes=len(data)) for address, data in self._memory.items()
        )
        plan = LaunchPlan(digest="", artifact_digest="", sizes={}, buffers=buffers, nodes=(node,))
        views = {str(address): memoryview(data) for address, data in self._memory.items()}
        seen: Observation = execute(self._program, self._artifact, plan, views, RunOptions(time_limit_s=300.0))
        for view in views.values():
            view.release()
        assert seen.fault is None, (kernel, seen.fault)
        assert not seen.hazards, (kernel, seen.hazards)
        self.launches.append(kernel)

    def synchronise(self) -> None:
        """Launches end before they return."""

    def _named(self, address: int) -> Address:
        start, offset = self._place(address)
        return Address(buffer=str(start), offset=offset)

    def _place(self, address: int) -> tuple[int, int]:
        starts = sorted(self._memory)
        start = starts[bisect.bisect_right(starts, address) - 1]
        assert address - start < len(self._memory[start]), "the address is in no allocation"
        return start, address - start


def _artifact(of: Program) -> Artifact:
    kernels = tuple(
        KernelFacts(
            name=kernel.name, parameters=(ParameterSlot(offset=0, size=kernel.param_bytes),), registers=128,
            static_shared=kernel.static_shared, local=kernel.local_bytes, max_threads=kernel.max_threads,
            required_cluster=kernel.required_cluster,
        )
        for kernel in of.image.kernels
    )
    return Artifact(
        digest="", source_digest="", target=Target(of.image.target), ptx="", cubin=b"", host_library=b"",
        kernels=kernels, sass=(), remarks=(), versions={},
    )
