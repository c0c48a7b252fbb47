"""From times taken in turns to a report."""

from __future__ import annotations

import pytest

from ptxbench.judge import Ceilings, blocks_for, judge_timing
from ptxbench.judge.timing import BLOCKS
from ptxbench.tasks import get_task

TASK = get_task("gemm_n7168_k5120")
SIZES = TASK.of_tier("core")[0].sizes
FLOPS = 2 * SIZES["M"] * SIZES["N"] * SIZES["K"]
CEILINGS = Ceilings(flops_per_second=8e14, bytes_per_second=4e12)


def test_speedup_is_baseline_over_candidate_and_the_rest_follows_from_the_median() -> None:
    report = judge_timing(
        TASK, SIZES, races=[([(0.8, 0.8)] * 15, [(0.76, 0.76)] * 15)] * 2,
        libraries=[("cublaslt", "13.0", 0.75), ("cublas", "13.0", 0.77)], absent={"other": "not installed"},
        ceilings=CEILINGS, conditions={"sm_mhz": [1755, 1800, 1980]},
    )  # fmt: skip
    assert report.speedup.median == pytest.approx(0.95)
    assert report.speedup.low == report.speedup.high == pytest.approx(0.95)
    assert (report.ms, report.samples, report.baseline) == (0.8, 60, "cublaslt")
    assert report.tflops == pytest.approx(FLOPS / 0.8e-3 / 1e12)
    assert report.speed_of_light == pytest.approx(FLOPS / 8e14 * 1e3 / 0.8)
    assert [(library.name, library.ms) for library in report.libraries] == [("cublaslt", 0.76), ("cublas", 0.77)]
    assert report.libraries[1].tflops == pytest.approx(FLOPS / 0.77e-3 / 1e12)


def test_the_interval_covers_a_ratio_that_drifts_in_both() -> None:
    drift = [1 + 0.001 * block for block in range(60)]
    race = ([(d, d) for d in drift], [(0.9 * d, 0.9 * d) for d in drift])
    report = judge_timing(
        TASK, SIZES, races=[race, race], libraries=[("cublas", "13.0", 0.9)], absent={}, ceilings=CEILINGS,
        conditions={},
    )  # fmt: skip
    assert report.speedup.low == pytest.approx(0.9) == report.speedup.high


def test_the_interval_tells_of_the_places_and_not_of_the_samples_in_each() -> None:
    races = [([(1.0, 1.0)] * 50, [(ratio, ratio)] * 50) for ratio in (0.71, 0.72, 0.73)]
    report = judge_timing(
        TASK, SIZES, races=races, libraries=[("cublas", "13.0", 0.72)], absent={}, ceilings=CEILINGS, conditions={},
    )  # fmt: skip
    assert report.speedup.median == pytest.approx((0.71 * 0.72 * 0.73) ** (1 / 3))
    assert (report.speedup.low, report.speedup.high) == pytest.approx((0.69553, 0.74523), abs=1e-5)
    assert report.samples == 300


def test_a_library_that_beats_products_alone_raises_the_ceiling() -> None:
    report = judge_timing(
        TASK, SIZES, races=[([(0.8, 0.8)] * 15, [(0.76, 0.76)] * 15)] * 2,
        libraries=[("cublaslt", "13.0", 0.75)], absent={}, conditions={},
        ceilings=Ceilings(flops_per_second=7e14, bytes_per_second=4e12),
    )  # fmt: skip
    assert report.speed_of_light == pytest.approx(0.76 / 0.8)


def test_memory_bounds_the_ceiling_of_thin_work() -> None:
    thin = {"M": 128, "N": 128, "K": 64}
    assert CEILINGS.floor_ms(TASK, thin) == pytest.approx(2 * (2 * 128 * 64 + 128 * 128) / 4e12 * 1e3)


@pytest.mark.parametrize(("ms", "blocks"), [(0.01, BLOCKS[1]), (0.75, 60), (1.5, 30), (100.0, BLOCKS[0])])
def test_the_number_of_blocks_follows_from_the_baseline(ms: float, blocks: int) -> None:
    assert blocks_for(ms) == blocks
