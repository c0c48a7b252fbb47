"""Everything that is known about a candidate when it is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ptxbench.core import (
    Artifact,
    Candidate,
    Hazard,
    InstructionReport,
    LaunchPlan,
    Observation,
    OutputReport,
    Rejection,
    Schedule,
    Task,
    TimingReport,
    WorkloadReport,
    sizes_text,
)
from ptxbench.judge.correctness import judge_outputs
from ptxbench.tasks import Problem, Tensor


@dataclass(frozen=True)
class Run:
    """One replay of a plan and the judged outputs; ``reports`` is empty where a fault left nothing to judge."""

    sizes: dict[str, int]
    tier: str
    distribution: str
    observation: Observation
    reports: dict[str, OutputReport]

    @property
    def schedule(self) -> str:
        """The schedule's label; empty on hardware."""
        return self.observation.schedule.label if self.observation.schedule else ""

    @property
    def ok(self) -> bool:
        """Whether the run finished and every output is right."""
        return self.observation.fault is None and all(report.ok for report in self.reports.values())

    @property
    def where(self) -> str:
        """Sizes and inputs in words, for messages; the schedule too unless it is the plain one."""
        schedule = self.observation.schedule
        under = f" with {schedule.label}" if schedule and schedule != Schedule() else ""
        return f"at {sizes_text(self.sizes)} on {self.distribution} inputs{under}"

    def workload_report(self) -> WorkloadReport:
        """What the verdict keeps of this run."""
        return WorkloadReport(
            sizes=self.sizes, tier=self.tier, distribution=self.distribution,
            schedule=self.schedule, outputs=self.reports,
        )


def judge_run(
    problem: Problem, observation: Observation, outputs: Mapping[str, Tensor], *, explain: bool = True
) -> Run:
    """Judges the outputs of one replay on the inputs of ``problem``; after a fault they are not looked at."""
    reports = {} if observation.fault else judge_outputs(problem, outputs, explain=explain)
    return Run(problem.sizes, problem.workload.tier, problem.distribution, observation, reports)


@dataclass(frozen=True)
class Evidence:
    """What the stages found, as far as they went. A stage that refused the candidate leaves ``rejection``.

    ``plans`` and ``runs`` stand in the order in which they were made. ``instructions`` is None until a run was counted,
    ``timing`` unless the device can time. ``findings`` are the simulator's where hardware decides: they are told, and
    decide only in strict judging. ``notes`` are sentences about what could not be done. ``device`` describes the
    device, ``seeds`` are those of the inputs.
    """

    task: Task
    candidate: Candidate
    device: dict[str, Any]
    artifact: Artifact | None = None
    rejection: Rejection | None = None
    plans: tuple[LaunchPlan, ...] = ()
    runs: tuple[Run, ...] = ()
    instructions: InstructionReport | None = None
    timing: TimingReport | None = None
    findings: tuple[Hazard, ...] = ()
    notes: tuple[str, ...] = ()
    strict: bool = False
    seeds: tuple[int, ...] = ()
    stages_s: dict[str, float] = field(default_factory=dict[str, float])
    versions: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def built(self) -> Artifact:
        """The artifact; `ValueError` before the candidate was compiled."""
        if self.artifact is None:
            raise ValueError("the candidate has not been compiled yet")
        return self.artifact
