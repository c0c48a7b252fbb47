"""Runs as text for a terminal: one run, several compared, and published results beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ptxbench.report.runs import Run
from ptxbench.report.runs_comparison import Comparison
from ptxbench.report.runs_measures import ALL, Row
from ptxbench.report.runs_published import Published

SHARES = ("correct", "executed", "clean", "pass", "fast")
PUBLISHED_TURNS = (1, 4, 8)
NONE = "–"

INTERVALS = (
    "Brackets hold 95 % intervals. They span resampled tasks and independent trajectories; with fewer than about "
    "twenty tasks they speak of these tasks rather than of others like them."
)


def run_view(run: Run, rows: Sequence[Row]) -> RenderableType:
    """One run: what it was, what to know, its numbers, the tasks, and what became of the turns."""
    heading = _heading([run], run.notes())
    if not run.trajectories:
        return heading
    whole = _table("all tasks", "value", "trajectories")
    for row in rows:
        if row.task == ALL:
            whole.add_row(row.label, cell(row), f"{row.count}")
    return _spaced(heading, whole, _by_task(run, rows), _outcomes(run), Text(INTERVALS))


def comparison_view(comparison: Comparison) -> RenderableType:
    """Several runs: their settings, what else differs, numbers side by side, and the differences with their tests."""
    names = [run.name for run in comparison.runs]
    overall = [row for row in comparison.rows if row.task == ALL]
    executed = f"executed@{comparison.turns}"
    own = [row for row in comparison.rows if row.task != ALL and row.label == executed]
    return _spaced(
        _heading(comparison.runs, comparison.notes),
        _beside("all tasks", names, overall, lambda row: row.label),
        _beside(executed, names, own, lambda row: row.task),
        _differences(comparison.differences),
        Text(f"{INTERVALS} p is exact: it permutes trajectories between two runs within each task. The last column "
             f"corrects it (Holm) for the {len(comparison.differences)} tests of this table, not for tables that were "
             "tried and left out."),
    )  # fmt: skip


def published_view(published: Published, runs: Sequence[Run], rows: Sequence[Row]) -> RenderableType:
    """The runs' rows and others' published ones for the same target side by side, and in what the latter differ."""
    both = [*rows, *published.rows(runs[0].record.target)]
    labels = [f"{measure}@{turn}" for measure in ("correct", "executed") for turn in PUBLISHED_TURNS]
    shares = {(row.run, row.label): row for row in both if row.task == ALL and row.label in labels}
    table = _table("run or model", *labels)
    for name in dict.fromkeys(run for run, _ in shares):
        table.add_row(Text(name), *(cell(shares.get((name, label)), spread=False) for label in labels))
    best = [row for row in both if row.measure == "best_speedup"]
    speeds = _beside("best speedup", list(dict.fromkeys(row.run for row in best)), best, lambda row: row.task)
    outcomes = ", ".join(f"{share:g} % {name}" for name, share in published.outcomes.items())
    said = (
        f"What is marked “published” was measured by others ({published.source}: {published.runs} runs, "
        f"{published.turns:,} turns, of which {outcomes}), and differently:"
    )
    listed = [Text(f"  – {difference}") for difference in published.differences]
    return Group(Text(), _spaced(table, speeds, Text(said, "bold")), *listed)


def cell(row: Row | None, spread: bool = True) -> str:
    """Value, interval and unit, such as ``32 [21, 44] %``; an en dash where nothing is known."""
    if row is None or row.value is None:
        return NONE
    high = "∞" if row.high is None else number(row, row.high)
    around = f" [{number(row, row.low)}, {high}]" if spread and row.low is not None else ""
    return f"{number(row, row.value)}{around}{unit(row)}"


def number(row: Row, value: float) -> str:
    """A value of a row in its unit, which is percent for shares."""
    if row.measure in SHARES:
        return f"{100 * value:+.0f}" if row.reference else f"{100 * value:.0f}"
    if row.measure == "tokens_per_solved":
        return f"{value:,.0f}"
    if row.measure == "dollars_per_solved":
        return f"${value:,.2f}"
    return f"{value:.3f}"


def unit(row: Row) -> str:
    """What stands behind the numbers of a row."""
    if row.measure in SHARES:
        return " points" if row.reference else " %"
    return ""


def _spaced(*parts: RenderableType) -> RenderableType:
    """One below the other with an empty line between."""
    return Group(parts[0], *(line for part in parts[1:] for line in (Text(), part)))


def _heading(runs: Sequence[Run], notes: Iterable[str]) -> RenderableType:
    return Group(*(_about(run) for run in runs), *(Text(note, "yellow") for note in notes))


def _about(run: Run) -> Text:
    record = run.record
    about = f"  {record.model}, {record.mode.value}, condition {record.condition}"
    about += "".join(f" without {part}" for part in record.without)
    about += f", {record.epochs} × {len(record.tasks)} trajectories of up to {record.turns} turns"
    again = f", judged again from {record.rejudged}" if record.rejudged else ""
    return Text.assemble((run.name, "bold"), f"{about}, {record.target.value} on {run.device}{again}")


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(Text(name), justify="right", overflow="fold")
    return table


def _by_task(run: Run, rows: Sequence[Row]) -> Table:
    turns = run.record.turns
    labels = [f"correct@{turns}", f"executed@{turns}", f"clean@{turns}", "speedup q0.5", "best speedup"]
    cells = {(row.task, row.label): row for row in rows if row.task != ALL}
    shown = [label for label in labels if any(place == label for _, place in cells)]
    table = _table("task", "trajectories", *shown)
    for task in run.record.tasks:
        found = [cells.get((task, label)) for label in shown]
        count = next((f"{row.count}" for row in found if row), NONE)
        table.add_row(task, count, *(cell(row) for row in found))
    return table


def _beside(title: str, names: Sequence[str], rows: Sequence[Row], key: Callable[[Row], str]) -> Table:
    """One line per key, one column per run."""
    cells = {(key(row), row.run): row for row in rows}
    table = _table(title, *names)
    for line in dict.fromkeys(key(row) for row in rows):
        table.add_row(line, *(cell(cells.get((line, name))) for name in names))
    return table


def _differences(rows: Sequence[Row]) -> Table:
    table = _table("difference", "measure", "value", "p", "p, corrected")
    for row in rows:
        tests = (NONE if p is None else f"{p:.2g}" for p in (row.p, row.p_adjusted))
        table.add_row(Text(f"{row.run} − {row.reference}"), row.label, cell(row), *tests)
    return table


def _outcomes(run: Run) -> Table:
    table = _table("what became of the turns", "turns", "share")
    total = sum(run.outcomes.values())
    for name, count in run.outcomes.items():
        table.add_row(name, f"{count}", f"{count / total:.0%}")
    return table
