"""What the simulator adds to a verdict that hardware decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ptxbench.core import Device, FaultKind, Hazard, InstructionReport, Tier, UnsupportedError
from ptxbench.evaluate.replay import replay_all, weigh
from ptxbench.evaluate.trials import limited, simulator_trials
from ptxbench.judge import Evidence, Run, with_simulated


@dataclass(frozen=True)
class Simulated:
    """Findings and the instruction report of a simulation; ``note`` says why there is none."""

    findings: tuple[Hazard, ...] = ()
    instructions: InstructionReport | None = None
    note: str = ""

    def told(self, evidence: Evidence) -> Evidence:
        """``evidence`` with what the simulator found; the knock-out, which hardware cannot do, joins its counts."""
        report = with_simulated(evidence.instructions, self.instructions, evidence.candidate.target)
        notes = (*evidence.notes, self.note) if self.note else evidence.notes
        return replace(evidence, findings=self.findings, instructions=report, notes=notes)


STEP_LIMIT = 5_000_000
"""Work of one simulation beside hardware; honest kernels need 2 million at most at these sizes."""

Simulate = Callable[[Evidence, Sequence[Tier]], Simulated]
"""Simulates what a candidate's evidence (artifact, plans, seed) asks for."""


def simulate(simulator: Device, evidence: Evidence, tiers: Sequence[Tier], *, threads: int) -> Simulated:
    """What the small tier shows on the simulator, if it is among ``tiers``."""
    (seed,), task = evidence.seeds, evidence.task
    small = task.of_tier("small")
    if "small" not in tiers:
        return Simulated()
    plans = tuple(plan for plan in evidence.plans if any(plan.sizes == workload.sizes for workload in small))
    trials = [limited(trial, STEP_LIMIT) for trial in simulator_trials(task, ("small",), seed)]
    try:
        replays = replay_all(simulator, evidence.built, plans, task, trials, threads)
    except UnsupportedError as error:
        return Simulated(note=f"Not simulated, so hazards are unknown: {error}")
    weighed = weigh(replace(evidence, plans=plans, runs=(), instructions=None), replays)
    hazards = [hazard for run in weighed.runs for hazard in run.observation.hazards]
    if any(run.observation.fault and run.observation.fault.kind is FaultKind.TIME_LIMIT for run in weighed.runs):
        note = f"Not simulated to the end (over {STEP_LIMIT:,} warp instructions), so hazards may have been missed."
        return Simulated(tuple(hazards), note=note)
    return Simulated((*hazards, *_failures(weighed.runs)), weighed.instructions)


def _failures(runs: Sequence[Run]) -> Iterator[Hazard]:
    """Faults and wrong outputs as findings."""
    for run in runs:
        fault = run.observation.fault
        if fault is not None:
            yield Hazard(
                severity="race", kind=f"simulated_{fault.kind}", message=f"{fault.message.rstrip('.')} ({run.where}).",
                advice=fault.advice, kernel=fault.kernel, source_line=fault.source_line, ptx_line=fault.ptx_line,
            )
        for name, report in run.reports.items():
            if not report.ok:
                yield Hazard(
                    severity="race", kind="simulated_wrong_result",
                    message=f"Output {name} is wrong on the simulator {run.where}{_pattern(report.pattern)}.",
                    advice="If it is right on hardware, it is so by chance: look for a missing wait, fence or barrier.",
                )


def _pattern(pattern: str) -> str:
    return f": {pattern}" if pattern else ""
