"""Verdicts as text for a terminal."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ptxbench.core import FamilyReport, Hazard, OutputReport, TimingReport, Verdict, WorkloadReport, sizes_text

WIDE = 140
"""Characters that a summary with its reasons in a column needs."""

SVG_WIDTH = 170


def style_of(verdict: Verdict) -> str:
    """Green for accepted, yellow for right but not carried, red for the rest."""
    if verdict.outcome.accepted:
        return "green"
    return "yellow" if verdict.outcome.value == "instruction_missing" else "red"


def worst_error(verdict: Verdict) -> float | None:
    """The largest RMS error ratio over all workloads and outputs (1 is honest); None if nothing was compared."""
    ratios = [
        output.rms_ratio
        for workload in verdict.correctness.workloads
        for output in workload.outputs.values()
        if output.rms_ratio is not None
    ]
    return max(ratios, default=None)


def matrix_report(verdict: Verdict) -> FamilyReport | None:
    """The four numbers of the target's own matrix instruction."""
    return verdict.instructions.families.get(verdict.target.sheet.matrix_family)


def number(value: float | None) -> str:
    """A figure for a narrow column; an en dash where there is none."""
    if value is None:
        return "–"
    if abs(value) >= 1e6:
        return "> 10⁶"
    if abs(value) >= 1000:
        return f"{value:.3g}"
    return f"{value:.2f}"


def four_numbers(report: FamilyReport | None) -> str:
    """``claimed/compiled/executed/carried``."""
    if report is None:
        return "–"
    return f"{report.claimed}/{report.compiled}/{report.executed}/{number(report.carried)}"


def summary(verdicts: Sequence[Verdict], width: int) -> RenderableType:
    """One row per candidate: outcome, error, the four numbers of the matrix family, findings; and the reason.

    Where ``width`` (in characters) leaves no room for a column of reasons, they follow below the table.
    """
    wide = width >= WIDE
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("candidate", overflow="fold")
    table.add_column("outcome", no_wrap=True)
    table.add_column("error", justify="right", no_wrap=True)
    table.add_column("claimed/compiled/\nexecuted/carried", justify="right", no_wrap=True)
    if wide:
        table.add_column("target", no_wrap=True)
        table.add_column("found", no_wrap=True)
        table.add_column("reason", overflow="fold", ratio=1)
    for verdict in verdicts:
        cells: list[RenderableType] = [
            Text(_name(verdict)),
            Text(verdict.outcome.value, style=style_of(verdict)),
            number(worst_error(verdict)),
            four_numbers(matrix_report(verdict)),
        ]
        if wide:
            cells += [verdict.target.value, _findings(verdict) or "–", Text(verdict.reason)]
        table.add_row(*cells)
    return table if wide else Group(table, Text(), *(_reason(verdict) for verdict in verdicts))


def summary_svg(verdicts: Sequence[Verdict], title: str) -> str:
    """The summary as an SVG picture that refers to nothing outside itself."""
    console = Console(record=True, width=SVG_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(summary(verdicts, SVG_WIDTH))
    picture = console.export_svg(title=title, unique_id="ptxbench")
    # The library names web fonts and itself; a picture in a document must not load anything.
    return re.sub(r"@font-face\s*\{[^}]*\}\s*|<!--.*?-->\s*", "", picture, flags=re.DOTALL)


def _name(verdict: Verdict) -> str:
    return verdict.origin or verdict.source_digest[:12]


def _findings(verdict: Verdict) -> str:
    """How many findings of each severity, such as ``2 rule``."""
    counts = Counter(hazard.severity for hazard in verdict.hazards)
    return ", ".join(f"{count} {severity}" for severity, count in sorted(counts.items()))


def _reason(verdict: Verdict) -> Text:
    found = f" Findings: {_findings(verdict)}." if verdict.hazards else ""
    return Text.assemble((f"{_name(verdict)}: ", "bold"), verdict.reason, found)


def verdict_view(verdict: Verdict) -> RenderableType:
    """One verdict in full: the outcome, then what each tier found."""
    parts: list[RenderableType] = [
        Text.assemble(
            (verdict.outcome.value, f"bold {style_of(verdict)}"), f"  {verdict.task} on {verdict.target.value}"
        ),
        Text(verdict.reason),
    ]
    if verdict.advice:
        parts.append(Text(verdict.advice, style="italic"))
    parts += [Text(f"  {line}") for line in verdict.detail]
    parts += [Text(f"  kernel.cu:{remark.line}: {remark.severity}: {remark.message}") for remark in verdict.remarks]
    if verdict.correctness.workloads:
        parts.append(_correctness_table(verdict))
    if verdict.instructions.families:
        parts.append(_instruction_table(verdict))
    parts += [_hazard_text(hazard) for hazard in verdict.hazards]
    gates = verdict.instructions
    if gates.other_math_share is not None:
        parts.append(Text(f"other arithmetic: {gates.other_math_share:.1%} of the task's FLOPs"))
    if gates.perturbation_followed is not None:
        parts.append(Text(f"blocks that followed the knock-out: {gates.perturbation_followed:.1%}"))
    if verdict.timing:
        parts += _timing_parts(verdict.timing)
    return Group(*parts)


def _timing_parts(timing: TimingReport) -> list[RenderableType]:
    """The speedup, then every library that was timed and why others were not."""
    interval = f"[{timing.speedup.low:.3f}, {timing.speedup.high:.3f}]"
    table = Table(pad_edge=False)
    table.add_column("timed", overflow="fold")
    table.add_column("version", overflow="fold")
    for name in ("ms", "TFLOP/s"):
        table.add_column(name, justify="right")
    table.add_row("this kernel", "", f"{timing.ms:.4f}", f"{timing.tflops:.0f}")
    for library in timing.libraries:
        name = f"{library.name} (baseline)" if library.name == timing.baseline else library.name
        table.add_row(name, library.version, f"{library.ms:.4f}", f"{library.tflops:.0f}")
    return [
        Text(
            f"{timing.speedup.median:.3f} × {timing.baseline} {interval}, {timing.speed_of_light:.0%} of speed of light"
        ),
        table,
        *(Text(f"not timed: {name}: {why}", style="yellow") for name, why in timing.absent.items()),
    ]


def _correctness_table(verdict: Verdict) -> Table:
    """One row per workload and output: the worst of its replays, or the first that is wrong."""
    table = Table(pad_edge=False)
    for name in ("sizes", "tier", "output"):
        table.add_column(name)
    for name in ("replays", "error", "worst block", "largest"):
        table.add_column(name, justify="right")
    table.add_column("where", overflow="fold")
    for (sizes, tier, name), runs in _by_workload(verdict).items():
        wrong = [(run, output) for run, output in runs if not output.ok]
        run, output = wrong[0] if wrong else max(runs, key=lambda pair: pair[1].rms_ratio or 0.0)
        place = f"{output.pattern} ({run.distribution} inputs, {run.schedule})" if wrong else ""
        table.add_row(
            sizes,
            tier,
            name,
            f"{len(runs) - len(wrong)}/{len(runs)} right",
            Text(number(output.rms_ratio), style="red" if wrong else "green"),
            number(output.worst_block_ratio),
            number(output.max_ratio),
            place,
        )
    return table


def _by_workload(verdict: Verdict) -> dict[tuple[str, str, str], list[tuple[WorkloadReport, OutputReport]]]:
    groups: dict[tuple[str, str, str], list[tuple[WorkloadReport, OutputReport]]] = {}
    for run in verdict.correctness.workloads:
        sizes = sizes_text(run.sizes, " ")
        for name, output in run.outputs.items():
            groups.setdefault((sizes, run.tier, name), []).append((run, output))
    return groups


def _instruction_table(verdict: Verdict) -> Table:
    table = Table(pad_edge=False)
    table.add_column("family")
    for name in ("claimed", "compiled", "executed", "carried"):
        table.add_column(name, justify="right")
    for name, family in verdict.instructions.families.items():
        table.add_row(name, str(family.claimed), str(family.compiled), str(family.executed), number(family.carried))
    return table


def _hazard_text(hazard: Hazard) -> Text:
    style = "red" if hazard.severity == "race" else "yellow"
    place = f"kernel.cu:{hazard.source_line}: " if hazard.source_line else ""
    times = f" ({hazard.occurrences} times)" if hazard.occurrences > 1 else ""
    return Text.assemble((f"{hazard.severity} ", style), f"{place}{hazard.message}{times} {hazard.advice}")
