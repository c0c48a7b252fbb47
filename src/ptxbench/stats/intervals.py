"""Interval estimates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ptxbench.core import Interval

Z_95 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""

T_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""97.5 % quantiles of Student's t distribution with 1, 2, 3 … degrees of freedom."""


def paired_ratio_interval(
    numerator: ArrayLike, denominator: ArrayLike, rng: np.random.Generator, resamples: int = 10_000
) -> Interval:
    """Median of the paired ratios ``numerator[i] / denominator[i]`` with a 95 % bootstrap interval.

    Both are one-dimensional, equally long, positive, and measured in pairs (baseline and candidate times of one round,
    in any common unit). Whole pairs are resampled with replacement; the interval is the 2.5 % and 97.5 % quantiles of
    the resampled medians (percentile bootstrap, Efron 1979). `ValueError` on anything else.

    >>> interval = paired_ratio_interval([2.0, 4.0, 6.0], [1.0, 2.0, 2.0], np.random.default_rng(0))
    >>> interval.median, interval.low, interval.high
    (2.0, 2.0, 3.0)
    """
    ratios = _ratios(numerator, denominator)
    drawn = ratios[rng.integers(0, ratios.size, (resamples, ratios.size))]
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return Interval(median=float(np.median(ratios)), low=float(low), high=float(high))


def clustered_ratio_interval(pairs: Sequence[tuple[ArrayLike, ArrayLike]]) -> Interval:
    """A ratio that was measured under several conditions drawn alike: its geometric mean over them, with its 95 %
    interval.

    ``pairs`` holds numerators and denominators of each condition, measured in pairs as for `paired_ratio_interval`.
    The ratio of one condition is the median of its paired ratios. The interval is Student's, of the mean of their
    logarithms, so that it tells of the spread between conditions, however often each was measured. `ValueError` for
    fewer than two conditions, more than `T_95` has room for, or samples that are no pairs.

    >>> interval = clustered_ratio_interval([([1.0], [1.0]), ([1.1, 1.1], [1.0, 1.0])])
    >>> round(interval.median, 4), round(interval.low, 3), round(interval.high, 3)
    (1.0488, 0.572, 1.922)
    """
    if not 2 <= len(pairs) <= len(T_95) + 1:
        raise ValueError(f"{len(pairs)} conditions give no interval; 2 to {len(T_95) + 1} do")
    logs = np.log([np.median(_ratios(top, bottom)) for top, bottom in pairs])
    reach = T_95[logs.size - 2] * logs.std(ddof=1) / math.sqrt(logs.size)
    low, middle, high = np.exp(logs.mean() + np.array([-reach, 0.0, reach]))
    return Interval(median=float(middle), low=float(low), high=float(high))


def _ratios(numerator: ArrayLike, denominator: ArrayLike) -> NDArray[np.float64]:
    top, bottom = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if top.ndim != 1 or top.shape != bottom.shape or top.size == 0:
        raise ValueError(f"paired samples must be two equally long rows, not {top.shape} and {bottom.shape}")
    if not (np.isfinite(top).all() and np.isfinite(bottom).all() and (top > 0).all() and (bottom > 0).all()):
        raise ValueError("paired samples must be positive and finite")
    return top / bottom


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a proportion (Wilson 1927): (low, high), within 0 and 1.

    `ValueError` unless ``0 <= successes <= trials`` and ``trials > 0``.

    >>> low, high = wilson_interval(8, 10)
    >>> round(low, 4), round(high, 4)
    (0.4902, 0.9433)
    """
    if trials <= 0 or not 0 <= successes <= trials:
        raise ValueError(f"{successes} successes in {trials} trials is not a proportion")
    share = successes / trials
    widening = Z_95**2 / trials
    centre = (share + widening / 2) / (1 + widening)
    reach = Z_95 * math.sqrt(share * (1 - share) / trials + widening / (4 * trials)) / (1 + widening)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def newcombe_interval(successes: tuple[int, int], trials: tuple[int, int]) -> tuple[float, float]:
    """The 95 % interval of the difference of two independent proportions, first minus second: (low, high).

    Newcombe (1998), method 10: the distances from each proportion to its Wilson bounds, added as squares. `ValueError`
    where either is not a proportion.

    >>> low, high = newcombe_interval((56, 48), (70, 80))
    >>> round(low, 4), round(high, 4)
    (0.0524, 0.3339)
    """
    first, second = (count / total for count, total in zip(successes, trials, strict=True))
    first_low, first_high = wilson_interval(successes[0], trials[0])
    second_low, second_high = wilson_interval(successes[1], trials[1])
    low = first - second - math.hypot(first - first_low, second_high - second)
    return low, first - second + math.hypot(first_high - first, second - second_low)
