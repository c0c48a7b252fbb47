"""A bundle comes back as it was written, without what a GPU host has no use for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.core import (
    Address,
    Artifact,
    Block,
    Buffer,
    KernelFacts,
    KernelNode,
    KernelSass,
    LaunchPlan,
    Observation,
    ParameterSlot,
    PointerPatch,
    SassInstruction,
    SiteCount,
    Target,
    UsageError,
)
from ptxbench.devices.cuda import Case, read_bundle, write_bundle


def a_case() -> Case:
    facts = KernelFacts(name="k", parameters=(ParameterSlot(offset=0, size=8),), registers=32, static_shared=0, local=0)
    artifact = Artifact(
        digest="d" * 64, source_digest="s" * 64, target=Target.SM_90A, ptx=".version 9.0", cubin=b"\x7fELF\x00\xff",
        host_library=b"host", kernels=(facts,),
        sass=(KernelSass(kernel="k", instructions=(SassInstruction(offset=0, opcode="EXIT", operands=""),)),),
        remarks=(), versions={"nvcc": "13.0"},
    )
    node = KernelNode(
        kernel="k", grid=(2, 1, 1), block=(128, 1, 1), cluster=(2, 1, 1), dynamic_shared=1024,
        parameters=Block(data=bytes(8), patches=(PointerPatch(at=0, to=Address(buffer="C")),)),
    )
    plan = LaunchPlan(
        digest="p" * 64, artifact_digest="d" * 64, sizes={"M": 128}, buffers=(
            Buffer(name="A", role="input", bytes=4), Buffer(name="C", role="output", bytes=2),
        ), nodes=(node,),
    )
    site = SiteCount(kernel="k", opcode="exit", executed=8, threads=256)
    observation = Observation(device="simulator", counts=(site,))
    return Case(
        name="gemm-small", artifact=artifact, plan=plan, observation=observation,
        inputs={"A": b"\x01\x02\x03\x04"}, outputs={"C": b"\xff\xb5"},
    )


def test_a_case_survives_the_folder(tmp_path: Path) -> None:
    case = a_case()
    write_bundle(tmp_path, {case.name: case})
    (read,) = read_bundle(tmp_path).values()
    assert read.model_copy(update={"artifact": case.artifact}) == case
    assert (read.artifact.ptx, read.artifact.host_library) == ("", b"")
    assert (read.artifact.digest, read.artifact.cubin) == (case.artifact.digest, case.artifact.cubin)


def test_a_case_that_no_simulator_ran_has_no_observation(tmp_path: Path) -> None:
    case = a_case().model_copy(update={"observation": None, "inputs": {}, "outputs": {}})
    write_bundle(tmp_path, {"plain": case})
    read = read_bundle(tmp_path)["plain"]
    assert (read.observation, read.inputs, read.outputs) == (None, {}, {})


def test_an_empty_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no prebuilt cases"):
        read_bundle(tmp_path)
