"""Examining on a GPU: small workloads, then the full size compared, counted and timed, with the simulator beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

from ptxbench.core import (
    Artifact,
    Capabilities,
    LaunchPlan,
    Mode,
    Observation,
    RunOptions,
    Task,
    Tier,
    Workload,
    matrix_family,
)
from ptxbench.devices import executable
from ptxbench.evaluate.bench import Bench
from ptxbench.evaluate.findings import Simulate
from ptxbench.evaluate.replay import Replay, prepared, weigh
from ptxbench.evaluate.stages import Stages
from ptxbench.evaluate.trials import hardware_trials
from ptxbench.judge import Evidence, refusal
from ptxbench.tasks import make_problem


class BenchDevice:
    """The GPU of a bench as a `core.Device`, wherever the bench is."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    @cached_property
    def _capabilities(self) -> Capabilities:
        return self.bench.capabilities()

    def capabilities(self) -> Capabilities:
        """See `core.Device`."""
        return self._capabilities

    def run(
        self, artifact: Artifact, plan: LaunchPlan, buffers: Mapping[str, memoryview], options: RunOptions
    ) -> Observation:
        """See `core.Device`."""
        (seen,) = self.run_all(artifact, [(plan, buffers, options)])
        return seen

    def run_all(
        self, artifact: Artifact, runs: Sequence[tuple[LaunchPlan, Mapping[str, memoryview], RunOptions]]
    ) -> list[Observation]:
        """Several runs of one artifact, which has the device to itself meanwhile, up to the first that faults."""
        counted = any(options.mode is Mode.COUNT for _, _, options in runs)
        requests = [
            (plan, {name: bytes(content) for name, content in buffers.items()}, options)
            for plan, buffers, options in runs
        ]
        seen: list[Observation] = []
        answers = self.bench.replay(artifact if counted else executable(artifact), requests)
        for (_, buffers, _), (observation, outputs) in zip(runs, answers, strict=False):
            seen.append(observation)
            for name, content in outputs.items():
                buffers[name][:] = content
        return seen


@dataclass(frozen=True)
class CudaExaminer:
    """One candidate at a time on the GPU; several at a time before and beside it.

    ``simulate`` shows the hazards that hardware may hide; what it finds is told and decides nothing.
    """

    device: BenchDevice
    simulate: Simulate
    threads: int

    def workloads(self, task: Task, tiers: Sequence[Tier]) -> tuple[Workload, ...]:
        """Small ones first: what is wrong there need not run at full size."""
        small: list[Tier] = [tier for tier in tiers if tier != "core"]
        return (*task.of_tier(*small), *(task.of_tier("core")[:1] if "core" in tiers else ()))

    def versions(self) -> dict[str, str]:
        """The libraries of this Python that candidates are timed against."""
        return self.device.bench.libraries()

    def examine(self, evidence: Evidence, tiers: Sequence[Tier], stages: Stages) -> Evidence:
        """See `Examiner`."""
        workloads = self.workloads(evidence.task, tiers)
        with ThreadPoolExecutor(1) as beside:
            simulation = beside.submit(self.simulate, evidence, tiers)
            try:
                evidence = self._small(evidence, workloads, stages)
                if workloads[-1].tier == "core" and not refusal(evidence):
                    if matrix_family(evidence.candidate.target).unit == "cta":
                        # Machine code does not show the shapes of these products; the gate needs the simulator's.
                        evidence = replace(evidence, instructions=simulation.result().instructions)
                    with stages("at full size"):
                        evidence, seconds = self.device.bench.full(evidence, workloads[-1])
                    stages.seconds |= seconds
            finally:
                self.device.bench.dismiss(evidence.built.digest)
            with stages("simulating"):
                return simulation.result().told(evidence)

    def _small(self, evidence: Evidence, workloads: Sequence[Workload], stages: Stages) -> Evidence:
        """Small workloads on inputs and truth made on the CPU."""
        small = [workload for workload in workloads if workload.tier != "core"]
        with stages("drawing inputs"):
            trials = hardware_trials(evidence.task, small, evidence.seeds[0], count=len(small) == len(workloads))
            with ThreadPoolExecutor(self.threads) as pool:
                draw = [pool.submit(make_problem, evidence.task, t.workload, t.distribution, t.seed) for t in trials]
                problems = [future.result() for future in draw]
            plans = [evidence.plans[trial.plan] for trial in trials]
            ready = [prepared(plan, problem) for plan, problem in zip(plans, problems, strict=True)]
        with stages("replaying"):
            runs = [(plan, own[1], t.options) for plan, own, t in zip(plans, ready, trials, strict=True)]
            seen = self.device.run_all(evidence.built, runs)
            replays = [
                Replay(trial, problem, observation, own[0])
                for trial, problem, observation, own in zip(trials, problems, seen, ready, strict=False)
            ]
        with stages("judging"):
            return weigh(evidence, replays)
