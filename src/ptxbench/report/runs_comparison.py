"""Comparing runs: which may be compared at all, what else differs between them, and how far their numbers do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from ptxbench.core import UsageError
from ptxbench.report.runs import Run
from ptxbench.report.runs_measures import Row, known_speedups, measures, rng
from ptxbench.stats import correct_at, executed_at, holm, permutation_test, share_difference

SETTINGS = frozenset({
    "condition", "without", "mode", "agent", "turns", "target_speedup", "feedback_tokens", "headers",
    "generation", "limits", "versions",
})  # fmt: skip
"""What may differ, but must be said, because it moves the numbers as a model does."""


@dataclass(frozen=True)
class Comparison:
    """Several runs, of which the first is the one compared with, over the trajectories and turns that all of them have.

    ``rows`` holds the measures of every run within ``turns`` turns, ``differences`` those of each further run minus
    the first.
    """

    runs: tuple[Run, ...]
    turns: int
    notes: tuple[str, ...]
    rows: tuple[Row, ...]
    differences: tuple[Row, ...]


def compare(runs: Sequence[Run]) -> Comparison:
    """Compares at least two runs; `UsageError` says in one sentence why that would mean nothing."""
    first, *others = runs
    for other in others:
        _check(first, other)
    shared = first.samples.intersection(*(other.samples for other in others))
    if not shared:
        raise UsageError(f"{_names(runs)} have no finished (task, epoch) in common; give runs over the same tasks")
    turns = min(run.record.turns for run in runs)
    cut = tuple(run.of(shared, turns) for run in runs)
    notes = [note for run in runs for note in run.notes()]
    notes += [note for other in others if (note := _settings(first, other))]
    if any(len(run.record.samples) > len(shared) for run in runs):
        notes.append(f"The numbers are of the {len(shared)} trajectories (task and epoch) that all runs have.")
    differences = [row for other in cut[1:] for row in _differences(cut[0], other)]
    adjusted = holm([row.p for row in differences if row.p is not None])
    return Comparison(
        runs=tuple(runs),
        turns=turns,
        notes=tuple(notes),
        rows=tuple(row for run in cut for row in measures(run)),
        differences=tuple(
            row.model_copy(update={"p_adjusted": p}) for row, p in zip(differences, adjusted, strict=True)
        ),
    )


def _check(first: Run, other: Run) -> None:
    """`UsageError` where a difference would be of the judging and not of the models."""
    a, b = first.record, other.record
    if a.run == b.run:
        raise UsageError(f"{a.run} is given twice; give different runs")
    fixed = (("target", a.target.value, b.target.value), ("the judging device", first.device, other.device),
             ("the tiers judged", _text(a.tiers), _text(b.tiers)), ("strictness", a.strict, b.strict))  # fmt: skip
    for what, one, two in fixed:
        if one != two:
            raise UsageError(
                f"{a.run} and {b.run} are not comparable: they differ in {what} ({one}; {two}); "
                "give runs that were judged alike, or judge one of them again with `ptxbench rejudge`"
            )


def _settings(first: Run, other: Run) -> str:
    """One sentence about what differs besides the model; empty if nothing does."""
    one, two = first.record, other.record
    a, b = (record.model_dump(mode="json", include=set(SETTINGS)) for record in (one, two))
    found = [f"{name} ({_difference(a[name], b[name])})" for name in sorted(a) if a[name] != b[name]]
    common = one.prompts.keys() & two.prompts.keys()
    texts = any(one.prompts[task].digest != two.prompts[task].digest for task in common)
    if texts and (one.condition, one.without) == (two.condition, two.without):
        found.append("the texts of that condition")
    if not found:
        return ""
    where = "besides the model also in" if one.model != two.model else "in"
    return f"{other.name} differs from {first.name} {where} {', '.join(found)}."


def _difference(one: Any, two: Any) -> str:
    """Which entries of two mappings differ, or two values that do."""
    if isinstance(one, dict):
        before, after = cast("dict[str, Any]", one), cast("dict[str, Any]", two)
        return ", ".join(sorted(key for key in {*before, *after} if before.get(key) != after.get(key)))
    return f"{_text(two)} instead of {_text(one)}"


def _flags(run: Run) -> dict[tuple[str, float], list[bool]]:
    """What is tested, per trajectory, by measure and point."""
    turns = run.record.turns
    flags: dict[tuple[str, float], list[bool]] = {
        ("correct", turns): [correct_at(one, turns) for one in run.trajectories],
        ("executed", turns): [executed_at(one, turns) for one in run.trajectories],
    }
    speedups = known_speedups(run.trajectories)
    if speedups:
        flags["fast", 1.0] = [speedup > 1.0 for speedup in speedups]
    return flags


def _differences(first: Run, other: Run) -> list[Row]:
    tasks, mine, others = [one.task for one in first.trajectories], _flags(first), _flags(other)
    rows: list[Row] = []
    for measure, at in (key for key in mine if key in others):
        held, before = others[measure, at], mine[measure, at]
        found = share_difference(held, before, tasks, rng())
        rows.append(Row(run=other.name, reference=first.name, measure=measure, at=at, count=len(tasks),
                        p=permutation_test(held, before, tasks), **found.model_dump()))  # fmt: skip
    return rows


def _names(runs: Sequence[Run]) -> str:
    return " and ".join(run.name for run in runs)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, cast("Sequence[object]", value))) or "none"
    return str(value)
