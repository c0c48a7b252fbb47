"""Launches that `cute_record.py` kept, as launch plans: FlashAttention-4 without a GPU."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from oracles_run import Array, Kernel

from ptxbench.core import (
    Address,
    Artifact,
    Block,
    Buffer,
    KernelNode,
    LaunchPlan,
    Observation,
    Patch,
    PointerPatch,
    RunOptions,
    Target,
    TensorMap,
    TensorMapPatch,
)
from ptxbench.devices import SimulatorDevice

_HERE = Path(__file__).parent
# The hardware's tensor map, as far as the DSL's own code fills it in (seen in maps of known content).
_MAP_BYTES = 128
_IS_TILED = 0b10
_SWIZZLES = ("none", "32b", "64b", "128b")
_TYPES = {7: "float32", 10: "bfloat16"}


@dataclass(frozen=True)
class Recorded:
    """What was launched, in order: each kernel has a module of its own. ``sizes`` are those of the buffers in bytes."""

    steps: tuple[tuple[Artifact, LaunchPlan], ...]
    sizes: dict[str, int]

    def simulate(
        self, contents: Mapping[str, Array], options: RunOptions
    ) -> tuple[list[Observation], dict[str, bytes]]:
        """What the simulator saw of each launch, and all buffers afterwards. What is not given is zero at first."""
        device = SimulatorDevice()
        held = {name: bytearray(size) for name, size in self.sizes.items()}
        for name, array in contents.items():
            held[name][:] = np.ascontiguousarray(array).tobytes()
        views = {name: memoryview(content) for name, content in held.items()}
        seen = [device.run(artifact, plan, views, options) for artifact, plan in self.steps]
        return seen, {name: bytes(content) for name, content in held.items()}


def record(target: Target, direction: str, inputs: Mapping[str, Array], folder: Path, *, causal: bool) -> Recorded:
    """Compiles and records attention ``forward`` or ``backward`` of ``inputs`` ([B, S, H, D]) in a process of its own.

    `CalledProcessError` carries what the library said.
    """
    recorder = ["gcc", "-O1", "-fPIC", "-shared", "-o", "recorder.so", str(_HERE / "libraries" / "cute_recorder.c")]
    subprocess.run(recorder, cwd=folder, check=True)
    plain = {name: array.view(np.int16) if array.dtype.itemsize == 2 else array for name, array in inputs.items()}
    np.savez(folder / "inputs.npz", **plain)
    command = [sys.executable, "-W", "ignore", str(_HERE / "cute_record.py"), target, direction]
    subprocess.run([*command, "causal" if causal else "full", str(folder)], check=True)
    kept = json.loads((folder / "launches.json").read_text())
    buffers: dict[str, list[int]] = kept["buffers"]
    steps = tuple(_step(launch, buffers, inputs, target, folder) for launch in kept["launches"])
    return Recorded(steps, {name: size for name, (_, size) in buffers.items()})


def _step(
    launch: dict[str, Any], buffers: Mapping[str, list[int]], inputs: Mapping[str, Array], target: Target, folder: Path
) -> tuple[Artifact, LaunchPlan]:
    text = (folder / f"{launch['module']}.ptx").read_text().rstrip("\0")
    cubin = (folder / f"{launch['module']}.cubin").read_bytes()
    kernel = Kernel(launch["kernel"], target, text, cubin, prod(launch["block"]), launch["shared"])
    artifact = kernel.artifact()
    node = KernelNode(
        kernel=kernel.name, grid=launch["grid"], block=launch["block"], cluster=launch["cluster"],
        dynamic_shared=launch["shared"], parameters=_parameters(artifact, launch, buffers),
    )  # fmt: skip
    declared = tuple(
        Buffer(name=name, role="input" if name in inputs else "output", bytes=size)
        for name, (_, size) in buffers.items()
    )
    plan = LaunchPlan(digest="", artifact_digest=artifact.digest, sizes={}, buffers=declared, nodes=(node,))
    return artifact, plan


def _parameters(artifact: Artifact, launch: dict[str, Any], buffers: Mapping[str, list[int]]) -> Block:
    slots = artifact.kernel(launch["kernel"]).parameters
    data = bytearray(max(slot.offset + slot.size for slot in slots))
    patches: list[Patch] = []
    for slot, text in zip(slots, launch["parameters"], strict=True):
        content = bytes.fromhex(text)
        if slot.size == _MAP_BYTES and content[8] & _IS_TILED:
            patches.append(TensorMapPatch(at=slot.offset, map=_tensor_map(content, buffers)))
            continue
        data[slot.offset : slot.offset + slot.size] = content
        for at in range(0, slot.size - 7, 8):
            place = _place(struct.unpack_from("<Q", content, at)[0], buffers)
            if place is not None:
                data[slot.offset + at : slot.offset + at + 8] = bytes(8)
                patches.append(PointerPatch(at=slot.offset + at, to=place))
    return Block(data=bytes(data), patches=tuple(patches))


def _place(address: int, buffers: Mapping[str, list[int]]) -> Address | None:
    for name, (start, size) in buffers.items():
        if start <= address < start + size:
            return Address(buffer=name, offset=address - start)
    return None


def _tensor_map(content: bytes, buffers: Mapping[str, list[int]]) -> TensorMap:
    """Strides in units of 16 bytes from byte 12, extents minus one from byte 32, the box minus one from byte 55."""
    address, flags = struct.unpack_from("<QI", content)
    rank = (flags >> 4 & 7) + 1
    base = _place(address, buffers)
    assert base is not None, "a tensor map of memory that nobody allocated"
    return TensorMap(
        dtype=_TYPES[flags >> 7 & 15], base=base,
        dims=tuple(extent + 1 for extent in struct.unpack_from(f"<{rank}I", content, 32)),
        strides=tuple(16 * stride for stride in struct.unpack_from(f"<{rank - 1}I", content, 12)),
        box=tuple(extent + 1 for extent in content[55 : 55 + rank]), element_strides=(1,) * rank, interleave="none",
        swizzle=_SWIZZLES[flags >> 13 & 3], l2_promotion="l2_128b", oob_fill="none",
    )  # fmt: skip
