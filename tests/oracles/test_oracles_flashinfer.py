"""FlashInfer's Hopper attention on the simulator, which finds that its epilogue is let through too early.

Before the tile of O is read from shared memory, all 256 consumer threads run ``bar.arrive`` and then ``bar.sync`` on
the same barrier with the count 256. Each thread is counted twice, so that half of the warps can release themselves
while the others still write. Without the superfluous arrival the kernel is right and clean.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from oracles_cuda import compiled

from ptxbench.build import find_toolchain
from ptxbench.core import Artifact, LaunchPlan, Observation, RunOptions, Schedule, Target, Workload
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate.replay import prepared
from ptxbench.judge import measure
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.tasks import Problem, get_task, make_problem

FOUND = importlib.util.find_spec("flashinfer")
pytestmark = [
    pytest.mark.slow, pytest.mark.timeout(1800),
    pytest.mark.skipif(FOUND is None, reason="flashinfer is not installed"),
]  # fmt: skip

SIZES = {"B": 1, "H": 2, "S": 512, "D": 128}
INCLUDES = ("include", "cutlass/include", "cutlass/tools/util/include", "cccl/libcudacxx/include", "cccl/cub",
            "cccl/thrust")  # fmt: skip
SCHEDULES = [
    Schedule(),
    Schedule(copies="late", products="late", reverse=True),
    Schedule(copies="eager", products="late"),
    Schedule(copies="late", products="eager"),
    Schedule(seed=5),
]
_ARRIVED_TWICE = re.compile(r"bar\.arrive (%r\d+, %r\d+);(?=.*bar\.sync \1;)", re.DOTALL)


@pytest.fixture(scope="module")
def built(shared_cache: Cache) -> tuple[Artifact, LaunchPlan, Problem]:
    assert FOUND is not None and FOUND.origin is not None
    data = Path(FOUND.origin).parent / "data"
    toolchain = find_toolchain()
    artifact = compiled(
        "flashinfer_prefill.cu", Target.SM_90A, [data / name for name in INCLUDES], {"MASK": "kNone"}, toolchain,
        shared_cache,
    )  # fmt: skip
    task = get_task("mha_fwd_d128")
    plan = find_recorder(toolchain, shared_cache).record(artifact, task, SIZES)
    assert isinstance(plan, LaunchPlan), plan
    return artifact, plan, make_problem(task, Workload(tier="small", sizes=SIZES), "normal", 3)


def replayed(
    built: tuple[Artifact, LaunchPlan, Problem], schedule: Schedule, *, races: bool
) -> tuple[Observation, bool]:
    artifact, plan, problem = built
    outputs, buffers = prepared(plan, problem)
    seen = SimulatorDevice().run(artifact, plan, buffers, RunOptions(schedule=schedule, races=races))
    assert seen.fault is None, seen.fault
    return seen, measure(problem, "O", outputs["O"]).ok


def test_the_epilogue_is_let_through_too_early(built: tuple[Artifact, LaunchPlan, Problem]) -> None:
    right = [replayed(built, schedule, races=False)[1] for schedule in SCHEDULES]
    assert any(right) and not all(right)
    seen, _ = replayed(built, SCHEDULES[0], races=True)
    assert {hazard.kind for hazard in seen.hazards} == {"shared_memory_race"}
    assert "stmatrix" in seen.hazards[0].message


def test_it_is_right_and_clean_without_the_superfluous_arrival(built: tuple[Artifact, LaunchPlan, Problem]) -> None:
    artifact, plan, problem = built
    text, removed = _ARRIVED_TWICE.subn("", artifact.ptx)
    assert removed == 1
    mended = artifact.model_copy(update={"ptx": text, "digest": f"{artifact.digest}-mended"})
    for schedule in SCHEDULES:
        seen, right = replayed((mended, plan, problem), schedule, races=True)
        assert (right, seen.hazards) == (True, ()), schedule
