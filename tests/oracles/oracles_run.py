"""Runs one kernel, given as PTX and cubin with what its launch needs, as a launch plan on a device."""

from __future__ import annotations

import hashlib
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ptxbench.build import find_toolchain
from ptxbench.build.cubin import kernel_facts
from ptxbench.core import (
    Address,
    Artifact,
    Block,
    Buffer,
    KernelNode,
    KernelSass,
    LaunchPlan,
    MemsetNode,
    Observation,
    Patch,
    PointerPatch,
    RunOptions,
    SassInstruction,
    Target,
    TensorMap,
    TensorMapPatch,
)
from ptxbench.devices import SimulatorDevice

Array = np.ndarray
Parameter = str | int | float | TensorMap
"""A buffer's name, an integer, a float or a tensor map."""

_KEPT = SassInstruction(offset=0, opcode="USETMAXREG.DEALLOC.CTAPOOL", operands="")


@dataclass(frozen=True)
class Kernel:
    """What a compiler made of one kernel: ``threads`` of a CTA, bytes of dynamic shared memory, CTAs in a cluster."""

    name: str
    target: Target
    ptx: str
    cubin: bytes
    threads: int
    shared: int
    cluster: int = 1

    def artifact(self) -> Artifact:
        """An artifact of this kernel alone."""
        moves_registers = "setmaxnreg" in self.ptx
        sass = (KernelSass(kernel=self.name, instructions=(_KEPT,)),) if moves_registers else ()
        return Artifact(
            digest=hashlib.sha256(self.ptx.encode()).hexdigest(), source_digest="", target=self.target, ptx=self.ptx,
            cubin=self.cubin, host_library=b"", kernels=kernel_facts(self.cubin, self.ptx), sass=sass, remarks=(),
            versions={},
        )  # fmt: skip


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel. A parameter is a buffer's name, an integer, a float or a tensor map.

    Buffers named ``in_*`` are inputs, all others outputs, written in place and zero at first: some kernels sum onto
    them. ``grid`` counts clusters along x.
    """

    kernel: Kernel
    parameters: Sequence[Parameter]
    grid: tuple[int, int, int]
    buffers: Mapping[str, Array]

    def simulate(self, options: RunOptions | None = None) -> Observation:
        """Runs the kernel once on the simulator."""
        artifact, plan = self.plan()
        views = {name: array.reshape(-1).view(np.uint8).data for name, array in self.buffers.items()}
        return SimulatorDevice().run(artifact, plan, views, options or RunOptions())

    def plan(self) -> tuple[Artifact, LaunchPlan]:
        """The artifact and the plan of this launch."""
        artifact, kernel = self.kernel.artifact(), self.kernel
        declared = tuple(
            Buffer(name=name, role="input" if name.startswith("in_") else "output", bytes=array.nbytes)
            for name, array in self.buffers.items()
        )
        zeros = tuple(
            MemsetNode(to=Address(buffer=buffer.name), value=0, width=1, count=buffer.bytes)
            for buffer in declared if buffer.role == "output"
        )  # fmt: skip
        columns, rows, layers = self.grid
        node = KernelNode(
            kernel=kernel.name, grid=(columns * kernel.cluster, rows, layers), block=(kernel.threads, 1, 1),
            cluster=(kernel.cluster, 1, 1), dynamic_shared=kernel.shared,
            parameters=_block(artifact, kernel, self.parameters), after=tuple(range(len(zeros))),
        )  # fmt: skip
        return artifact, LaunchPlan(
            digest="", artifact_digest=artifact.digest, sizes={}, buffers=declared, nodes=(*zeros, node)
        )


def assembled(text: str, target: Target) -> bytes:
    """The cubin of PTX text, by the judge's ptxas; `CalledProcessError` where it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(text)
        ptxas = find_toolchain().cuda / "bin" / "ptxas"
        subprocess.run([str(ptxas), f"-arch={target}", str(source), "-o", str(cubin)], check=True)
        return cubin.read_bytes()


def _block(artifact: Artifact, kernel: Kernel, parameters: Sequence[Parameter]) -> Block:
    slots = artifact.kernel(kernel.name).parameters
    assert len(parameters) == len(slots), f"{kernel.name} takes {len(slots)} parameters, not {len(parameters)}"
    data = bytearray(max((slot.offset + slot.size for slot in slots), default=0))
    patches: list[Patch] = []
    for slot, value in zip(slots, parameters, strict=True):
        match value:
            case str():
                patches.append(PointerPatch(at=slot.offset, to=Address(buffer=value)))
            case TensorMap():
                patches.append(TensorMapPatch(at=slot.offset, map=value))
            case float():
                struct.pack_into("<f", data, slot.offset, value)
            case int():
                data[slot.offset : slot.offset + slot.size] = value.to_bytes(slot.size, "little", signed=True)
    return Block(data=bytes(data), patches=tuple(patches))
