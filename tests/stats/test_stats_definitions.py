from __future__ import annotations

import doctest
import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.core import Interval, Outcome, ReplyOutcome, StopReason, Target, TrajectoryRecord, TurnRecord
from ptxbench.stats import (
    best_of,
    clean_at,
    comparison,
    correct_at,
    definitions,
    executed_at,
    fast_p,
    mean_pass_at_k,
    pass_at_k,
    per_solved,
    resampling,
    share,
    speedup_of,
    speedup_quantile,
)

EXAMPLES = settings(max_examples=40, deadline=None)
TRIES = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(1, 9)), min_size=2, max_size=12)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def speed(value: float) -> Interval:
    return Interval(median=value, low=value, high=value)


def attempt(*turns: Outcome | float | None, remeasured: float | None = None) -> TrajectoryRecord:
    """A trajectory of turns: an outcome, the speedup of a kernel that passed, or None for a reply without a kernel."""
    records = [
        TurnRecord(
            index=index, reply=ReplyOutcome.NO_CODE if turn is None else ReplyOutcome.EXTRACTED,
            outcome=Outcome.PASSED if isinstance(turn, float) else turn, verdict_key=f"key {index}",
            speedup=speed(turn) if isinstance(turn, float) else None,
        )
        for index, turn in enumerate(turns, start=1)
    ]  # fmt: skip
    return TrajectoryRecord(
        run="r", task="t", target=Target.SM_90A, epoch=1, prompt_digest="", turns=tuple(records), started="",
        stop=StopReason.TURNS_USED, seconds=1.0, remeasured=None if remeasured is None else speed(remeasured),
    )  # fmt: skip


@pytest.mark.parametrize("module", [definitions, comparison, resampling])
def test_docstring_examples_hold(module: object) -> None:
    found = doctest.testmod(module)  # type: ignore[arg-type]
    assert found.failed == 0
    assert found.attempted > 0


def test_every_estimator_has_a_worked_example() -> None:
    public = [definitions.share, definitions.fast_p, definitions.pass_at_k, definitions.mean_pass_at_k,
              definitions.speedup_quantile, definitions.per_solved, comparison.share_difference,
              comparison.permutation_test, comparison.holm, resampling.estimate]  # fmt: skip
    assert all(">>>" in (function.__doc__ or "") for function in public)


def test_a_kernel_without_the_target_instructions_is_correct_and_not_executed() -> None:
    one = attempt(Outcome.COMPILE_ERROR, Outcome.INSTRUCTION_MISSING, None, 0.9, Outcome.WRONG_RESULT)
    assert [correct_at(one, turn) for turn in range(1, 6)] == [False, True, True, True, True]
    assert [executed_at(one, turn) for turn in range(1, 6)] == [False, False, False, True, True]


def test_every_outcome_is_counted_as_its_name_says() -> None:
    correct = {outcome for outcome in Outcome if correct_at(attempt(outcome), 1)}
    assert correct == {Outcome.INSTRUCTION_MISSING, Outcome.CORRECT_UNTIMED, Outcome.PASSED}
    executed = {outcome for outcome in Outcome if executed_at(attempt(outcome), 1)}
    assert executed == {Outcome.CORRECT_UNTIMED, Outcome.PASSED}


def test_clean_needs_one_of_the_named_verdicts() -> None:
    one = attempt(Outcome.CORRECT_UNTIMED, Outcome.CORRECT_UNTIMED)
    assert [clean_at(one, turn, {"key 2"}) for turn in (1, 2)] == [False, True]
    assert not clean_at(attempt(None), 1, set())


def test_speed_of_a_trajectory_is_what_was_measured_after_the_choice() -> None:
    assert speedup_of(attempt(Outcome.WRONG_RESULT)) == 0
    assert speedup_of(attempt(None, 0.7)) == 0.7
    assert speedup_of(attempt(0.7, 0.9)) is None
    assert speedup_of(attempt(0.7, 0.9, remeasured=0.85)) == 0.85


def test_best_of_trajectories_chooses_by_the_first_measurement() -> None:
    tries = [attempt(0.9, remeasured=0.99), attempt(1.1, 1.2, remeasured=0.95), attempt(Outcome.TIMEOUT)]
    assert best_of(tries) == speed(0.95)
    assert best_of([attempt(0.9), attempt(0.8)]) is None
    assert best_of([attempt(0.9), attempt(None)]) == speed(0.9)
    assert best_of([]) is None


def test_the_winner_of_equal_kernels_is_not_faster() -> None:
    """Kernels as fast as the baseline, measured with 2 % error: the maximum says 3 % faster, what is reported does
    not.
    """
    draw = rng()
    chosen, reported = [], []
    for _ in range(400):
        tries = [attempt(*draw.normal(1, 0.02, 5).tolist(), remeasured=draw.normal(1, 0.02)) for _ in range(2)]
        chosen.append(max(turn.speedup.median for one in tries for turn in one.turns if turn.speedup))
        best = best_of(tries)
        assert best is not None
        reported.append(best.median)
    assert np.mean(chosen) == pytest.approx(1.031, abs=0.003)
    assert np.mean(reported) == pytest.approx(1.0, abs=0.004)


@EXAMPLES
@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_success(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(float(Fraction(sum(map(any, subsets)), len(subsets))))


@EXAMPLES
@given(st.integers(1, 8), st.floats(0, 1), st.data())
def test_pass_at_k_is_unbiased(n: int, p: float, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    chances = [float(np.prod([p] * c + [1 - p] * (n - c))) * len(list(itertools.combinations(range(n), c)))
               for c in range(n + 1)]  # fmt: skip
    mean = sum(chance * pass_at_k(n, c, k) for c, chance in enumerate(chances))
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-9)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 5), (4, 5, 1), (4, -1, 1), (4, 1, 0), (0, 0, 1)])
def test_pass_at_k_refuses_what_it_cannot_know(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="pass@"):
        pass_at_k(n, c, k)


def test_mean_pass_at_k_needs_k_trajectories_of_every_task() -> None:
    with pytest.raises(ValueError, match="at least 2 trajectories"):
        mean_pass_at_k([1, 1, 0], ["gemm", "gemm", "mha"], 2, rng())


@EXAMPLES
@given(TRIES, st.randoms(use_true_random=False))
def test_the_order_of_trajectories_changes_nothing(tries: list[tuple[str, bool, int]], random: object) -> None:
    shuffled = list(tries)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    def estimates(rows: Sequence[tuple[str, bool, int]]) -> list[object]:
        tasks, flags, values = zip(*rows, strict=True)
        speeds = [value / 4 if flag else 0.0 for flag, value in zip(flags, values, strict=True)]
        return [
            share(flags, tasks, rng()), fast_p(speeds, 1.0, tasks, rng()), mean_pass_at_k(flags, tasks, 1, rng()),
            speedup_quantile(speeds, 0.5, tasks, rng()), per_solved(values, flags, tasks, rng()),
        ]  # fmt: skip

    assert estimates(tries) == estimates(shuffled)


@EXAMPLES
@given(TRIES)
def test_intervals_hold_their_value_and_stay_in_range(tries: list[tuple[str, bool, int]]) -> None:
    tasks, flags, values = zip(*tries, strict=True)
    for found in (share(flags, tasks, rng()), mean_pass_at_k(flags, tasks, 1, rng())):
        assert 0 <= found.low <= found.value <= found.high <= 1  # type: ignore[operator]
        assert found.high - found.low > 0  # type: ignore[operator]
    tokens = per_solved(values, flags, tasks, rng())
    if any(flags):
        assert tokens.value == pytest.approx(sum(values) / sum(flags))
        assert tokens.high is None or tokens.low <= tokens.value <= tokens.high  # type: ignore[operator]
    else:
        assert tokens.value is None and tokens.high is None


@EXAMPLES
@given(st.lists(st.floats(0, 3), min_size=1, max_size=12), st.floats(0, 2), st.floats(0, 2))
def test_fast_p_falls_as_p_grows(speeds: list[float], p: float, q: float) -> None:
    tasks = ["t"] * len(speeds)
    low, high = sorted((p, q))
    slow, fast = fast_p(speeds, low, tasks, rng()).value, fast_p(speeds, high, tasks, rng()).value
    assert slow >= fast  # type: ignore[operator]


def test_fast_p_compares_strictly() -> None:
    assert fast_p([1.0, 1.0 + 1e-9], 1.0, ["t", "t"], rng()).value == 0.5


@EXAMPLES
@given(st.lists(st.floats(0.01, 3), min_size=1, max_size=15), st.floats(0.01, 1))
def test_quantiles_agree_with_numpy(speeds: list[float], q: float) -> None:
    found = speedup_quantile(speeds, q, ["t"] * len(speeds), rng())
    assert found.value == np.quantile(speeds, q, method="inverted_cdf")


def test_one_task_gets_wilsons_interval() -> None:
    found = share([1] * 8 + [0] * 2, ["gemm"] * 10, rng())
    assert (found.low, found.high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))


def test_tasks_that_disagree_widen_the_interval() -> None:
    tasks = [task for task in "abcdef" for _ in range(20)]
    alike = share([i % 2 for i in range(120)], tasks, rng())
    apart = share([task in "abc" for task in tasks], tasks, rng())
    assert alike.value == apart.value == 0.5
    assert apart.high - apart.low > 3 * (alike.high - alike.low)  # type: ignore[operator]


def test_nothing_has_no_value() -> None:
    for found in (share([], [], rng()), per_solved([], [], [], rng()), speedup_quantile([0.0], 0.5, ["t"], rng())):
        assert (found.value, found.low, found.high) == (None, None, None)


def test_a_single_trajectory_says_nothing_of_its_spread() -> None:
    found = per_solved([500], [1], ["t"], rng())
    assert (found.value, found.low, found.high) == (500.0, None, None)
