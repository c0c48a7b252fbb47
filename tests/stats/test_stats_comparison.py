from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.stats import holm, newcombe_interval, permutation_test, share_difference

EXAMPLES = settings(max_examples=40, deadline=None)
PAIRS = st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.booleans()), min_size=1, max_size=6)
Pair = tuple[str, bool, bool]


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def by_enumeration(pairs: list[Pair]) -> float:
    """The p-value by trying every assignment of each task's trajectories to the two runs."""
    totals = np.zeros(1, dtype=int)
    for task in {task for task, _, _ in pairs}:
        own = [flag for name, *flags in pairs if name == task for flag in flags]
        sums = [sum(chosen) for chosen in itertools.combinations(own, len(own) // 2)]
        totals = np.add.outer(totals, sums).ravel()
    chance = np.bincount(totals, minlength=len(pairs) + 1) / totals.size
    observed = sum(first for _, first, _ in pairs)
    return float(chance[chance <= chance[observed] + 1e-12].sum())


@EXAMPLES
@given(PAIRS)
def test_the_permutation_test_agrees_with_enumeration(pairs: list[Pair]) -> None:
    tasks, first, second = zip(*pairs, strict=True)
    assert permutation_test(first, second, tasks) == pytest.approx(by_enumeration(pairs))


@EXAMPLES
@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_epochs_and_runs_changes_nothing(pairs: list[Pair], random: object) -> None:
    tasks, first, second = zip(*pairs, strict=True)
    p = permutation_test(first, second, tasks)
    assert permutation_test(second, first, tasks) == pytest.approx(p)
    shuffled = sorted(pairs, key=lambda pair: (pair[0], random.random()))  # type: ignore[attr-defined]
    names, other, _ = zip(*shuffled, strict=True)
    _, _, kept = zip(*sorted(pairs, key=lambda pair: pair[0]), strict=True)
    assert permutation_test(other, kept, names) == pytest.approx(p)


def test_one_task_is_fishers_exact_test() -> None:
    """Fisher's tea tasting: 3 of 4 against 1 of 4 has the two-sided p-value 34/70."""
    assert permutation_test([1, 1, 1, 0], [0, 0, 0, 1], ["tea"] * 4) == pytest.approx(34 / 70)


def test_equal_models_are_found_different_at_most_as_often_as_the_level_says() -> None:
    draw = rng()
    tasks = [task for task in "abcde" for _ in range(12)]
    chance = np.repeat([0.05, 0.3, 0.5, 0.7, 0.95], 12)
    p_values = [permutation_test(draw.random(60) < chance, draw.random(60) < chance, tasks) for _ in range(1000)]
    assert 0.02 <= np.mean(np.array(p_values) <= 0.05) <= 0.06


def test_hardness_that_both_runs_share_cancels() -> None:
    """Easy tasks at 20 and 18 of 20, hard ones at 3 and 1 of 20: without the pairing the interval would hold 0."""
    tasks = [task for task in "abcdef" for _ in range(20)]
    epoch, hard = np.arange(120) % 20, np.array([task in "abc" for task in tasks])
    better = share_difference(epoch < np.where(hard, 3, 20), epoch < np.where(hard, 1, 18), tasks, rng())
    assert better.value == pytest.approx(0.1)
    assert better.low > 0.02  # type: ignore[operator]
    unpaired_low, _ = newcombe_interval((69, 57), (120, 120))
    assert unpaired_low < 0


def test_the_difference_turns_round_with_the_runs() -> None:
    tasks, first, second = ["a", "a", "b", "b"], [1, 1, 1, 0], [0, 1, 0, 0]
    there, back = share_difference(first, second, tasks, rng()), share_difference(second, first, tasks, rng())
    assert there.value == -back.value  # type: ignore[operator]
    assert there.low == pytest.approx(-back.high)  # type: ignore[operator]


def test_unpaired_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="paired flags"):
        share_difference([1, 0], [1], ["a", "a"], rng())
    nothing = share_difference([], [], [], rng())
    assert (nothing.value, nothing.low, nothing.high) == (None, None, None)


def test_newcombes_published_examples() -> None:
    """Newcombe (1998), table II, method 10: contrasts (a), (c) and (g)."""
    for successes, trials, low, high in (
        ((56, 48), (70, 80), 0.0524, 0.3339),
        ((6, 2), (7, 7), 0.0582, 0.8062),
        ((10, 0), (10, 10), 0.6075, 1.0),
    ):
        found = newcombe_interval(successes, trials)
        assert found == (pytest.approx(low, abs=2e-4), pytest.approx(high, abs=2e-4))


@EXAMPLES
@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_rejects_what_the_step_down_rule_rejects(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for level in (0.01, 0.05, 0.2):
        rejected: set[int] = set()
        for rank, place in enumerate(np.argsort(p_values, kind="stable")):
            if p_values[place] * (len(p_values) - rank) > level:
                break
            rejected.add(int(place))
        assert {i for i, p in enumerate(adjusted) if p <= level} == rejected
    assert all(before <= after <= 1 for before, after in zip(p_values, adjusted, strict=True))
