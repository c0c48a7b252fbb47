import doctest

import numpy as np
import pytest

from ptxbench.stats import clustered_ratio_interval, intervals, paired_ratio_interval, wilson_interval


def test_docstring_examples_hold() -> None:
    assert doctest.testmod(intervals).failed == 0


def test_equal_samples_give_exactly_one() -> None:
    times = np.linspace(1.0, 2.0, 30)
    interval = paired_ratio_interval(times, times, np.random.default_rng(1))
    assert (interval.median, interval.low, interval.high) == (1.0, 1.0, 1.0)


def test_pairing_cancels_drift_that_both_sides_share() -> None:
    rng = np.random.default_rng(2)
    drift = np.exp(rng.normal(0, 0.5, 40))
    interval = paired_ratio_interval(1.25 * drift, drift, rng)
    assert interval.low == pytest.approx(1.25) and interval.high == pytest.approx(1.25)


def test_interval_covers_the_true_median_about_95_times_in_100() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(300):
        ratios = np.exp(rng.normal(0, 0.1, 40))
        interval = paired_ratio_interval(ratios, np.ones(40), rng, resamples=400)
        covered += interval.low <= 1.0 <= interval.high
    assert 270 <= covered <= 298


def test_equal_generators_give_equal_intervals() -> None:
    times = np.random.default_rng(4).uniform(1, 2, 20)
    first, second = (paired_ratio_interval(times, times[::-1], np.random.default_rng(5)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("top", "bottom"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([1.0], [float("nan")])])
def test_impossible_samples_are_refused(top: list[float], bottom: list[float]) -> None:
    with pytest.raises(ValueError, match="paired samples"):
        paired_ratio_interval(top, bottom, np.random.default_rng(0))


def test_a_ratio_of_several_places_covers_the_mean_over_places_about_95_times_in_100() -> None:
    rng = np.random.default_rng(6)
    covered = 0
    for _ in range(1000):
        places = rng.normal(0, 0.006, 6)
        pairs = [(np.exp(place + rng.normal(0, 0.001, 10)), np.ones(10)) for place in places]
        interval = clustered_ratio_interval(pairs)
        covered += interval.low <= 1.0 <= interval.high
    assert 930 <= covered <= 970


@pytest.mark.parametrize("count", [0, 1, 17])
def test_a_ratio_of_several_places_needs_some_and_not_too_many(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} conditions"):
        clustered_ratio_interval([([1.0], [1.0])] * count)


def test_wilson_at_the_edges() -> None:
    assert wilson_interval(0, 5) == (0.0, pytest.approx(0.4345, abs=1e-4))
    assert wilson_interval(5, 5) == (pytest.approx(0.5655, abs=1e-4), 1.0)
    with pytest.raises(ValueError, match="not a proportion"):
        wilson_interval(1, 0)
