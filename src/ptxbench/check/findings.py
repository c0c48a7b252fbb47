"""What a check found, as records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ptxbench.core import Fault, Hazard, Record, Rejection, Schedule

Severity = Literal["error", "race", "rule"]


class Finding(Record):
    """One thing that is wrong.

    ``error``: the source is refused or the run stopped; ``race``: the result depends on timing or was undefined;
    ``rule``: a rule of the instruction set is broken, or the happens-before check infers a race. ``kind`` is a stable
    name, ``under`` the schedules that showed it, ``detail`` further lines (who waits in a deadlock, the compiler's
    words). Lines are 1-based, 0 where unknown.
    """

    severity: Severity
    kind: str
    message: str
    advice: str = ""
    kernel: str = ""
    source_line: int = 0
    ptx_line: int = 0
    occurrences: int = 1
    sizes: dict[str, int] = {}
    under: tuple[str, ...] = ()
    detail: tuple[str, ...] = ()


class Report(Record):
    """The findings on one file, the gravest first. ``runs`` counts replays, ``instructions`` executed warp
    instructions.
    """

    schema_version: Literal[1] = 1
    file: str
    target: str
    findings: tuple[Finding, ...] = ()
    runs: int = 0
    instructions: int = 0
    races: bool = False
    seconds: float = 0.0


def of_rejection(rejection: Rejection) -> Finding:
    """A stage refused the source."""
    detail = tuple(f"line {remark.line}: {remark.severity}: {remark.message}" for remark in rejection.remarks)
    return Finding(
        severity="error", kind=rejection.outcome.value, message=rejection.reason, advice=rejection.advice,
        source_line=rejection.source_line, detail=detail,
    )  # fmt: skip


def of_fault(fault: Fault, sizes: dict[str, int], schedule: Schedule) -> Finding:
    """A run stopped."""
    return Finding(
        severity="error", kind=fault.kind.value, message=fault.message, advice=fault.advice, kernel=fault.kernel,
        source_line=fault.source_line, ptx_line=fault.ptx_line, sizes=sizes, under=(schedule.label,),
        detail=fault.detail,
    )  # fmt: skip


def of_hazard(hazard: Hazard, sizes: dict[str, int], schedule: Schedule) -> Finding:
    """A run went on after a synchronisation fault."""
    return Finding(
        severity=hazard.severity, kind=hazard.kind, message=hazard.message, advice=hazard.advice, kernel=hazard.kernel,
        source_line=hazard.source_line, ptx_line=hazard.ptx_line, occurrences=hazard.occurrences, sizes=sizes,
        under=(schedule.label,),
    )  # fmt: skip


_ORDER: dict[Severity, int] = {"error": 0, "race": 1, "rule": 2}


def merged(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each finding once for its kind and place, with the schedules of all its occurrences."""
    known: dict[tuple[str, str, int, int], Finding] = {}
    for finding in findings:
        key = (finding.kind, finding.kernel, finding.source_line, 0 if finding.source_line else finding.ptx_line)
        seen = known.get(key)
        if seen is None:
            known[key] = finding
            continue
        under = tuple(dict.fromkeys((*seen.under, *finding.under)))
        known[key] = seen.model_copy(
            update={"under": under, "occurrences": max(seen.occurrences, finding.occurrences)}
        )
    return tuple(sorted(known.values(), key=lambda f: (_ORDER[f.severity], f.kernel, f.source_line, f.ptx_line)))
