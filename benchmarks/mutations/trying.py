"""Tries one mutant: the schedules of a check in turn, until something is noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.mutations.mutants import REPEAT, Mutant, mutants
from ptxbench.check import Check, Contents, Finding, check_plan
from ptxbench.check.buffers import compare
from ptxbench.core import Artifact, LaunchPlan, RunOptions, Schedule, Task, UnsupportedError, Workload, make_candidate
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import SCHEDULES, LocalEvaluator
from ptxbench.simulator.ptx import emit, parse
from ptxbench.solutions import Solution
from ptxbench.tasks import get_task, make_problem

TASK = "gemm_n7168_k5120"
PERSISTENT = (
    "gemm/sm_90a/06_persistent", "gemm/sm_100a/02_persistent", "attention/sm_90a/forward_02_warp_specialised",
)  # fmt: skip
"""Kernels whose CTAs take one tile after another."""
LARGER = Workload(tier="small", sizes={"M": 256, "N": 1024, "K": 512})
"""Sizes of a product at which one CTA, or pair, has several tiles, each of more slices than there are stages."""
LONGER = Workload(tier="small", sizes={"B": 1, "H": 1, "S": 384, "D": 128})
"""A further size of attention: an odd number of blocks, and more of them than there are stages."""
DISTRIBUTIONS = ("normal", "large_logits")
"""Inputs, of those that a verdict draws; large logits let attention rescale its sums."""
STEP_LIMIT = 2_000_000
TIME_LIMIT_S = 60.0


@dataclass(frozen=True)
class Subject:
    """A kernel to be mutated, with its plan, its inputs and its results. ``known`` are findings that it shows without
    mutation, for which it is not to blame: how many of a kind, at most. ``others`` is the same kernel on further inputs
    and sizes.
    """

    file: str
    artifact: Artifact
    plan: LaunchPlan
    contents: dict[str, Contents]
    results: dict[str, np.ndarray]
    known: Mapping[str, int] = field(default_factory=lambda: dict[str, int]())
    others: tuple[Subject, ...] = ()

    def mutants(self) -> Iterator[Mutant]:
        """All mutants of the kernels that the plan launches."""
        module = parse(self.artifact.ptx)
        for kernel in self.plan.kernels():
            yield from mutants(module, kernel)

    def draw(self, most: int, seed: int) -> list[Mutant]:
        """``most`` of the mutants, in their order; all if there are no more."""
        every = list(self.mutants())
        if len(every) <= most:
            return every
        chosen = np.random.default_rng((seed, len(every))).choice(len(every), most, replace=False)
        return [every[index] for index in sorted(chosen)]


@dataclass(frozen=True)
class Outcome:
    """What noticed a mutant: ``verdict`` (a fault, another result or a race), ``hazard`` (a rule or an inferred race),
    or nothing (``survived``).
    """

    noticed: str
    kind: str = ""


def subject(evaluator: LocalEvaluator, row: Solution) -> Subject:
    """A bundled kernel at its task's first small size; of attention, at `LONGER` too. A persistent one runs on one
    cluster, and at the first size as it is launched, too: then every CTA has one tile, or few.
    """
    task = get_task(row.task)
    candidate = make_candidate(row.source(), task=row.task, target=row.target, origin=row.file)
    artifact = evaluator.compile(candidate)
    persistent = any(row.file.startswith(name) for name in PERSISTENT)
    small = LARGER if persistent and row.task == TASK else task.of_tier("small")[0]
    sizes = [small, LONGER] if "S" in small.sizes else [small]
    plans = evaluator.record(artifact, task, sizes) if isinstance(artifact, Artifact) else artifact
    if not isinstance(artifact, Artifact) or not isinstance(plans, tuple):
        raise TypeError(f"{row.file} is refused: {plans}")
    chosen = [_on_one_cluster(plan) for plan in plans] if persistent else plans
    normal, *further = (name for name in task.distributions if name in DISTRIBUTIONS)
    runs = [(chosen[0], small, normal), *((chosen[0], small, name) for name in further)]
    runs += [(plan, size, normal) for plan, size in zip(chosen[1:], sizes[1:], strict=True)]
    runs += [(plans[0], small, normal)] if persistent else []
    first, *others = (
        clean(Subject(row.file, artifact, plan, _contents(task, size, name), {})) for plan, size, name in runs
    )
    return replace(first, others=tuple(others))


def _contents(task: Task, workload: Workload, distribution: str) -> dict[str, Contents]:
    problem = make_problem(task, workload, distribution, seed=1)
    return {a.name: Contents(a.dtype) for a in task.outputs} | {
        a.name: Contents(a.dtype, problem.inputs[a.name].tobytes()) for a in task.inputs
    }


def clean(subject: Subject) -> Subject:
    """The subject with the results of the kernel as it is. Raises `ValueError` if any schedule shows a finding."""
    results: dict[str, np.ndarray] = {}
    for schedule in SCHEDULES:
        outputs, findings = run(subject.artifact, subject.plan, subject.contents, schedule, races=True)
        alarms = news(subject, findings)
        if alarms:
            raise ValueError(f"{subject.file} is not clean under {schedule.label}: {alarms[0].message}")
        results = results or outputs
    return replace(subject, results=results)


def news(subject: Subject, findings: Iterable[Finding]) -> list[Finding]:
    """The findings of the kinds of which there are more than are known."""
    found = list(findings)
    count = Counter(finding.kind for finding in found)
    return [finding for finding in found if count[finding.kind] > subject.known.get(finding.kind, 0)]


def _on_one_cluster(plan: LaunchPlan) -> LaunchPlan:
    """The plan with one cluster, which then has several tiles: the target's many SMs would have one each."""
    nodes = [node.model_copy(update={"grid": node.cluster}) if node.op == "kernel" else node for node in plan.nodes]
    return plan.model_copy(update={"nodes": tuple(nodes)})


def run(
    artifact: Artifact, plan: LaunchPlan, contents: Mapping[str, Contents], schedule: Schedule, *, races: bool
) -> tuple[dict[str, np.ndarray], tuple[Finding, ...]]:
    """The outputs of one replay, and what it showed."""
    device = Keeping()
    check = Check(device, (schedule,), races, STEP_LIMIT, TIME_LIMIT_S, lambda stage: None)
    checked = check_plan(check, artifact, plan, contents)
    return device.outputs, checked.findings


class Keeping(SimulatorDevice):
    """The simulator, which keeps the outputs of its last run."""

    def run(self, artifact: Artifact, plan: LaunchPlan, buffers: Mapping[str, memoryview], options: RunOptions):
        seen = super().run(artifact, plan, buffers, options)
        names = {buffer.name for buffer in plan.buffers if buffer.role == "output"}
        self.outputs = {name: np.frombuffer(view, np.uint8).copy() for name, view in buffers.items() if name in names}
        return seen


def attempt(subject: Subject, mutant: Mutant, schedules: Sequence[Schedule] = SCHEDULES) -> Outcome:
    """Runs a mutant on one kind of inputs after another and under one schedule after another, the first with the
    happens-before check, until a verdict notices it, or a hazard the one kind of inputs. A repeat runs on the first
    kind only.
    """
    outcome = Outcome("survived")
    for each in (subject, *(() if mutant.operation == REPEAT else subject.others)):
        outcome = _attempt(each, mutant, schedules)
        if outcome.noticed != "survived":
            break
    return outcome


def _attempt(subject: Subject, mutant: Mutant, schedules: Sequence[Schedule]) -> Outcome:
    text = emit(mutant.module)
    digest = f"{subject.artifact.digest} {mutant.kernel} {mutant.number}"
    artifact = subject.artifact.model_copy(update={"ptx": text, "digest": digest})
    weakest = Outcome("survived")
    for number, schedule in enumerate(schedules):
        try:
            outputs, findings = run(artifact, subject.plan, subject.contents, schedule, races=number == 0)
        except UnsupportedError:
            return Outcome("verdict", "refused")
        findings = news(subject, findings)
        grave = next((finding.kind for finding in findings if finding.severity != "rule"), "")
        if not grave:
            grave = next(("wrong_result" for name, right in subject.results.items()
                          if compare(right, outputs[name], subject.contents[name].element)), "")  # fmt: skip
        if grave:
            return Outcome("verdict", grave)
        if findings and weakest.noticed == "survived":
            weakest = Outcome("hazard", findings[0].kind)
    return weakest


__all__ = ["Outcome", "Subject", "attempt", "clean", "news", "run", "subject"]
