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
from ptxbench.evaluate.examiner import Examiner, SimulatorExaminer
from ptxbench.evaluate.stages import Stages, silent
from ptxbench.evaluate.trials import draw_seed
from ptxbench.evaluate.versions import versions
from ptxbench.judge import Evidence, decide
from ptxbench.native import Cache
from ptxbench.record import Recorder
from ptxbench.store import VerdictKey
from ptxbench.tasks import get_task


@dataclass(frozen=True)
class LocalEvaluator:
    """Judges candidates on this machine (`core.Evaluator`); safe to use from several threads.

    ``include`` is the folder of the header set, or None to withhold it. ``seed`` fixes the secret seed, for tests and
    for judging again; None draws one per verdict. ``threads`` is how many replays run at a time. ``examiner`` gathers
    the observations; without one they are a simulator's (``device``).
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
    examiner: Examiner | None = None
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
            versions=self._versions(),
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
            versions=self._versions(),
        )

    def _judge(self, evidence: Evidence, stages: Stages) -> Verdict:
        candidate, task = evidence.candidate, evidence.task

        with stages("compiling"):
            artifact = self.compile(candidate)
        if isinstance(artifact, Rejection):
            return decide(replace(evidence, rejection=artifact))
        evidence = replace(evidence, artifact=artifact)

        with stages("recording"):
            plans = self.record(artifact, task, self.examining.workloads(task, self.tiers))
        if isinstance(plans, Rejection):
            return decide(replace(evidence, rejection=plans))
        evidence = replace(evidence, plans=plans)

        return decide(self.examining.examine(evidence, self.tiers, stages))

    @property
    def examining(self) -> Examiner:
        """Who gathers what the device has to say."""
        return self.examiner or SimulatorExaminer(self.device, self.threads)

    def _versions(self) -> dict[str, str]:
        return versions(self.toolchain, self.include) | self.examining.versions()

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
                return plan.at(workload.sizes) if plans or plan.outcome is Outcome.LAUNCH_ERROR else plan
            plans.append(plan)
        return tuple(plans)
