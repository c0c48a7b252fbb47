"""The outcome table: conditions in order, the first that holds decides."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from ptxbench.core import (
    FAULT_OUTCOMES,
    CorrectnessReport,
    Hazard,
    InstructionReport,
    LaunchPlan,
    Outcome,
    OutputReport,
    Rejection,
    Verdict,
)
from ptxbench.judge.evidence import Evidence, Run
from ptxbench.judge.gates import instruction_gate
from ptxbench.judge.integrity import min_time_ms

Condition = Callable[[Evidence], Rejection | None]


def decide(evidence: Evidence) -> Verdict:
    """The verdict on a candidate.

    `ValueError` where the evidence cannot carry one: nothing was refused, and yet there is no run, a run without
    reports, or no instruction report. That is a fault of the caller, not of the candidate.
    """
    found = refusal(evidence) or _accepted(evidence)
    artifact = evidence.artifact
    return Verdict(
        outcome=found.outcome,
        reason=found.reason,
        advice=found.advice,
        source_line=found.source_line,
        task=evidence.task.name,
        target=evidence.candidate.target,
        origin=evidence.candidate.origin,
        source_digest=evidence.candidate.digest,
        device=evidence.device,
        strict=evidence.strict,
        correctness=CorrectnessReport(workloads=tuple(run.workload_report() for run in evidence.runs)),
        instructions=evidence.instructions or InstructionReport(),
        hazards=merged_hazards((*(h for run in evidence.runs for h in run.observation.hazards), *evidence.findings)),
        remarks=(*found.remarks, *(artifact.remarks if artifact else ())),
        detail=(*_fault_detail(evidence.runs), *evidence.notes),
        timing=evidence.timing if found.outcome is Outcome.PASSED else None,
        plan_digest=joint_digest(evidence.plans),
        artifact_digest=artifact.digest if artifact else "",
        seeds=evidence.seeds,
        stages_s=evidence.stages_s,
        versions={**(artifact.versions if artifact else {}), **evidence.versions},
    )


def refusal(evidence: Evidence) -> Rejection | None:
    """The first condition that holds, as far as the evidence goes; None where nothing speaks against the candidate."""
    return next(filter(None, (condition(evidence) for condition in CONDITIONS)), None)


def merged_hazards(hazards: Iterable[Hazard]) -> tuple[Hazard, ...]:
    """Every distinct finding once, races first, with the occurrences added up."""
    merged: dict[tuple[str, ...], Hazard] = {}
    for hazard in hazards:
        key = (hazard.severity, hazard.kind, hazard.kernel, str(hazard.source_line), str(hazard.ptx_line))
        seen = merged[key].occurrences if key in merged else 0
        merged[key] = merged.get(key, hazard).model_copy(update={"occurrences": seen + hazard.occurrences})
    return tuple(sorted(merged.values(), key=lambda h: (h.severity != "race", h.kernel, h.source_line)))


def joint_digest(plans: tuple[LaunchPlan, ...]) -> str:
    """One digest for all plans: that of a single plan, the SHA-256 of all digests in order for several, or empty."""
    if len(plans) < 2:
        return "".join(plan.digest for plan in plans)
    return hashlib.sha256("".join(plan.digest for plan in plans).encode()).hexdigest()


def _refused(evidence: Evidence) -> Rejection | None:
    return evidence.rejection


def _faulted(outcome: Outcome) -> Condition:
    def condition(evidence: Evidence) -> Rejection | None:
        for run in evidence.runs:
            fault = run.observation.fault
            if fault and FAULT_OUTCOMES[fault.kind] is outcome:
                reason = f"{fault.message.rstrip('.')} ({run.where})."
                return Rejection(outcome=outcome, reason=reason, advice=fault.advice, source_line=fault.source_line)
        return None

    return condition


def _changed_inputs(evidence: Evidence) -> Rejection | None:
    for run in evidence.runs:
        if run.observation.changed_inputs:
            names = ", ".join(run.observation.changed_inputs)
            return Rejection(
                outcome=Outcome.INTEGRITY_VIOLATION,
                reason=f"The kernel changed its input {names} ({run.where}).",
                advice="Inputs are read-only; write to the outputs and the workspace only.",
            )
    return None


def _too_fast(evidence: Evidence) -> Rejection | None:
    if evidence.timing is None:
        return None
    sizes = evidence.task.of_tier("core")[0].sizes
    bound = min_time_ms(evidence.task, sizes, evidence.candidate.target)
    if evidence.timing.ms >= bound:
        return None
    return Rejection(
        outcome=Outcome.INTEGRITY_VIOLATION,
        reason=f"The measured {evidence.timing.ms:.4g} ms are below the hardware's bound of {bound:.4g} ms.",
        advice="The work was not done inside the timed region.",
    )


def _wrong_outputs(evidence: Evidence) -> Rejection | None:
    wrong = next((run for run in evidence.runs if not run.ok), None)
    if wrong is None:
        return None
    name, report = next((n, r) for n, r in wrong.reports.items() if not r.ok)
    same = [r for r in evidence.runs if (r.sizes, r.distribution) == (wrong.sizes, wrong.distribution)]
    right = [r for r in same if r.ok and r.schedule != wrong.schedule]
    advice = (
        f"It is right with {right[0].schedule}, so the kernel relies on an order that nothing enforces: "
        "look for a missing wait, fence or barrier." if right else ""
    )
    race = next((h for h in wrong.observation.hazards if h.severity == "race"), None)
    return Rejection(
        outcome=Outcome.WRONG_RESULT,
        reason=f"Output {name} is wrong {wrong.where}: {report.pattern}{_size_of_error(report)}.",
        advice=race.advice if race else advice,
        source_line=race.source_line if race else 0,
    )


def _size_of_error(report: OutputReport) -> str:
    if report.rms_ratio is None:
        return ""
    times = f"{report.rms_ratio:.3g}" if report.rms_ratio < 1e6 else "over a million"
    return f" (RMS error {times} times an honest kernel's)"


def _race(evidence: Evidence) -> Rejection | None:
    return _hazard(evidence, "race", "A race was demonstrated on the simulator")


def _broken_rule(evidence: Evidence) -> Rejection | None:
    if not evidence.strict:
        return None
    told = next(iter(evidence.findings), None)
    if told is not None:
        reason = f"The simulator found a {told.severity} (strict judging): {told.message}"
        return Rejection(
            outcome=Outcome.WRONG_RESULT, reason=reason, advice=told.advice, source_line=told.source_line
        )
    return _hazard(evidence, "rule", "A rule of the instruction set is broken (strict judging)")


def _hazard(evidence: Evidence, severity: str, lead: str) -> Rejection | None:
    for run in evidence.runs:
        for hazard in run.observation.hazards:
            if hazard.severity == severity:
                return Rejection(
                    outcome=Outcome.WRONG_RESULT,
                    reason=f"{lead}: {hazard.message.rstrip('.')} ({run.where}).",
                    advice=hazard.advice,
                    source_line=hazard.source_line,
                )
    return None


def _not_carried(evidence: Evidence) -> Rejection | None:
    return evidence.instructions and instruction_gate(evidence.instructions, evidence.candidate.target)


CONDITIONS: tuple[Condition, ...] = (
    _refused,
    _faulted(Outcome.LAUNCH_ERROR),
    _faulted(Outcome.TIMEOUT),
    _faulted(Outcome.INTEGRITY_VIOLATION),
    _changed_inputs,
    _too_fast,
    _wrong_outputs,
    _race,
    _broken_rule,
    _not_carried,
)


def _accepted(evidence: Evidence) -> Rejection:
    """The two good outcomes, in the same form as the bad ones."""
    if not evidence.runs or not all(run.reports for run in evidence.runs):
        raise ValueError("a candidate that nothing refused needs runs with judged outputs")
    if evidence.instructions is None:
        raise ValueError("a candidate that ran needs an instruction report before it can be judged")
    if evidence.timing is None:
        return Rejection(
            outcome=Outcome.CORRECT_UNTIMED,
            reason=f"Correct, and the target's matrix instruction carried the work; {_why_untimed(evidence)}.",
        )
    speedup = evidence.timing.speedup
    return Rejection(
        outcome=Outcome.PASSED,
        reason=(
            f"Correct and carried; {speedup.median:.3f} times the speed of {evidence.timing.baseline} "
            f"(95 % interval {speedup.low:.3f} to {speedup.high:.3f})."
        ),
    )


def _why_untimed(evidence: Evidence) -> str:
    return "it was not timed" if evidence.device.get("times") else "this device does not time"


def _fault_detail(runs: tuple[Run, ...]) -> tuple[str, ...]:
    return next((run.observation.fault.detail for run in runs if run.observation.fault), ())
