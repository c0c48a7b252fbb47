"""What the numbers of a run mean. Every quantity that a table or a figure shows is defined here, once.

First what is known of one trajectory, then the estimates over many. `docs/statistics.md` works one example through.
Rows of flags or values have one entry per trajectory, and ``tasks`` names the task of each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptxbench.core import Interval, Outcome, TrajectoryRecord
from ptxbench.stats.intervals import wilson_interval
from ptxbench.stats.resampling import Estimate, Floats, Statistic, by_task, estimate, spanning

CORRECT = frozenset({Outcome.INSTRUCTION_MISSING, Outcome.CORRECT_UNTIMED, Outcome.PASSED})
"""Outcomes of kernels whose outputs are right, whatever made them."""


def correct_at(trajectory: TrajectoryRecord, turn: int) -> bool:
    """Whether at least one of the first ``turn`` turns (counted from 1) was correct."""
    return any(one.index <= turn and one.outcome in CORRECT for one in trajectory.turns)


def executed_at(trajectory: TrajectoryRecord, turn: int) -> bool:
    """Whether one of the first ``turn`` turns was correct with the target's own instructions carrying the work."""
    return any(one.index <= turn and one.outcome is not None and one.outcome.accepted for one in trajectory.turns)


def clean_at(trajectory: TrajectoryRecord, turn: int, clean: Collection[str]) -> bool:
    """Whether one of the first ``turn`` turns was accepted without any hazard; ``clean`` holds the verdict keys of
    kernels in which none was found.
    """
    return any(one.index <= turn and one.verdict_key in clean for one in trajectory.turns)


def speedup_of(trajectory: TrajectoryRecord) -> float | None:
    """The speedup of the trajectory's best kernel; 0 where it has none that passed.

    The best of several timed kernels was chosen for its time, so that time flatters it (winner's curse): what counts
    is ``remeasured``, taken with fresh seeds after the choice. None where that is missing. Of a single timed kernel
    nothing was chosen, and its own measurement counts.
    """
    if trajectory.remeasured is not None:
        return trajectory.remeasured.median
    speedups = [one.median for one in _timed(trajectory)]
    return None if len(speedups) > 1 else sum(speedups)


def best_of(trajectories: Sequence[TrajectoryRecord]) -> Interval | None:
    """The speedup of the fastest kernel of several trajectories: chosen by its first measurement, reported by the one
    after. None where nothing was timed, or where it was chosen among several and not measured again.
    """
    timed = [(measured, one) for one in trajectories for measured in _timed(one)]
    if not timed:
        return None
    first, chosen = max(timed, key=lambda pair: pair[0].median)
    return first if len(timed) == 1 and chosen.remeasured is None else chosen.remeasured


def share(flags: ArrayLike, tasks: Sequence[str], rng: np.random.Generator) -> Estimate:
    """The share of trajectories for which a flag holds.

    The interval spans two: resampled tasks, and Wilson's, which takes trajectories for independent and is all there is
    for one task, or where all tasks agree.

    >>> found = share([1, 1, 1, 0, 0, 0, 0, 0], ["gemm"] * 4 + ["mha"] * 4, np.random.default_rng(0))
    >>> found.value, found.low, round(found.high, 3)
    (0.375, 0.0, 0.75)
    """
    row = np.asarray(flags, dtype=np.float64)
    if row.size == 0:
        return Estimate(value=None, low=None, high=None)
    wilson = wilson_interval(int(row.sum()), row.size)
    return spanning(float(row.mean()), wilson, by_task(mean_of(row), tasks, rng))


def fast_p(speedups: ArrayLike, p: float, tasks: Sequence[str], rng: np.random.Generator) -> Estimate:
    """The share of trajectories whose best kernel is right, carried, and more than ``p`` times as fast as the baseline.

    A trajectory without such a kernel has speedup 0. (Ouyang et al. 2025, there over tasks; the comparison is strict.)

    >>> found = fast_p([0.0, 0.97, 1.0, 1.02], 1.0, ["gemm"] * 4, np.random.default_rng(0))
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.25, 0.046, 0.699)
    """
    return share(np.asarray(speedups, dtype=np.float64) > p, tasks, rng)


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of ``k`` trajectories, drawn without replacement from ``n`` of which ``c`` solved
    the task, solved it: 1 - C(n-c, k) / C(n, k), unbiased for k independent trajectories (Chen et al. 2021).

    `ValueError` unless ``0 <= c <= n`` and ``1 <= k <= n``: fewer than k trajectories do not tell.

    >>> pass_at_k(n=4, c=1, k=2)
    0.5
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} needs at least {k} trajectories and a count that solved the task, not {c} of {n}")
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def mean_pass_at_k(solved: ArrayLike, tasks: Sequence[str], k: int, rng: np.random.Generator) -> Estimate:
    """The mean of `pass_at_k` over tasks; `ValueError` where a task has fewer than ``k`` trajectories.

    The interval spans resampled tasks and Wilson's interval of the share p of all trajectories, as 1 - (1 - p)^k.

    >>> found = mean_pass_at_k([1, 0, 0, 0, 0, 0, 0, 0], ["gemm"] * 4 + ["mha"] * 4, 2, np.random.default_rng(0))
    >>> found.value, found.low, round(found.high, 3)
    (0.25, 0.0, 0.72)
    """
    row = np.asarray(solved, dtype=bool)
    counts, hits = Counter(tasks), Counter(task for task, hit in zip(tasks, row, strict=True) if hit)
    names = sorted(counts)
    values = np.array([pass_at_k(counts[name], hits[name], k) for name in names])
    wilson = [1 - (1 - end) ** k for end in wilson_interval(int(row.sum()), row.size)]
    return spanning(float(values.mean()), wilson, by_task(mean_of(values), names, rng))


def speedup_quantile(speedups: ArrayLike, q: float, tasks: Sequence[str], rng: np.random.Generator) -> Estimate:
    """The q-quantile of the speedups of trajectories that have one (greater than 0): the smallest of them that at
    least the share ``q`` of them do not exceed.

    >>> found = speedup_quantile([0.0, 0.5, 0.8, 1.1], 0.5, ["gemm", "gemm", "mha", "mha"], np.random.default_rng(0))
    >>> found.value, found.low, found.high
    (0.8, 0.5, 1.1)
    """
    names, (row,) = _in_order(tasks, speedups)
    fast = row > 0
    return estimate(quantile_of(row[fast], q), names[fast], rng)


def per_solved(spent: ArrayLike, solved: ArrayLike, tasks: Sequence[str], rng: np.random.Generator) -> Estimate:
    """What one solved trajectory costs: the sum of ``spent`` (tokens, dollars or seconds) over all trajectories, also
    those that solved nothing, over the number of those that solved their task. None where nothing was solved.

    >>> found = per_solved([100, 300, 200, 400], [1, 0, 1, 0], ["gemm", "gemm", "mha", "mha"], np.random.default_rng(0))
    >>> found.value, found.low, found.high
    (500.0, 133.33333333333334, None)
    """
    names, columns = _in_order(tasks, spent, solved)

    def ratio(weights: Floats) -> Floats:
        total, count = columns @ weights
        return np.divide(total, count, out=np.full_like(total, np.inf), where=count > 0)

    return estimate(ratio, names, rng)


def mean_of(row: Floats) -> Statistic:
    """The weighted mean of one value per trajectory."""
    return lambda weights: row @ weights / weights.sum(axis=0)


def quantile_of(row: Floats, q: float) -> Statistic:
    """The weighted quantile of one value per trajectory: the smallest whose share of the weight up to it reaches q."""
    order = np.argsort(row, kind="stable")

    def statistic(weights: Floats) -> Floats:
        reached = np.cumsum(weights[order], axis=0)
        return row[order][(reached >= q * reached[-1]).argmax(axis=0)]

    return statistic


def _timed(trajectory: TrajectoryRecord) -> list[Interval]:
    return [one.speedup for one in trajectory.turns if one.speedup is not None]


def _in_order(tasks: Sequence[str], *rows: ArrayLike) -> tuple[NDArray[np.str_], Floats]:
    """Tasks [N] and rows [K, N] sorted by task and value, so that the order of trajectories changes no random draw."""
    columns = np.array([np.asarray(row, dtype=np.float64) for row in rows])
    order = np.lexsort((*columns, np.asarray(tasks)))
    return np.asarray(tasks)[order], columns[:, order]
