"""How often the intervals cover what they promise, by simulation; docs/statistics.md shows the table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from ptxbench.stats import share, share_difference, wilson_interval

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
EPOCHS = 12
ROW = re.compile(r"^\| (\d+) \| (\d+) % \| (0\.\d) \| (\d+) % \| (\d+) % \| (\d+) % \|$", re.MULTILINE)


class Coverage(NamedTuple):
    """Shares of simulated runs whose 95 % interval holds the true rate."""

    wilson_other_tasks: float
    other_tasks: float
    these_tasks: float


def task_rates(rng: np.random.Generator, tasks: int, rate: float, likeness: float) -> np.ndarray:
    """Success rates of tasks: beta-distributed about ``rate``; ``likeness`` is the correlation of two trajectories of
    one task.
    """
    if likeness == 0:
        return np.full(tasks, rate)
    spread = 1 / likeness - 1
    return rng.beta(rate * spread, (1 - rate) * spread, tasks)


def coverage(tasks: int, rate: float, likeness: float, runs: int) -> Coverage:
    rng, draws = np.random.default_rng(2026), np.random.default_rng(2027)
    names = [f"task {i}" for i in range(tasks) for _ in range(EPOCHS)]
    covered = np.zeros(3)
    for _ in range(runs):
        rates = task_rates(rng, tasks, rate, likeness)
        flags = rng.random(len(names)) < np.repeat(rates, EPOCHS)
        found = share(flags, names, draws)
        low, high = wilson_interval(int(flags.sum()), flags.size)
        assert found.low is not None and found.high is not None
        covered += (low <= rate <= high, found.low <= rate <= found.high, found.low <= rates.mean() <= found.high)
    return Coverage(*(covered / runs).tolist())


def test_the_interval_covers_the_rate_on_these_tasks() -> None:
    assert coverage(tasks=5, rate=0.3, likeness=0.2, runs=150).these_tasks >= 0.94


def test_with_many_tasks_it_covers_that_of_others_and_wilsons_does_not() -> None:
    found = coverage(tasks=30, rate=0.5, likeness=0.3, runs=150)
    assert found.other_tasks >= 0.91 > 0.75 > found.wilson_other_tasks


def test_the_difference_of_two_models_is_covered() -> None:
    rng, draws = np.random.default_rng(2026), np.random.default_rng(2027)
    names = [f"task {i}" for i in range(12) for _ in range(EPOCHS)]
    covered = 0
    for _ in range(150):
        base = task_rates(rng, 12, 0.4, 0.3)
        better = np.minimum(base + 0.15, 1.0)
        first, second = (rng.random(len(names)) < np.repeat(rates, EPOCHS) for rates in (better, base))
        found = share_difference(first, second, names, draws)
        assert found.low is not None and found.high is not None
        covered += found.low <= (better - base).mean() <= found.high
    assert covered >= 0.93 * 150


@pytest.mark.slow
@pytest.mark.parametrize("row", ROW.findall(PAGE.read_text()), ids=" ".join)
def test_the_page_shows_the_coverage(row: tuple[str, ...]) -> None:
    tasks, rate, likeness, *shown = row
    found = coverage(int(tasks), int(rate) / 100, float(likeness), runs=1000)
    assert found == pytest.approx([int(percent) / 100 for percent in shown], abs=0.015)


def test_the_page_has_the_whole_table() -> None:
    assert len(ROW.findall(PAGE.read_text())) == 12
