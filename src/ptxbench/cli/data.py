"""The commands that make data sets: `ptxbench data build` and `ptxbench data report`."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ptxbench.adapt import (
    BuildRecord,
    Lesson,
    Recipe,
    RecordedFirst,
    build,
    check_parquet,
    load_recipe,
    read_build,
    read_rows,
    read_verdicts,
    report_page,
    rows_digest,
    write_data_set,
)
from ptxbench.cli.arguments import parse_device
from ptxbench.cli.console import complain, emit
from ptxbench.cli.display import show
from ptxbench.cli.gpu import judging, uses_gpu
from ptxbench.cli.machine import err, ready_evaluator, storing
from ptxbench.core import UsageError
from ptxbench.evaluate import LocalEvaluator
from ptxbench.report import batch_display
from ptxbench.runners import Pace, Question, ask, check_inspect
from ptxbench.solutions import include_dir
from ptxbench.store import write_atomically

SHORT = 1
"""The exit code of a data set that lacks rows which its recipe asks for."""

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe (TOML).", show_default=False)]
DataPath = Annotated[Path, typer.Argument(metavar="DATA", help="The folder of a data set.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the program."""
    group = typer.Typer(help="Make and describe data sets for adapting models.", no_args_is_help=True)
    group.command("build")(build_command)
    group.command("report")(report_command)
    app.add_typer(group, name="data")


def build_command(
    context: typer.Context,
    recipe: RecipePath,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.", show_default=False)],
    device: Annotated[str, typer.Option("--device", help="sim (CPU), cuda, or auto.")] = "sim",
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=1024, help="Kernels judged at a time.")] = 1,
    verdicts: Annotated[
        list[Path] | None,
        typer.Option(help="Verdicts of another run (JSON lines of `ptxbench eval FOLDER --json`), taken as they are."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Build a data set from a recipe; every kernel in it is judged.

    Verdicts are stored as they come, so that an interrupted build goes on when it is started again. Exit code 1: rows
    that the recipe asks for are missing (apart from those that need a GPU where there is none).
    """
    chosen = load_recipe(recipe)
    known = read_verdicts(verdicts or ())
    check_parquet()
    if chosen.explanations.teacher:
        check_inspect()
    with evaluating(context, device, chosen) as evaluator:
        judge = RecordedFirst(known, storing(replace(evaluator, threads=1), resume=True))
        built = build(
            chosen, judge, include_dir(), jobs=jobs, display=lambda title, total: batch_display(err, title, total),
            teacher=partial(answers, chosen.explanations.teacher),
        )  # fmt: skip
    record = write_data_set(built, out)
    tell(record, out, as_json)
    short = {kind: why for kind, why in record.statistics.missing.items() if "needs a device" not in why}
    for kind, why in short.items():
        complain(f"{kind}: {why}")
    raise typer.Exit(SHORT if short else 0)


def report_command(
    data: DataPath,
    out: Annotated[
        Path | None, typer.Option("--out", help="The page to write; default: report.html beside the data.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Describe a data set as a web page with charts, and as JSON."""
    record = read_build(data)
    if rows_digest(read_rows(data)) != record.digest:
        raise UsageError(f"the rows in {data} are not those of its build.json; build it again")
    page = out or data / "report.html"
    write_atomically(page, report_page(record).encode())
    if as_json:
        emit(record.statistics.model_dump_json(indent=2))
    else:
        tell(record, page, as_json=False)


def answers(model: str, lessons: Sequence[Lesson]) -> list[str]:
    """A teacher's explanations, empty where it gave none."""
    replies = ask(model, [Question(*lesson) for lesson in lessons], Pace(jobs=1))
    return ["" if reply.error else reply.text for reply in replies]


@contextmanager
def evaluating(context: typer.Context, device: str, recipe: Recipe) -> Generator[LocalEvaluator]:
    """The evaluator for a recipe's targets; a GPU judges one target only."""
    where = parse_device(device)
    if not uses_gpu(where):
        yield ready_evaluator(context.obj)
        return
    if len(recipe.sources.targets) != 1:
        raise UsageError(
            f"a GPU judges one target; let the recipe '{recipe.name}' name it in sources.targets, or use --device sim"
        )
    with judging(context.obj, where, recipe.sources.targets[0]) as evaluator:
        yield evaluator


def tell(record: BuildRecord, place: Path, as_json: bool) -> None:
    """Prints what a data set holds."""
    if as_json:
        emit(record.model_dump_json(indent=2))
        return
    s = record.statistics
    table = Table(pad_edge=False, show_header=False)
    table.add_row("rows", f"{s.rows} ({', '.join(f'{name} {count}' for name, count in s.splits.items())})")
    table.add_row("good kernels", f"{s.kernels}; " + ", ".join(f"{n} below {t}" for t, n in s.distinct.items()))
    for name, axis in s.axes.items():
        table.add_row(name, ", ".join(f"{value} {count}" for value, count in axis.counts.items()))
    table.add_row("tokens", f"median {s.tokens['median']:.0f}, most {s.tokens['most']:.0f} ({s.tokenizer})")
    table.add_row("kept out", ", ".join(f"{gate.replace('_', ' ')} {count}" for gate, count in s.gates.items()))
    if s.operators:
        three = sum(operator.bases >= 3 for operator in s.operators.values())
        table.add_row("fault operators", f"{three} of {len(s.operators)} confirmed on three kernels or more")
    if s.fallbacks:
        table.add_row("explained by the template", ", ".join(f"{why} {count}" for why, count in s.fallbacks.items()))
    for kind, why in s.missing.items():
        table.add_row("missing", f"{kind}: {why}")
    show(table)
    emit(f"\n{place}")
