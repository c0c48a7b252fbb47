"""Slowdowns invalidate blocks; what is read is summarised."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ptxbench.core import DeviceError
from ptxbench.devices.cuda.conditions import Condition, Conditions, reason_names, summarised
from ptxbench.devices.cuda.timing import Sample
from ptxbench.devices.cuda.turns import REPEATS, WARM_UP, take_valid_blocks

COOL = Condition(sm_mhz=1755, memory_mhz=3201, watts=690.0, celsius=60, reasons=("software_power_cap",))
HOT = COOL.model_copy(update={"celsius": 92, "reasons": ("hardware_thermal_slowdown",)})


def timer(log: list[str], name: str) -> Callable[[], Sample]:
    def sample() -> Sample:
        log.append(name)
        return Sample(event_ms=float(len(log)), host_ms=1e9)

    return sample


def reader(conditions: Iterator[Condition]) -> Callable[[], Condition]:
    return lambda: next(conditions, COOL)


def test_bits_have_names_and_unknown_ones_numbers() -> None:
    assert reason_names(0) == ()
    assert reason_names(0x4 | 0x20) == ("software_power_cap", "software_thermal_slowdown")
    assert reason_names(0x1000) == ("0x1000",)


def test_a_power_cap_is_normal_and_heat_is_not() -> None:
    assert COOL.valid and not HOT.valid


def test_blocks_under_a_slowdown_are_taken_again_after_a_pause() -> None:
    log: list[str] = []
    pauses: list[float] = []
    turns, seen = take_valid_blocks(timer(log, "a"), timer(log, "b"), 4, reader(iter([COOL, HOT, HOT])), pauses.append)
    assert len(turns.a) == len(turns.b) == 4 and len(seen) == 6 and len(pauses) == 1
    assert "".join(log) == "ab" * WARM_UP + "abba" "baab" "abba" "baab" "abba" "baab"


def test_a_device_that_stays_hot_gives_no_times() -> None:
    log: list[str] = []
    with pytest.raises(DeviceError, match="hardware_thermal_slowdown"):
        take_valid_blocks(timer(log, "a"), timer(log, "b"), 2, lambda: HOT, lambda _: None)
    assert len(log) == 2 * WARM_UP + 4 * 2 * (1 + REPEATS)


def test_slow_work_ends_after_one_block() -> None:
    log: list[str] = []
    turns, seen = take_valid_blocks(timer(log, "a"), timer(log, "b"), 9, lambda: COOL, seconds=0.0)
    assert len(turns.a) == len(seen) == 1
    assert "".join(log) == "ab" * WARM_UP + "abba"


def test_a_summary_has_range_and_reasons() -> None:
    found = summarised([COOL, HOT, COOL])
    assert found["celsius"] == [60.0, 60.0, 92.0]
    assert found["reasons"] == {"hardware_thermal_slowdown": 1, "software_power_cap": 2}
    assert summarised([]) == {}


@pytest.mark.gpu
def test_this_gpu_can_be_read(gpu: object) -> None:
    properties: dict[str, str] = getattr(gpu, "properties")  # noqa: B009
    with Conditions(properties["pci_bus_id"]) as conditions:
        condition = conditions.read()
    assert 100 < condition.sm_mhz < 4000 and 10 < condition.watts < 1500 and 10 < condition.celsius < 100
