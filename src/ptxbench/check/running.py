"""Runs a plan under many schedules on drawn inputs and collects what each showed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ptxbench.check.buffers import Contents, compare, make_buffers
from ptxbench.check.findings import Finding, Report, merged, of_fault, of_hazard, of_rejection
from ptxbench.core import Artifact, Device, LaunchPlan, Progress, Rejection, RunOptions, Schedule

PLAIN = Schedule()


@dataclass(frozen=True)
class Check:
    """How a plan is checked: each schedule once, the happens-before check under the first if ``races``."""

    device: Device
    schedules: Sequence[Schedule]
    races: bool
    step_limit: int
    time_limit_s: float
    progress: Progress

    def options(self, schedule: Schedule) -> RunOptions:
        """The options of one replay."""
        return RunOptions(
            schedule=schedule, races=self.races and schedule == self.schedules[0], step_limit=self.step_limit,
            time_limit_s=self.time_limit_s,
        )  # fmt: skip


@dataclass(frozen=True)
class Checked:
    """What the replays of one plan showed."""

    findings: tuple[Finding, ...]
    runs: int
    instructions: int


def check_plan(
    check: Check, artifact: Artifact, plan: LaunchPlan, contents: Mapping[str, Contents],
    sizes: Mapping[str, int] | None = None,
) -> Checked:  # fmt: skip
    """Replays ``plan`` under every schedule, up to the first that faults, on the same inputs.

    ``contents`` says what each buffer of the plan holds at the start and how its elements compare; buffers that it does
    not name are workspace. Findings tell ``sizes``, or those of the plan. Results that differ between schedules are a
    race, unless the differences are as small as a change of the order of sums makes them.
    """
    shown = dict(plan.sizes if sizes is None else sizes)
    findings: list[Finding] = []
    instructions = runs = 0
    first: dict[str, np.ndarray] = {}
    for number, schedule in enumerate(check.schedules, 1):
        check.progress(f"simulating {number} of {len(check.schedules)} schedules ({schedule.label})")
        arrays = make_buffers(plan, contents)
        views = {name: array.data for name, array in arrays.items()}
        seen = check.device.run(artifact, plan, views, check.options(schedule))
        runs, instructions = runs + 1, instructions + seen.warp_instructions
        findings += [of_hazard(hazard, shown, schedule) for hazard in seen.hazards]
        if seen.fault is not None:
            findings.append(of_fault(seen.fault, shown, schedule))
            break
        outputs = {buffer.name: arrays[buffer.name] for buffer in plan.buffers if buffer.role == "output"}
        differences = _differences(first, outputs, contents)
        findings += [_dependence(*found, shown, check.schedules[0], schedule) for found in differences]
        first = first or outputs
    return Checked(merged(findings), runs, instructions)


def _differences(
    first: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], contents: Mapping[str, Contents]
) -> Iterator[tuple[str, str]]:
    """Name and difference of every output that is not as it was."""
    for name, before in first.items():
        difference = compare(before, outputs[name], contents[name].element)
        if difference:
            yield name, difference


def _dependence(name: str, difference: str, sizes: dict[str, int], first: Schedule, schedule: Schedule) -> Finding:
    return Finding(
        severity="race", kind="schedule_dependent_result",
        message=f"Output {name} depends on the order of work: {difference} between {first.label} and {schedule.label}.",
        advice="Look for a missing wait, fence or barrier: the kernel relies on an order that nothing enforces.",
        sizes=sizes, under=(schedule.label,),
    )  # fmt: skip


def refused(file: str, target: str, rejection: Rejection) -> Report:
    """The report on a source that a stage refused."""
    return Report(file=file, target=target, findings=(of_rejection(rejection),))


def report_of(file: str, target: str, checked: Iterable[Checked], *, races: bool) -> Report:
    """One report of the checks of one file at several sizes."""
    parts = list(checked)
    return Report(
        file=file, target=target, findings=merged(f for part in parts for f in part.findings),
        runs=sum(part.runs for part in parts), instructions=sum(part.instructions for part in parts), races=races,
    )  # fmt: skip
