"""How counts and outputs of a GPU are compared with the simulator's, and what the stored comparison says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from oracles_barrier import arrived_twice
from silicon_compare import comparison, executions, largest_ratio
from silicon_page import BEGIN, END, render
from silicon_store import Output, SiliconCase, read_cases, write_case

from ptxbench.core import (
    Artifact,
    Buffer,
    KernelSass,
    LaunchPlan,
    Observation,
    SassInstruction,
    SiteCount,
    Target,
    UsageError,
)
from ptxbench.devices.cuda.counters import flops_of

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "h200" / "silicon.json"
BARRIER = ROOT / "results" / "h200" / "barrier.json"
CODE = (
    SassInstruction(offset=0x00, opcode="UTMALDG.2D", operands="[UR8], [UR4]", predicate="UP3"),
    SassInstruction(offset=0x10, opcode="UTMALDG.2D", operands="[UR8], [UR4]"),
    SassInstruction(offset=0x20, opcode="HGMMA.64x128x16.F32", operands="R24, gdesc[UR4], R24"),
    SassInstruction(offset=0x30, opcode="HGMMA.64x8x16.F32", operands="RZ, gdesc[URZ], RZ"),
    SassInstruction(offset=0x40, opcode="STSM.16.M88.4", operands="[R7], R28", predicate="!P0"),
    SassInstruction(offset=0x50, opcode="IADD3", operands="R1, R2, R3, R4"),
)
# (warps, lanes): a copy under a uniform predicate that one warp of four has, one in a branch of a single lane.
COUNTED = ((32, 256), (8, 8), (64, 2048), (4, 128), (16, 256), (99, 3168))
SIMULATED = (
    ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes", 16, 16, 0),
    ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", 64, 2048, 1),
    ("stmatrix.sync.aligned.m8n8.x4.shared.b16", 8, 256, 0),
    ("add.s32", 99, 3168, 0),
)


def measured() -> tuple[SiteCount, ...]:
    return tuple(
        SiteCount(
            kernel="k", opcode=one.opcode, executed=warps, threads=lanes, position=one.offset,
            flops=flops_of(Target.SM_90A, one, warps, lanes),
        )
        for one, (warps, lanes) in zip(CODE, COUNTED, strict=True)
    )  # fmt: skip


def case() -> SiliconCase:
    artifact = Artifact(
        digest="d", source_digest="", target=Target.SM_90A, ptx="", cubin=b"code", host_library=b"", kernels=(),
        sass=(KernelSass(kernel="k", instructions=CODE),), remarks=(), versions={},
    )  # fmt: skip
    counts = tuple(
        SiteCount(kernel="k", opcode=opcode, executed=warps, threads=lanes, flops=flops)
        for opcode, warps, lanes, flops in SIMULATED
    )
    truth = np.array([1.0, -2.0, 0.0])
    output = Output(np.array([1.0, -2.0, 0.0], np.float16), truth, np.array([0.01, 0.01, 0.0]))
    plan = LaunchPlan(
        digest="", artifact_digest="d", sizes={}, buffers=(Buffer(name="c", role="output", bytes=6),), nodes=()
    )
    return SiliconCase(artifact, plan, Observation(device="simulator", counts=counts), {"a": b"12"}, {"c": output})


def test_executions_mean_the_same_on_both() -> None:
    same = {"stmatrix": 8, "tma_load": 16, "wgmma 64x128x16": 64}
    assert executions(measured(), sass=True) == same
    assert executions(case().observation.counts, sass=False) == same


def test_equal_counts_and_outputs_within_the_bound_agree() -> None:
    found = comparison(case(), {"c": np.array([1.005, -2.0, 0.0], np.float16)}, measured())
    assert found.disagreements() == []
    assert found.errors["c"].device == pytest.approx(0.49, abs=0.02)
    assert found.errors["c"].between == pytest.approx(found.errors["c"].device / 2)
    assert found.errors["c"].bits_equal == pytest.approx(2 / 3)
    assert found.sites == {
        "@UP UTMALDG.2D": "1 sites, 32 warps, 256 lanes", "UTMALDG.2D": "1 sites, 8 warps, 8 lanes",
        "HGMMA.64x128x16.F32": "1 sites, 64 warps, 2048 lanes", "@!P STSM.16.M88.4": "1 sites, 16 warps, 256 lanes",
    }  # fmt: skip


def test_each_difference_is_a_line() -> None:
    counts = [site.model_copy(update={"threads": 0}) if site.position == 0x40 else site for site in measured()]
    found = comparison(case(), {"c": np.array([1.0, -2.0, 1.0], np.float16)}, counts)
    output, count = found.disagreements()
    assert output.startswith("c: ")
    assert count == "stmatrix: 0 on the GPU, 8 simulated"


def test_not_a_number_never_agrees() -> None:
    assert largest_ratio(np.array([0.0, np.nan]), np.array([1.0, 1.0])) == np.inf
    assert largest_ratio(np.array([0.0, 0.5]), np.array([0.0, 1.0])) == 0.5


def test_a_bundle_keeps_what_it_was_given(tmp_path: Path) -> None:
    given = case()
    write_case(tmp_path, "one", given)
    read = read_cases(tmp_path)["one"]
    assert (read.plan, read.observation, read.inputs) == (given.plan, given.observation, given.inputs)
    assert [one.opcode for one in read.artifact.sass[0].instructions] == [one.opcode for one in CODE]
    assert executions(measured(), sass=True) == comparison(read, {}, measured()).device
    np.testing.assert_array_equal(read.outputs["c"].simulated, given.outputs["c"].simulated)
    np.testing.assert_array_equal(read.outputs["c"].truth, given.outputs["c"].truth)
    np.testing.assert_allclose(read.outputs["c"].allowed.astype(float), given.outputs["c"].allowed, rtol=0.004)


def test_an_empty_folder_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no prebuilt cases"):
        read_cases(tmp_path)


def test_the_stored_comparison_is_of_enough_kernels_and_they_agree() -> None:
    kernels = json.loads(RESULTS.read_text())["kernels"]
    assert len(kernels) >= 20
    for name, found in kernels.items():
        assert found["executed_device"] == found["executed_simulator"], name
        assert any(family.startswith("wgmma ") for family in found["executed_device"]), name
        for errors in found["errors"].values():
            assert max(errors["device"], errors["simulator"], errors["between"]) <= 1, name


def test_the_page_shows_the_stored_comparison() -> None:
    page = (ROOT / "docs" / "oracles.md").read_text()
    shown = page.partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == render(json.loads(RESULTS.read_text())).strip()


def test_an_arrival_and_a_wait_of_one_thread_count_twice_as_on_the_gpu() -> None:
    probe = arrived_twice()
    seen = probe.launch.simulate()
    assert seen.fault is None
    assert np.array_equal(probe.launch.buffers["c"], probe.expected["c"].truth)
    assert json.loads(BARRIER.read_text())["kernels"]["barrier-arrived-twice"]["errors"]["c"]["device"] == 0
