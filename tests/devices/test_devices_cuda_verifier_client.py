"""What travels between the verifier and its parent, and how its kernels are built."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from verifier_machine import KERNELS

from ptxbench.build import find_toolchain
from ptxbench.core import DeviceError, Target, ToolchainError
from ptxbench.devices.cuda.verifier import OutputStatistics, Verifier, verifier_cubin
from ptxbench.devices.cuda.verifier.arrays import Array, packed
from ptxbench.devices.cuda.verifier.client import block_arrays
from ptxbench.devices.cuda.verifier.program import block_bytes, entry
from ptxbench.devices.cuda.verifier.records import statistics_from
from ptxbench.native import Cache


def statistics(rng: np.random.Generator, shape: tuple[int, ...], *, wrong: bool) -> OutputStatistics:
    return OutputStatistics(
        rms=float("inf") if wrong else 1.01, worst_rms_block=1.2, max=1.3, elements=1000, bad=5 if wrong else 0,
        first_bad=(1, 2, 3) if wrong else (), unwritten=0, not_finite=int(wrong), worst_block=(0, 1, 0),
        rms_blocks=rng.random(shape), max_blocks=rng.random(shape), bad_blocks=rng.integers(0, 9, shape),
    )


@pytest.mark.parametrize("blocks", [True, False])
def test_statistics_arrive_as_they_left(blocks: bool) -> None:
    rng = np.random.default_rng(1)
    sent = {"dQ": statistics(rng, (6, 2, 1), wrong=True), "dK": statistics(rng, (6, 3, 1), wrong=False)}
    header = json.loads(json.dumps({name: entry(one) for name, one in sent.items()}))
    arrays = block_arrays(header, bytearray(b"".join(map(block_bytes, sent.values())))) if blocks else {}
    for name, one in sent.items():
        came = statistics_from(header[name]["scalars"], arrays.get(name, {}))
        for field in fields(OutputStatistics):
            left, right = getattr(one, field.name), getattr(came, field.name)
            if not field.name.endswith("_blocks"):
                assert left == right
            elif blocks:
                assert (left == right).all()
            else:
                assert right is None


def test_parameters_are_fields_of_eight_bytes() -> None:
    fields_ = [Array(0x7F00_0000_1000, (2,), "f32"), None, -1, 2**64 - 1, 0.5]
    words = np.frombuffer(packed(fields_), np.uint64)
    assert words[:4].tolist() == [0x7F00_0000_1000, 0, 2**64 - 1, 2**64 - 1]
    assert words[4:].view(np.float64).tolist() == [0.5]


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"cuda-bindings is not installed|no NVIDIA driver"):
        Verifier(tmp_path / "verifier.cubin")


@pytest.mark.parametrize("target", [Target.SM_90A, pytest.param(Target.SM_100A, marks=pytest.mark.slow)])
def test_the_cubin_has_every_kernel(shared_cache: Cache, target: Target) -> None:
    cubin = verifier_cubin(find_toolchain().cuda / "bin" / "nvcc", target, shared_cache)
    with cubin.open("rb") as file:
        sections = {section.name for section in ELFFile(file).iter_sections()}
    assert {f".text.{kernel}" for kernel in KERNELS} <= sections
    assert verifier_cubin(find_toolchain().cuda / "bin" / "nvcc", target, shared_cache) == cubin


def test_a_missing_compiler_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="nvcc does not run"):
        verifier_cubin(tmp_path / "nvcc", Target.SM_90A, Cache(tmp_path))
