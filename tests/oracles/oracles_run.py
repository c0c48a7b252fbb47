"""Runs one kernel, given as PTX and cubin with what its launch needs, as a launch plan on a device."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ptxbench.build.cubin import kernel_facts
from ptxbench.core import (
    Address,
    Artifact,
    Block,
    Buffer,
    Device,
    KernelNode,
    KernelSass,
    LaunchPlan,
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


def simulate(
    kernel: Kernel, parameters: Sequence[Parameter], grid: tuple[int, int, int], buffers: Mapping[str, Array],
    options: RunOptions | None = None,
) -> Observation:
    """Runs the kernel once on the simulator; see `run`."""
    return run(SimulatorDevice(), kernel, parameters, grid, buffers, options)


def run(
    device: Device, kernel: Kernel, parameters: Sequence[Parameter], grid: tuple[int, int, int],
    buffers: Mapping[str, Array], options: RunOptions | None = None,
) -> Observation:
    """Runs the kernel once. A parameter is a buffer's name, an integer, a float or a tensor map.

    Buffers named ``in_*`` are inputs, all others outputs, written in place. ``grid`` counts clusters along x.
    """
    artifact, plan = plan_of(kernel, parameters, grid, buffers)
    views = {name: memoryview(array.reshape(-1).view(np.uint8)) for name, array in buffers.items()}
    return device.run(artifact, plan, views, options or RunOptions())


def plan_of(
    kernel: Kernel, parameters: Sequence[Parameter], grid: tuple[int, int, int], buffers: Mapping[str, Array]
) -> tuple[Artifact, LaunchPlan]:
    """The artifact and the plan of one launch; see `run`."""
    artifact = kernel.artifact()
    declared = tuple(
        Buffer(name=name, role="input" if name.startswith("in_") else "output", bytes=array.nbytes)
        for name, array in buffers.items()
    )
    columns, *others = grid
    node = KernelNode(
        kernel=kernel.name, grid=(columns * kernel.cluster, *others), block=(kernel.threads, 1, 1),
        cluster=(kernel.cluster, 1, 1), dynamic_shared=kernel.shared, parameters=_block(artifact, kernel, parameters),
    )  # fmt: skip
    return artifact, LaunchPlan(
        digest="", artifact_digest=artifact.digest, sizes={}, buffers=declared, nodes=(node,)
    )


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
