"""Rows mined from runs: a failing turn and a later passing one of the same trajectory, or a passing turn by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ptxbench.adapt.data.conversation import Prompter, answer, failed_turn, stated
from ptxbench.adapt.data.faults import HAZARD
from ptxbench.adapt.data.recipe import Recipe
from ptxbench.adapt.data.rows import Dropped, Row, provenance
from ptxbench.adapt.data.split import evaluation_families, families, families_of
from ptxbench.core import RunRecord, TrajectoryRecord, TurnRecord, Verdict
from ptxbench.prompts import feedback
from ptxbench.store import RunFolder
from ptxbench.tasks import get_task

GROUP = "runs"
"""The kernel family of what models wrote."""


def mined_rows(recipe: Recipe, prompter: Prompter) -> list[Row | Dropped]:
    """The rows of every run that the recipe names; `UsageError` if a folder is no run or is incomplete."""
    return [row for folder in recipe.sources.trajectories for row in _of_run(recipe, prompter, Path(folder))]


def _of_run(recipe: Recipe, prompter: Prompter, root: Path) -> Iterator[Row | Dropped]:
    folder = RunFolder(root)
    run = folder.record()
    held_out = evaluation_families() - families_of(recipe.evaluation_tasks)
    for trajectory in folder.trajectories():
        name = f"{run.run}/{trajectory.task}@{trajectory.epoch}"
        if families()[trajectory.task] in held_out:
            yield Dropped(name=name, gate="evaluation_family", detail=f"{trajectory.task} is held out for evaluation")
        elif recipe.kind == "repair":
            yield from _repairs(recipe, prompter, folder, run, trajectory, name)
        else:
            yield from _passing(recipe, prompter, folder, run, trajectory, name)


def _repairs(
    recipe: Recipe, prompter: Prompter, folder: RunFolder, run: RunRecord, trajectory: TrajectoryRecord, name: str
) -> Iterator[Row | Dropped]:
    """The last failing turn before the first clean one."""
    failing: tuple[TurnRecord, Verdict] | None = None
    for turn in trajectory.turns:
        if turn.verdict_key is None:
            continue
        verdict = folder.verdict(turn.verdict_key)
        if not _clean(verdict):
            failing = turn, verdict
            continue
        if failing is not None:
            yield _repair(recipe, prompter, folder, run, trajectory, (failing[0], failing[1], turn, verdict), name)
        return
    if failing is not None:
        yield Dropped(name=name, gate="never_repaired", detail=f"ends with {failing[1].outcome.value}")


def _repair(
    recipe: Recipe, prompter: Prompter, folder: RunFolder, run: RunRecord, trajectory: TrajectoryRecord,
    pair: tuple[TurnRecord, Verdict, TurnRecord, Verdict], name: str,
) -> Row | Dropped:  # fmt: skip
    bad_turn, bad, good_turn, good = pair
    if _too_slow(recipe, good):
        return Dropped(name=name, gate="too_slow", detail="the repaired kernel is slower than the floor")
    faulty, source = folder.source(bad_turn.source_digest), folder.source(good_turn.source_digest)
    row = _common(recipe, prompter, run, trajectory, good, source)
    shown = stated(get_task(trajectory.task), row.sizes)
    told = feedback(bad, faulty, max_tokens=recipe.gates.feedback_tokens, stated=shown)
    return row.model_copy(
        update={
            "kind": "repair",
            "failure": HAZARD if bad.outcome.accepted else bad.outcome.value,
            "messages": (),
            "prompt": (*row.messages[:2], *failed_turn(faulty, told)),
            "completion": (row.messages[2],),
            "provenance": provenance(row.provenance.origin, good, bad),
        }
    )


def _passing(
    recipe: Recipe, prompter: Prompter, folder: RunFolder, run: RunRecord, trajectory: TrajectoryRecord, name: str
) -> Iterator[Row | Dropped]:
    """The best turn, if it is clean."""
    best = trajectory.best
    if best is None or best.verdict_key is None:
        return
    verdict = folder.verdict(best.verdict_key)
    if not _clean(verdict):
        yield Dropped(name=name, gate="never_passed", detail=f"best turn: {verdict.outcome.value}")
    elif _too_slow(recipe, verdict):
        yield Dropped(name=name, gate="too_slow", detail="slower than the floor")
    else:
        yield _common(recipe, prompter, run, trajectory, verdict, folder.source(best.source_digest))


def _common(
    recipe: Recipe, prompter: Prompter, run: RunRecord, trajectory: TrajectoryRecord, verdict: Verdict, source: str
) -> Row:
    """An expert row without an explanation: what the model thought is not ours to teach."""
    task = get_task(trajectory.task)
    sizes = prompter.sizes(task, f"{run.run} {trajectory.epoch}")
    condition = prompter.condition(uses_headers="#include <ptxbench/" in source)
    return Row(
        kind="expert",
        task=task.name,
        task_family=families()[task.name],
        target=trajectory.target,
        kernel_family=GROUP,
        techniques=(),
        messages=(*prompter.messages(task, trajectory.target, condition, sizes), answer(recipe, "", "", source)),
        condition=condition,
        sizes=sizes,
        speedup=verdict.timing.speedup.median if verdict.timing else None,
        licence=f"output of {run.model}",
        provenance=provenance(f"{run.run}/{trajectory.task}@{trajectory.epoch}", verdict),
    )


def _clean(verdict: Verdict) -> bool:
    return verdict.outcome.accepted and not verdict.hazards


def _too_slow(recipe: Recipe, verdict: Verdict) -> bool:
    return verdict.timing is not None and verdict.timing.speedup.median < recipe.gates.speed_floor
