"""Comparing two runs on the same tasks and epochs, and several such comparisons at once.

Rows of flags have one entry per trajectory, the same (task, epoch) at the same place in both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ptxbench.stats.definitions import mean_of
from ptxbench.stats.intervals import newcombe_interval
from ptxbench.stats.resampling import Estimate, Floats, by_task, spanning


def share_difference(first: ArrayLike, second: ArrayLike, tasks: Sequence[str], rng: np.random.Generator) -> Estimate:
    """The share of trajectories for which a flag holds in the first run, minus that in the second.

    The interval spans two: tasks resampled together with their trajectories of both runs (paired bootstrap), and
    Newcombe's task by task, which takes the trajectories of a task for independent.

    >>> found = share_difference([1, 1, 1, 0], [0, 1, 0, 0], ["gemm", "gemm", "mha", "mha"], np.random.default_rng(0))
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.5, -0.046, 0.787)
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.size != len(tasks):
        raise ValueError(f"paired flags must be equally long rows, not {a.shape} and {b.shape}")
    if not a.size:
        return Estimate(value=None, low=None, high=None)
    return spanning(float((a - b).mean()), _stratified(a, b, tasks), by_task(mean_of(a - b), tasks, rng))


def permutation_test(first: ArrayLike, second: ArrayLike, tasks: Sequence[str]) -> float:
    """The exact two-sided p-value of the hypothesis that both runs hold the flag equally often on each task.

    If so, within a task every assignment of its trajectories to the two runs is equally likely. The number of flags
    that the first run gets is then hypergeometric per task; the test adds those numbers over tasks, and p is the
    probability of all sums no likelier than the observed one (Fisher's exact test for one task, the exact
    Cochran-Mantel-Haenszel test for several). Nothing is drawn at random, and the order of epochs does not matter.

    >>> round(permutation_test([1, 1, 1, 1], [0, 0, 0, 0], ["gemm"] * 4), 4)
    0.0286
    """
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    trials = Counter(tasks)
    held = Counter(task for row in (a, b) for task, flag in zip(tasks, row, strict=True) if flag)
    chances: Floats = np.ones(1)
    for task, count in trials.items():
        chances = np.convolve(chances, _hypergeometric(held[task], count))
    return float(min(1.0, chances[chances <= chances[int(a.sum())] * (1 + 1e-9)].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for making several comparisons (Holm 1979): the chance that any of those below a level is a
    false alarm stays below it, however the comparisons depend on each other.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    adjusted, highest = list(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def _stratified(a: Floats, b: Floats, tasks: Sequence[str]) -> tuple[float, float]:
    """Newcombe's interval per task, distances from the difference added as squares by the weight of the task."""
    below, above = 0.0, 0.0
    for task in sorted(set(tasks)):
        own = np.asarray(tasks) == task
        size, first, second = int(own.sum()), a[own].sum(), b[own].sum()
        low, high = newcombe_interval((int(first), int(second)), (size, size))
        difference = (first - second) / size
        below = math.hypot(below, size / a.size * (difference - low))
        above = math.hypot(above, size / a.size * (high - difference))
    mean = float((a - b).mean())
    return mean - below, mean + above


def _hypergeometric(held: int, count: int) -> Floats:
    """Chances that the first run has 0, 1, …, ``count`` of the ``held`` flags, of two runs with ``count`` each."""
    return np.array([math.comb(held, x) * math.comb(2 * count - held, count - x) / math.comb(2 * count, count)
                     for x in range(count + 1)])  # fmt: skip
