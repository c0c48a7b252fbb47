"""The commands that read runs: `ptxbench show` and `ptxbench compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ptxbench.cli.console import emit
from ptxbench.cli.display import show
from ptxbench.core import UsageError
from ptxbench.report import (
    Row,
    Run,
    as_csv,
    compare,
    comparison_view,
    measures,
    published,
    published_view,
    read_run,
    run_view,
)

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", show_default=False)]
RunPaths = Annotated[list[Path], typer.Argument(metavar="RUN RUN", help="The folders of runs.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print the numbers as CSV, one per line.")]
Others = Annotated[bool, typer.Option("--published", help="Add published results of others for the same target.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the program."""
    app.command("show")(show_command)
    app.command("compare")(compare_command)


def show_command(run: RunPath, others: Others = False, as_json: Json = False, csv: Csv = False) -> None:
    """Show one run: its numbers with their intervals, task by task, and what became of its turns."""
    one_format(as_json, csv)
    shown = read_run(run)
    rows = measures(shown)
    if csv:
        emit(as_csv([*rows, *others_rows(shown, others)]))
    elif as_json:
        emit_json([shown], list(shown.notes()), [*rows, *others_rows(shown, others)], others)
    else:
        show(run_view(shown, rows))
        if others:
            show(published_view(published(), [shown], rows))


def compare_command(runs: RunPaths, others: Others = False, as_json: Json = False, csv: Csv = False) -> None:
    """Compare runs on the trajectories that all of them have; the first is the one compared with.

    Runs that were judged differently (target, device, tiers, strictness) are refused; whatever else differs is said.
    """
    one_format(as_json, csv)
    if len(runs) < 2:
        raise UsageError("a comparison needs two runs or more; `ptxbench show` is for one")
    found = compare([read_run(path) for path in runs])
    rows = [*found.rows, *found.differences, *others_rows(found.runs[0], others)]
    if csv:
        emit(as_csv(rows))
    elif as_json:
        emit_json(list(found.runs), list(found.notes), rows, others)
    else:
        show(comparison_view(found))
        if others:
            show(published_view(published(), found.runs, found.rows))


def one_format(as_json: bool, csv: bool) -> None:
    """`UsageError` if both are asked for."""
    if as_json and csv:
        raise UsageError("--json and --csv exclude each other; give one of them")


def others_rows(run: Run, wanted: bool) -> tuple[Row, ...]:
    """Published rows for the run's target, if they are wanted."""
    return published().rows(run.record.target) if wanted else ()


def emit_json(runs: list[Run], notes: list[str], rows: list[Row], others: bool) -> None:
    """Prints one object: the runs' records, what to know of them, and every number as a row."""
    payload: dict[str, Any] = {
        "schema": 1,
        "runs": [
            {"record": run.record.model_dump(mode="json"), "missing": run.missing, "outcomes": run.outcomes}
            for run in runs
        ],
        "notes": notes,
        "rows": [row.model_dump(mode="json") for row in rows],
    }
    if others:
        payload["published"] = published().model_dump(mode="json", include={"source", "differences"})
    emit(json.dumps(payload, indent=2))
