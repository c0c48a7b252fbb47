"""The numbers of runs as rows: one measure at one point for one task or for all, with its interval."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from ptxbench.core import Record, TrajectoryRecord
from ptxbench.report.runs import Run
from ptxbench.stats import (
    Estimate,
    best_of,
    clean_at,
    correct_at,
    executed_at,
    fast_p,
    mean_pass_at_k,
    per_solved,
    share,
    speedup_of,
    speedup_quantile,
)

SEED = 20_260_817
"""Seeds every interval, so that a table is the same whenever it is printed."""

ALL = "all"
FAST = (0.5, 0.8, 1.0, 1.2)
QUANTILES = (0.25, 0.5, 0.75)

LABELS = {
    "correct": "correct@{:g}",
    "executed": "executed@{:g}",
    "clean": "clean@{:g}",
    "pass": "pass@{:g}",
    "fast": "fast_{:.1f}",
    "speedup": "speedup q{:g}",
    "best_speedup": "best speedup",
    "tokens_per_solved": "tokens per solved",
    "dollars_per_solved": "dollars per solved",
}
"""The measures (docs/statistics.md defines them) and what people call them, at a turn, k, p or quantile."""


class Row(Record):
    """One number. ``measure`` is one of `LABELS`, ``count`` how many trajectories are behind it.

    A row with a ``reference`` is the difference ``run`` minus ``reference``; ``p`` is its exact p-value, and
    ``p_adjusted`` the same after correction for the other rows beside it.
    """

    run: str
    task: str = ALL
    measure: str
    at: float | None = None
    count: int | None
    value: float | None
    low: float | None
    high: float | None
    reference: str = ""
    p: float | None = None
    p_adjusted: float | None = None

    @property
    def label(self) -> str:
        """Measure and point, such as ``correct@4``."""
        return LABELS[self.measure].format(self.at)


def rng() -> np.random.Generator:
    """A generator of its own for every interval: no number depends on which others are shown."""
    return np.random.default_rng(SEED)


def measures(run: Run) -> tuple[Row, ...]:
    """All rows of a run: first of all tasks together, then task by task."""
    rows = list(_rows(run, ALL, run.trajectories))
    for task in run.record.tasks:
        rows += _rows(run, task, tuple(one for one in run.trajectories if one.task == task))
    return tuple(rows)


def points(last: int) -> list[int]:
    """The powers of two below ``last``, and ``last``."""
    return [*(2**i for i in range(last.bit_length()) if 2**i < last), last]


def known_speedups(trajectories: Sequence[TrajectoryRecord]) -> list[float]:
    """`stats.speedup_of` of every trajectory; empty if nothing was timed, or if one of them is not known."""
    speedups = [speedup_of(one) for one in trajectories]
    known = [speedup for speedup in speedups if speedup is not None]
    return known if len(known) == len(speedups) and any(known) else []


def as_csv(rows: Sequence[Row]) -> str:
    """The rows as CSV with a header line; an empty field is undefined or an open bound."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(Row.model_fields), lineterminator="\n")
    writer.writeheader()
    writer.writerows(row.model_dump() for row in rows)
    return text.getvalue()


def _rows(run: Run, task: str, trajectories: Sequence[TrajectoryRecord]) -> Iterator[Row]:
    tasks, turns = [one.task for one in trajectories], run.record.turns
    solved = [executed_at(one, turns) for one in trajectories]

    def row(measure: str, at: float | None, found: Estimate, count: int = len(tasks)) -> Row:
        return Row(run=run.name, task=task, measure=measure, at=at, count=count, **found.model_dump())

    for turn in points(turns):
        yield row("correct", turn, share([correct_at(one, turn) for one in trajectories], tasks, rng()))
    for turn in points(turns):
        yield row("executed", turn, share([executed_at(one, turn) for one in trajectories], tasks, rng()))
    for turn in points(turns):
        yield row("clean", turn, share([clean_at(one, turn, run.clean) for one in trajectories], tasks, rng()))
    for k in points(min(Counter(tasks).values(), default=0)):
        if k:
            yield row("pass", k, mean_pass_at_k(solved, tasks, k, rng()))
    speedups = known_speedups(trajectories)
    if speedups:
        for p in FAST:
            yield row("fast", p, fast_p(speedups, p, tasks, rng()))
        for q in QUANTILES:
            found = speedup_quantile(speedups, q, tasks, rng())
            yield row("speedup", q, found, sum(speedup > 0 for speedup in speedups))
    best = best_of(trajectories)
    if best is not None and task != ALL:
        yield row("best_speedup", None, Estimate(value=best.median, low=best.low, high=best.high))
    usages = [one.usage for one in trajectories]
    tokens = [use.input_tokens + use.output_tokens for use in usages]
    yield row("tokens_per_solved", None, per_solved(tokens, solved, tasks, rng()))
    costs = [use.cost for use in usages if use.cost is not None]
    if len(costs) == len(usages):
        yield row("dollars_per_solved", None, per_solved(costs, solved, tasks, rng()))
