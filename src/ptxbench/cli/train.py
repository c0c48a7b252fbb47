"""The commands that train models: `ptxbench train`, `ptxbench merge`, `ptxbench sample` and `ptxbench heldout`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ptxbench.adapt.training import (
    HeldOut,
    Rehearsal,
    RlRecipe,
    TrainingRecipe,
    TrainingRecord,
    check_launch,
    judge_trainings,
    load_training_recipe,
    merge,
    prepare,
    rehearse,
    reinforce,
    train,
    write_samples,
)
from ptxbench.cli.console import emit
from ptxbench.cli.display import show
from ptxbench.cli.machine import err, ready_evaluator, storing
from ptxbench.core import UsageError
from ptxbench.report import stage_display
from ptxbench.store import write_atomically

RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="A training recipe (TOML).", show_default=False)]
TrainingPath = Annotated[Path, typer.Argument(metavar="TRAINING", help="The folder of a training.", show_default=False)]
TrainingPaths = Annotated[
    list[Path], typer.Argument(metavar="TRAINING…", help="Folders of trainings.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the program."""
    app.command("train")(train_command)
    app.command("merge")(merge_command)
    app.command("sample")(sample_command)
    app.command("heldout")(heldout_command)


def train_command(
    context: typer.Context,
    recipe: RecipePath,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder to write; default: trained/NAME-SEED.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Rehearse on a tiny random model, on the CPU.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Instead of the recipe's seed.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Stop after so many steps.")] = None,
    as_json: Json = False,
) -> None:
    """Train a model by a recipe: supervised on data sets, or by reinforcement with the judge as reward.

    Rows longer than the recipe allows are left out and counted; nothing is cut. A training that was interrupted goes
    on with --resume.
    """
    chosen = load_training_recipe(recipe)
    if seed is not None:
        chosen = chosen.model_copy(update={"seed": seed})
    folder = out or Path("trained") / f"{chosen.name}-{chosen.seed}{'-dry-run' if dry_run else ''}"
    if isinstance(chosen, RlRecipe):
        if dry_run or steps is not None:
            raise UsageError("--dry-run and --steps are for supervised recipes; lower the recipe's steps instead")
        evaluator = storing(ready_evaluator(context.obj), resume=True)
        with stage_display(err) as say:
            record = reinforce(chosen, evaluator, folder, say, resume=resume)
        tell(record, folder, as_json)
        return
    if dry_run:
        if resume:
            raise UsageError("--dry-run resumes by itself; give one of --dry-run and --resume")
        with stage_display(err) as say:
            tell_rehearsal(rehearse(chosen, folder, say), folder, as_json)
        return
    tell(supervised(chosen, recipe, folder, resume, steps), folder, as_json)


def supervised(recipe: TrainingRecipe, path: Path, folder: Path, resume: bool, steps: int | None) -> TrainingRecord:
    """Trains on data sets."""
    check_launch(recipe, path, folder)
    with stage_display(err) as say:
        return train(prepare(recipe, folder, say), folder, say, resume=resume, max_steps=steps)


def merge_command(
    training: TrainingPath,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the merged model.", show_default=False)],
    base: Annotated[str, typer.Option("--base", help="Where the base lies now, if not where the recipe says.")] = "",
) -> None:
    """Add a trained adapter into its base; the result is served like any other model."""
    with stage_display(err) as say:
        merge(training, out, say, base=base)
    emit(str(out))


def sample_command(
    trainings: TrainingPaths,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1, help="Stop writing after so long; unfinished replies count.")
    ] = None,
) -> None:
    """Let trained models write the replies to held-out prompts that their recipes ask for, all models at a time."""
    with stage_display(err) as say:
        replies = write_samples(trainings, say, seconds=seconds)
    emit(f"{replies} replies of {len(trainings)} trainings")


def heldout_command(
    context: typer.Context,
    trainings: TrainingPaths,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write the result as JSON here.")] = None,
    as_json: Json = False,
) -> None:
    """Compare trainings on held-out tasks: validation loss, and what the judge says of their replies."""
    evaluator = storing(ready_evaluator(context.obj), resume=True)
    with stage_display(err) as say:
        found = judge_trainings(trainings, evaluator, "simulator", say)
    if out:
        write_atomically(out, found.model_dump_json(indent=1).encode())
    if as_json:
        emit(found.model_dump_json(indent=2))
    else:
        for table in heldout_tables(found):
            show(table)


def tell(record: TrainingRecord, folder: Path, as_json: bool) -> None:
    """Prints what a training did."""
    if as_json:
        emit(record.model_dump_json(indent=2))
        return
    table = Table(pad_edge=False, show_header=False)
    for use in record.data:
        table.add_row(use.name, f"{use.train} rows for training, {use.validation} for validation, "
                                f"{sum(use.too_long.values())} of {use.rows} too long")  # fmt: skip
    early = " (stopped early)" if record.stopped_early else ""
    table.add_row("steps", f"{record.steps} of {record.planned_steps}{early}")
    for name, loss in record.losses.items():
        table.add_row(f"loss {name}", f"{loss:.4f}")
    rewards = [entry["reward"] for entry in record.history if "reward" in entry]
    if rewards:
        tenth = max(1, len(rewards) // 10)
        first, last = sum(rewards[:tenth]) / tenth, sum(rewards[-tenth:]) / tenth
        table.add_row("reward", f"{first:.3f} in the first tenth of the steps, {last:.3f} in the last")
    if record.evaluation_tasks:
        table.add_row("trained on evaluation tasks", ", ".join(record.evaluation_tasks))
    show(table)
    emit(str(folder))


def tell_rehearsal(done: Rehearsal, folder: Path, as_json: bool) -> None:
    """Prints what a dry run did."""
    if as_json:
        emit(done.model_dump_json(indent=2))
        return
    table = Table(pad_edge=False, show_header=False)
    losses = f"loss {done.first:.3f} to {done.last:.3f}"
    table.add_row("trained", f"{done.steps} steps, resumed at {done.resumed_at}, {losses}")
    table.add_row("afterwards", "saved, merged, loaded again, generated")
    if done.memory:
        table.add_row("memory of the real model", f"about {done.memory.total:.0f} GiB per GPU")
    show(table)
    emit(str(folder))


def heldout_tables(found: HeldOut) -> tuple[Table, Table]:
    """Validation losses, one row per recipe, and what became of replies, one row per recipe and data set."""
    validated = [name for name in found.arms[0].losses if "/" not in name]
    shown = next(iter(found.arms[0].replies.values())).reached
    losses, replies = Table(pad_edge=False), Table(pad_edge=False)
    for column in ("training", "seeds", *(f"loss {name}" for name in validated)):
        losses.add_column(column)
    for column in ("training", "prompts", "replies", "ended", "unchanged", *shown):
        replies.add_column(column)
    for arm in found.arms:
        taint = f" (trained on {', '.join(arm.evaluation_tasks)})" if arm.evaluation_tasks else ""
        spreads = [arm.losses[name] for name in validated]
        told = [f"{spread.mean:.3f} ({spread.least:.3f}–{spread.most:.3f})" for spread in spreads]
        losses.add_row(arm.name + taint, str(len(arm.seeds)), *told)
        for data, own in arm.replies.items():
            shares = [f"{one.value:.2f} ({one.low:.2f}–{one.high:.2f})" for one in own.reached.values()]
            unchanged = "–" if own.unchanged is None else f"{own.unchanged:.2f}"
            replies.add_row(arm.name + taint, data, str(own.number), f"{own.ended:.2f}", unchanged, *shares)
    return losses, replies
