"""Taking turns and the paired ratio."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ptxbench.devices.cuda import Turns, paired_ratio, take_turns
from ptxbench.devices.cuda.timing import Sample


def scripted(name: str, order: list[str], milliseconds: float) -> Callable[[], Sample]:
    def sample() -> Sample:
        order.append(name)
        return Sample(event_ms=milliseconds + 0.001 * len(order), host_ms=milliseconds)

    return sample


def test_blocks_alternate_and_samples_land_on_their_side() -> None:
    order: list[str] = []
    turns = take_turns(scripted("a", order, 1.0), scripted("b", order, 2.0), 2, warm_up=0)
    assert "".join(order) == "abbabaab"
    assert turns.a == ((1.001, 1.004), (1.006, 1.007))
    assert turns.b == ((2.002, 2.003), (2.005, 2.008))


def test_warm_up_runs_are_not_kept() -> None:
    order: list[str] = []
    turns = take_turns(scripted("a", order, 1.0), scripted("b", order, 1.0), 1, warm_up=2)
    assert "".join(order) == "abab" + "abba"
    assert len(turns.a) == len(turns.b) == 1


def test_a_linear_drift_cancels_within_a_block() -> None:
    times = [1.0 + 0.01 * i for i in range(4)]
    turns = Turns(a=((times[0], times[3]),) * 5, b=((times[1], times[2]),) * 5)
    ratio = paired_ratio(turns)
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((1.0, 1.0, 1.0))


def test_the_ratio_is_time_a_over_time_b_and_its_interval_holds_it() -> None:
    blocks = 60
    turns = Turns(
        a=tuple((1.5 + 0.01 * (i % 7), 1.5) for i in range(blocks)),
        b=tuple((1.0, 1.0 + 0.01 * (i % 5)) for i in range(blocks)),
    )
    ratio = paired_ratio(turns)
    assert ratio.low <= ratio.median <= ratio.high
    assert ratio.median == pytest.approx(1.5, abs=0.03)
    assert ratio.high - ratio.low < 0.02
    assert paired_ratio(turns) == ratio
