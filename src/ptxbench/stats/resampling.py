"""Bootstrap intervals of trajectories that come in tasks.

Trajectories of one task resemble each other more than those of two tasks, so they are not independent draws. Two ways
of resampling bracket the truth: whole tasks (what another choice of tasks would give) and single trajectories (what
other draws of the model would give on these tasks). An interval here spans both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ptxbench.core import Record

Floats = NDArray[np.float64]
Tasks = Sequence[str] | NDArray[np.str_]
Statistic = Callable[[Floats], Floats]
"""Weights [N, R], how often each of N trajectories counts in each of R resamples, to values [R]; NaN is undefined."""

RESAMPLES = 5_000
TAILS = (0.025, 0.975)


class Estimate(Record):
    """A value with its 95 % interval. None stands for what is undefined: a value of nothing, or an open bound."""

    value: float | None
    low: float | None
    high: float | None


def by_task(statistic: Statistic, tasks: Tasks, rng: np.random.Generator) -> Floats:
    """The 2.5 % and 97.5 % quantiles of a statistic over resampled tasks; ``tasks[i]`` is the task of trajectory i.

    One task fewer than there are is drawn: with all of them the variance would come out too small by that share (Rao
    and Wu 1988), which matters for five.
    """
    _, groups = np.unique(np.asarray(tasks), return_inverse=True)
    return _tails(statistic, groups, rng)


def by_trajectory(statistic: Statistic, count: int, rng: np.random.Generator) -> Floats:
    """The same over ``count`` trajectories that are taken for independent."""
    return _tails(statistic, np.arange(count), rng)


def estimate(statistic: Statistic, tasks: Tasks, rng: np.random.Generator) -> Estimate:
    """A statistic of all trajectories with the interval that spans both ways of resampling.

    Fewer than two trajectories say nothing of their spread: both bounds are None.

    >>> mean = lambda weights: np.array([1.0, 1.0, 3.0, 3.0]) @ weights / weights.sum(axis=0)
    >>> found = estimate(mean, ["gemm", "gemm", "mha", "mha"], np.random.default_rng(0))
    >>> found.value, found.low, found.high
    (2.0, 1.0, 3.0)
    """
    value = float(statistic(np.ones((len(tasks), 1)))[0]) if len(tasks) else np.nan
    if len(tasks) < 2:
        return Estimate(value=finite(value), low=None, high=None)
    return spanning(value, by_task(statistic, tasks, rng), by_trajectory(statistic, len(tasks), rng))


def spanning(value: float, *bounds: Sequence[float] | Floats) -> Estimate:
    """The estimate whose interval spans the given ones and the value itself."""
    ends = [value, *(float(end) for pair in bounds for end in pair)]
    return Estimate(value=finite(value), low=finite(min(ends)), high=finite(max(ends)))


def finite(value: float) -> float | None:
    """The value, or None for what is not a finite number."""
    return float(value) if np.isfinite(value) else None


def _tails(statistic: Statistic, groups: NDArray[np.intp], rng: np.random.Generator) -> Floats:
    count = int(groups.max()) + 1
    drawn = rng.multinomial(max(count - 1, 1), np.full(count, 1 / count), size=RESAMPLES)
    values = statistic(np.ascontiguousarray(drawn.T, dtype=np.float64)[groups])
    # Resamples in which the statistic is undefined say nothing; infinity is a value, so nothing is interpolated.
    known = values[~np.isnan(values)]
    return np.quantile(known, TAILS, method="inverted_cdf") if known.size else np.full(2, np.nan)
