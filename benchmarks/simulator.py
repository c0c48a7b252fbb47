"""The simulator's speed on the bundled kernels: one replay, two at a time, and how the cost grows with the size."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxbench.build import find_toolchain
from ptxbench.core import Artifact, LaunchPlan, Mode, Observation, RunOptions, Target, Workload, make_candidate
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import LocalEvaluator, Trial, replay
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.solutions import Solution, include_dir, solutions
from ptxbench.tasks import Problem, get_task, make_problem

GEMM, FORWARD = "gemm_n7168_k5120", "mha_fwd_d128"
REPEATS = 5
PAIRS = 8  # replays in the measurement of two at a time
CORES = 2
CURVES: tuple[tuple[str, Target, tuple[int, ...]], ...] = (
    (GEMM, Target.SM_90A, (256, 512, 1024, 2048)),
    (GEMM, Target.SM_100A, (256, 512, 1024, 2048)),
    (FORWARD, Target.SM_90A, (256, 512, 1024, 2048)),
    (FORWARD, Target.SM_100A, (256, 512, 1024, 2048)),
)
"""Task, target and sizes; each with the last solution of that kind in the manifest."""


def sizes_of(task: str, size: int) -> dict[str, int]:
    """A GEMM of ``size`` in every dimension, or attention of that sequence length with two heads."""
    if task == GEMM:
        return {"M": size, "N": size, "K": size}
    return {"B": 1, "H": 2, "S": size, "D": 128}


@dataclass(frozen=True)
class Case:
    """A kernel, compiled and recorded at one size, with its inputs."""

    row: Solution
    size: int
    artifact: Artifact
    plan: LaunchPlan
    trial: Trial
    problem: Problem

    def run(self, device: SimulatorDevice) -> Observation:
        """One replay that counts."""
        seen = replay(device, self.artifact, self.plan, self.trial, self.problem).observation
        assert seen.fault is None, seen.fault
        return seen


class Cases:
    """Makes cases; ``folder`` takes the cache."""

    def __init__(self, folder: Path) -> None:
        toolchain, cache = find_toolchain(), Cache(folder / "cache")
        self.device = SimulatorDevice()
        self._evaluator = LocalEvaluator(self.device, toolchain, find_recorder(toolchain, cache), cache, include_dir())

    def make(self, row: Solution, size: int) -> Case:
        """Compiles, records and draws."""
        candidate = make_candidate(row.source(), task=row.task, target=row.target, origin=row.file)
        artifact = self._evaluator.compile(candidate)
        assert isinstance(artifact, Artifact)
        task, workload = get_task(row.task), Workload(tier="small", sizes=sizes_of(row.task, size))
        plans = self._evaluator.record(artifact, task, [workload])
        assert isinstance(plans, tuple)
        trial = Trial(0, workload, "normal", 1, RunOptions(mode=Mode.COUNT))
        return Case(row, size, artifact, plans[0], trial, make_problem(task, workload, "normal", seed=1))


def measure(folder: Path) -> dict[str, Any]:
    """Both tables: every kernel at one size, and some at several."""
    cases = Cases(folder)
    return {"kernels": list(measure_kernels(cases)), "curves": list(measure_curves(cases))}


def measure_kernels(cases: Cases) -> Iterator[dict[str, Any]]:
    """The GEMMs at 1024 in every dimension, attention forward at S=512, H=2."""
    for task, size in ((GEMM, 1024), (FORWARD, 512), (f"{FORWARD}_causal", 512)):
        for row in solutions(task):
            case = cases.make(row, size)
            yield measure_case(cases.device, case) | {"two_rate": round(pair_rate(cases.device, case) / 1e6, 2)}


def measure_curves(cases: Cases) -> Iterator[dict[str, Any]]:
    """One row for each size of each curve."""
    for task, target, sizes in CURVES:
        row = solutions(task, target)[-1]
        for size in sizes:
            yield measure_case(cases.device, cases.make(row, size))


def measure_case(device: SimulatorDevice, case: Case) -> dict[str, Any]:
    """The shortest of some replays on one thread, and the host memory of the simulated CTAs."""
    seen = [case.run(device) for _ in range(REPEATS)]
    seconds = min(observation.seconds for observation in seen)
    instructions = seen[0].warp_instructions
    return {
        "kernel": case.row.file,
        "size": case.size,
        "seconds": round(seconds, 5),
        "warp_instructions": instructions,
        "rate": round(instructions / seconds / 1e6, 2),
        "gflop_per_s": round(sum(site.flops for site in seen[0].counts) / seconds / 1e9, 1),
        "memory_mib": round(seen[0].memory_bytes / 2**20, 1),
    }


def pair_rate(device: SimulatorDevice, case: Case) -> float:
    """Warp instructions per second of simulation with two replays at a time, as a verdict runs them; the best of three.

    Drawing and copying inputs is left out: the time of a replay is what the simulator took.
    """

    def batch() -> float:
        with ThreadPoolExecutor(CORES) as pool:
            done = list(pool.map(lambda _: case.run(device), range(PAIRS)))
        return CORES * sum(seen.warp_instructions for seen in done) / sum(seen.seconds for seen in done)

    return max(batch() for _ in range(3))
