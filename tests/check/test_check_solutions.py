"""The bundled kernels are clean under the happens-before check, at every small size."""

from __future__ import annotations

import threading

import pytest

from ptxbench.build import find_toolchain
from ptxbench.check import Check, Contents, check_plan
from ptxbench.core import Artifact, Schedule, make_candidate
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import LocalEvaluator
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.solutions import Solution, include_dir, solutions
from ptxbench.tasks import get_task, make_problem

QUICK = ("gemm/sm_90a/05_cluster_multicast.cu", "attention/sm_100a/forward.cu")
SCHEDULES = (Schedule(), Schedule(copies="late", products="late", reverse=True))
ROWS = [
    pytest.param(row, id=row.file, marks=() if row.file in QUICK else pytest.mark.slow) for row in solutions()
]


@pytest.fixture(scope="module")
def evaluator(shared_cache: Cache) -> LocalEvaluator:
    toolchain = find_toolchain()
    recorder = find_recorder(toolchain, shared_cache)
    return LocalEvaluator(SimulatorDevice(threading.Event()), toolchain, recorder, shared_cache, include_dir())


@pytest.mark.parametrize("row", ROWS)
def test_solutions_are_silent(evaluator: LocalEvaluator, row: Solution) -> None:
    task = get_task(row.task)
    artifact = evaluator.compile(make_candidate(row.source(), task=task.name, target=row.target, origin=row.file))
    assert isinstance(artifact, Artifact)
    workloads = task.of_tier("small")
    plans = evaluator.record(artifact, task, workloads)
    assert isinstance(plans, tuple)
    for workload, plan in zip(workloads, plans, strict=True):
        problem = make_problem(task, workload, task.distributions[0], seed=3)
        contents = {a.name: Contents(a.dtype) for a in task.outputs} | {
            a.name: Contents(a.dtype, problem.inputs[a.name].tobytes()) for a in task.inputs
        }
        for schedule in SCHEDULES:  # each alone, so that each has the happens-before check
            check = Check(evaluator.device, (schedule,), True, 10**8, 600.0, lambda stage: None)
            assert check_plan(check, artifact, plan, contents).findings == ()
