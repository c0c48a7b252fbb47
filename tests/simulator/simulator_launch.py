"""Hand-made plans: runs kernels of PTX text on NumPy arrays through `ptxbench.simulator`."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from ptxbench.core import (
    Address,
    Artifact,
    Block,
    Buffer,
    KernelFacts,
    KernelNode,
    KernelSass,
    LaunchPlan,
    Node,
    Observation,
    ParameterSlot,
    PointerPatch,
    RunOptions,
    SassInstruction,
    Target,
    TensorMap,
    TensorMapPatch,
)
from ptxbench.simulator import Program, execute, load

Array = np.ndarray
Parameter = str | int | float | TensorMap


@dataclass(frozen=True)
class Launch:
    """One kernel launch: parameters are buffer names, 32-bit integers, floats and tensor maps, in order."""

    kernel: str
    parameters: Sequence[Parameter]
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (32, 1, 1)
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    cooperative: bool = False
    explicit_cluster: bool = False


def run(
    program: Program, launches: Launch | Sequence[Launch], options: RunOptions | None = None, *,
    registers: int = 32, moves_registers: bool = False, **buffers: Array,
) -> Observation:
    """Runs launches in order. Buffers named ``in_*`` are inputs, all others outputs, written in place.

    ``moves_registers`` says that ptxas kept ``setmaxnreg``.
    """
    launches = [launches] if isinstance(launches, Launch) else list(launches)
    nodes = tuple(node_of(launch) for launch in launches)
    plan = plan_of(nodes, buffers)
    artifact = artifact_of(program, registers, moves_registers)
    return execute(program, artifact, plan, views_of(buffers), options or RunOptions())


def views_of(buffers: Mapping[str, Array]) -> dict[str, memoryview]:
    return {name: memoryview(array.reshape(-1).view(np.uint8)) for name, array in buffers.items()}


def plan_of(nodes: Sequence[Node], buffers: Mapping[str, Array]) -> LaunchPlan:
    declared = tuple(
        Buffer(name=name, role="input" if name.startswith("in_") else "output", bytes=array.nbytes)
        for name, array in buffers.items()
    )
    return LaunchPlan(digest="", artifact_digest="", sizes={}, buffers=declared, nodes=tuple(nodes))


def node_of(launch: Launch) -> KernelNode:
    data, patches = bytearray(), []
    for parameter in launch.parameters:
        if isinstance(parameter, TensorMap):
            data.extend(bytes(-len(data) % 64))
            patches.append(TensorMapPatch(at=len(data), map=parameter))
            data.extend(bytes(128))
        elif isinstance(parameter, str):
            data.extend(bytes(-len(data) % 8))
            patches.append(PointerPatch(at=len(data), to=Address(buffer=parameter)))
            data.extend(bytes(8))
        else:
            data.extend(bytes(-len(data) % 4))
            data.extend(struct.pack("<f" if isinstance(parameter, float) else "<i", parameter))
    return KernelNode(
        kernel=launch.kernel, grid=launch.grid, block=launch.block, cluster=launch.cluster,
        dynamic_shared=launch.shared, parameters=Block(data=bytes(data), patches=tuple(patches)),
        cooperative=launch.cooperative, explicit_cluster=launch.explicit_cluster,
    )  # fmt: skip


def artifact_of(program: Program, registers: int, moves_registers: bool = False) -> Artifact:
    kept = (SassInstruction(offset=0, opcode="USETMAXREG.DEALLOC.CTAPOOL", operands="0x28"),)
    sass = tuple(KernelSass(kernel=kernel.name, instructions=kept) for kernel in program.image.kernels)
    kernels = tuple(
        KernelFacts(
            name=kernel.name, parameters=(ParameterSlot(offset=0, size=kernel.param_bytes),), registers=registers,
            static_shared=kernel.static_shared, local=kernel.local_bytes, max_threads=kernel.max_threads,
            required_cluster=kernel.required_cluster,
        )
        for kernel in program.image.kernels
    )  # fmt: skip
    return Artifact(
        digest="", source_digest="", target=Target(program.image.target), ptx="", cubin=b"", host_library=b"",
        kernels=kernels, sass=sass if moves_registers else (), remarks=(), versions={},
    )  # fmt: skip


def tiled(buffer: str, dims: Sequence[int], box: Sequence[int], *, dtype: str = "bfloat16", swizzle: str = "none",
          size: int = 2, oob_fill: str = "none") -> TensorMap:
    """A tensor map of a dense row-major tensor; ``dims`` and ``box`` innermost first, ``size`` bytes an element."""
    strides = tuple(size * prod(dims[: axis + 1]) for axis in range(len(dims) - 1))
    return TensorMap(
        dtype=dtype, base=Address(buffer=buffer), dims=tuple(dims), strides=strides, box=tuple(box),
        element_strides=(1,) * len(dims), interleave="none", swizzle=swizzle, l2_promotion="none", oob_fill=oob_fill,
    )  # fmt: skip


__all__ = ["Launch", "load", "plan_of", "run", "tiled", "views_of"]
