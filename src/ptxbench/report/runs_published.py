"""Results that others published, for display beside one's own: data, with their source and how they were made."""

from __future__ import annotations

import functools
import tomllib
from importlib.resources import files

from ptxbench.core import Record, Target
from ptxbench.report.runs_measures import ALL, Row


class PublishedModel(Record):
    """One model on one device: percent of trajectories, by the number of turns within which they succeeded."""

    name: str
    device: str
    target: Target
    correct: dict[int, float]
    executed: dict[int, float]


class PublishedSpeedup(Record):
    """The best speedup reported for one device, by task."""

    device: str
    target: Target
    best: dict[str, float]


class Published(Record):
    """All of it. ``outcomes`` is in percent of turns; ``differences`` says in what those measurements differ from this
    project's.
    """

    source: str
    runs: int
    turns: int
    outcomes: dict[str, float]
    differences: tuple[str, ...]
    model: tuple[PublishedModel, ...]
    speedup: tuple[PublishedSpeedup, ...]

    def rows(self, target: Target) -> tuple[Row, ...]:
        """The numbers of one target as rows, shares as fractions; intervals and counts were not published."""
        rows: list[Row] = []
        for model in self.model:
            if model.target is target:
                name = f"published: {model.name}, {model.device}"
                rows += [_row(name, ALL, "correct", k, share / 100) for k, share in model.correct.items()]
                rows += [_row(name, ALL, "executed", k, share / 100) for k, share in model.executed.items()]
        for speedup in self.speedup:
            if speedup.target is target:
                name = f"published: best reported, {speedup.device}"
                rows += [_row(name, task, "best_speedup", None, value) for task, value in speedup.best.items()]
        return tuple(rows)


@functools.cache
def published() -> Published:
    """The results as shipped."""
    text = files("ptxbench.report").joinpath("published.toml").read_text(encoding="utf-8")
    return Published.model_validate(tomllib.loads(text))


def _row(run: str, task: str, measure: str, at: float | None, value: float) -> Row:
    return Row(run=run, task=task, measure=measure, at=at, count=None, value=value, low=None, high=None)
