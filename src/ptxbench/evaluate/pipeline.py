"""The main flow: one candidate in, one verdict out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ptxbench.build import Toolchain, compile_candidate
from ptxbench.core import (
    Artifact,
    Candidate,
    Device,
    LaunchPlan,
    Outcome,
    Progress,
    Rejection,
    Task,
    Tier,
    Verdict,
    Workload,
)
from ptxbench.evaluate.replay import replay_all, weigh
from ptxbench.evaluate.stages import Stages
from ptxbench.evaluate.trials import draw_seed, simulator_trials
from ptxbench.evaluate.versions import versions
from ptxbench.judge import Evidence, decide
from ptxbench.native import Cache
from ptxbench.record import Recorder
from ptxbench.store import VerdictKey
from ptxbench.tasks import get_task


def silent(stage: str) -> None:
    """A `Progress` that shows nothing."""


@dataclass(frozen=True)
class LocalEvaluator:
    """Judges candidates on this machine (`core.Evaluator`); safe to use from several threads.

    ``include`` is the folder of the header set, or None to withhold it. ``seed`` fixes the secret seed, for tests and
    for judging again; None draws one per verdict. ``threads`` is how many replays run at a time.
    """

    device: Device
    toolchain: Toolchain
    recorder: Recorder
    cache: Cache
    include: Path | None
    tiers: tuple[Tier, ...] = ("small", "heldout")
    strict: bool = False
    seed: int | None = None
    threads: int = 2
    progress: Progress = silent

    def evaluate(self, candidate: Candidate) -> Verdict:
        """Compile, record, replay, judge; the first stage that refuses the candidate ends the flow."""
        task = get_task(candidate.task)
        seed = draw_seed() if self.seed is None else self.seed
        stages = Stages(self.progress)
        evidence = Evidence(
            task=task,
            candidate=candidate,
            device=self.device.capabilities().model_dump(mode="json"),
            strict=self.strict,
            seeds=(seed,),
            versions=versions(self.toolchain, self.include),
        )
        return self._judge(evidence, stages).model_copy(update={"stages_s": stages.seconds})

    def key(self, candidate: Candidate) -> VerdictKey:
        """What the verdict on ``candidate`` depends on, apart from the secret seed."""
        return VerdictKey(
            task=candidate.task,
            target=candidate.target,
            source_digest=candidate.digest,
            workloads=self.tiers,
            strict=self.strict,
            device=self.device.capabilities().model_dump_json(),
            versions=versions(self.toolchain, self.include),
        )

    def _judge(self, evidence: Evidence, stages: Stages) -> Verdict:
        candidate, task = evidence.candidate, evidence.task
        (seed,) = evidence.seeds

        with stages("compiling"):
            artifact = self.compile(candidate)
        if isinstance(artifact, Rejection):
            return decide(replace(evidence, rejection=artifact))
        evidence = replace(evidence, artifact=artifact)

        with stages("recording"):
            plans = self.record(artifact, task, task.of_tier(*self.tiers))
        if isinstance(plans, Rejection):
            return decide(replace(evidence, rejection=plans))
        evidence = replace(evidence, plans=plans)

        with stages("simulating"):
            trials = simulator_trials(task, self.tiers, seed)
            replays = replay_all(self.device, artifact, plans, task, trials, self.threads)

        with stages("judging"):
            return decide(weigh(evidence, artifact, replays))

    def compile(self, candidate: Candidate) -> Artifact | Rejection:
        """The candidate compiled, from the cache where it was compiled before."""
        task = get_task(candidate.task)
        return compile_candidate(candidate, task, toolchain=self.toolchain, cache=self.cache, include=self.include)

    def record(
        self, artifact: Artifact, task: Task, workloads: Sequence[Workload]
    ) -> tuple[LaunchPlan, ...] | Rejection:
        """One plan per workload, or the first refusal."""
        plans: list[LaunchPlan] = []
        for workload in workloads:
            plan = self.recorder.record(artifact, task, workload.sizes)
            if isinstance(plan, Rejection):
                return at_sizes(plan, workload) if plans or plan.outcome is Outcome.LAUNCH_ERROR else plan
            plans.append(plan)
        return tuple(plans)


def at_sizes(rejection: Rejection, workload: Workload) -> Rejection:
    """The rejection with the sizes that it came at, for refusals that depend on them."""
    sizes = ", ".join(f"{name}={value}" for name, value in workload.sizes.items())
    return rejection.model_copy(update={"reason": f"{rejection.reason.rstrip('.')} (at {sizes})."})
