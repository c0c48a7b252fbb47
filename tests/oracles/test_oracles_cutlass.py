"""CUTLASS's GEMMs, instantiated from the installed headers, come out right on the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("cutlass_library")

import cutlass_library
from oracles_cuda import compiled

from ptxbench.build import Toolchain, find_toolchain
from ptxbench.core import LaunchPlan, RunOptions, Schedule, Target, Workload
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate.replay import prepared
from ptxbench.judge import measure
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.tasks import get_task, make_problem

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TASK = "gemm_n7168_k5120"
SCHEDULES = [
    Schedule(),
    Schedule(copies="late", products="late", reverse=True),
    Schedule(copies="eager", products="late"),
    Schedule(copies="late", products="eager"),
]
ALLOWED = {
    Target.SM_90A: set[str](),
    Target.SM_100A: {"unwaited_tensor_load", "unwaited_bulk_store"},
}
"""Rules of the ISA that it breaks, with right results: see docs/oracles.md."""


@dataclass(frozen=True)
class Gemm:
    """Template arguments of the collective builder."""

    target: Target
    tile: tuple[int, int, int]
    cluster: tuple[int, int]
    mainloop: str
    epilogue: str
    scheduler: str = "void"

    def macros(self) -> dict[str, str | int]:
        names = ("TILE_M", "TILE_N", "TILE_K", "CLUSTER_M", "CLUSTER_N")
        return {
            **dict(zip(names, (*self.tile, *self.cluster), strict=True)),
            "ARCH": "cutlass::arch::Sm90" if self.target is Target.SM_90A else "cutlass::arch::Sm100",
            "MAINLOOP": f"cutlass::gemm::KernelTmaWarpSpecialized{self.mainloop}",
            "EPILOGUE": f"cutlass::epilogue::{self.epilogue}",
            "SCHEDULER": self.scheduler if self.scheduler == "void" else f"cutlass::gemm::{self.scheduler}",
        }


GEMMS = {
    "cooperative": Gemm(
        Target.SM_90A, (128, 128, 64), (2, 1), "Cooperative", "TmaWarpSpecializedCooperative", "PersistentScheduler"
    ),
    "pingpong": Gemm(Target.SM_90A, (64, 128, 64), (1, 1), "Pingpong", "TmaWarpSpecialized"),
    "stream-k": Gemm(
        Target.SM_90A, (128, 128, 64), (1, 2), "Cooperative", "TmaWarpSpecializedCooperative", "StreamKScheduler"
    ),
    "no-shared-epilogue": Gemm(Target.SM_90A, (64, 64, 64), (1, 1), "", "NoSmemWarpSpecialized"),
    "one-cta": Gemm(Target.SM_100A, (128, 128, 64), (1, 1), "1SmSm100", "TmaWarpSpecialized1Sm"),
    "two-ctas": Gemm(Target.SM_100A, (256, 128, 64), (2, 1), "2SmSm100", "TmaWarpSpecialized2Sm"),
}


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return find_toolchain()


@pytest.mark.parametrize("name", GEMMS)
def test_gemm(name: str, toolchain: Toolchain, shared_cache: Cache) -> None:
    case = GEMMS[name]
    sources = Path(cutlass_library.__file__).parent / "source"
    includes = [sources / "include", sources / "tools" / "util" / "include"]
    artifact = compiled("cutlass_gemm.cu", case.target, includes, case.macros(), toolchain, shared_cache)
    assert ("wgmma.mma_async" if case.target is Target.SM_90A else "tcgen05.mma") in artifact.ptx
    task, sizes = get_task(TASK), {"M": 512, "N": 512, "K": 512}
    plan = find_recorder(toolchain, shared_cache).record(artifact, task, sizes)
    assert isinstance(plan, LaunchPlan), plan
    problem = make_problem(task, Workload(tier="small", sizes=sizes), "normal", 3)
    device = SimulatorDevice()
    for schedule in SCHEDULES:
        outputs, buffers = prepared(plan, problem)
        seen = device.run(artifact, plan, buffers, RunOptions(schedule=schedule))
        assert seen.fault is None, seen.fault
        assert {hazard.kind for hazard in seen.hazards} <= ALLOWED[case.target], seen.hazards
        assert measure(problem, "C", outputs["C"]).ok, schedule
