"""The earned tolerance separates honest kernels from cheats, on both sides, over many seeds."""

import ml_dtypes
import numpy as np
import pytest
from emulated_gemm import CHEATS, HONEST, INVISIBLE, blas, outputs, problem

from ptxbench.judge import MAX_FACTOR, RMS_FACTOR, judge_outputs, measure
from ptxbench.tasks import Problem, get_task

SEEDS = pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 20), marks=pytest.mark.slow)], ids=str)
SLOW = {"one by one", "tensor core, 8"}


def worst(of: Problem, kernel: str) -> tuple[float, float]:
    measured = measure(of, "C", outputs(HONEST[kernel], of)["C"])
    return float(max(measured.rms, measured.rms_blocks.max())), float(measured.max_blocks.max())


@SEEDS
@pytest.mark.parametrize("distribution", get_task("gemm_n7168_k5120").distributions)
def test_honest_orders_of_the_sum_pass_with_room(distribution: str, seeds: range) -> None:
    for seed in seeds:
        of = problem(distribution, seed)
        for name in HONEST.keys() - (SLOW if seed > 0 else set()):
            rms, largest = worst(of, name)
            assert rms <= 1.02, (name, seed)
            assert largest <= 1.1, (name, seed)


@SEEDS
@pytest.mark.parametrize("distribution", get_task("gemm_n7168_k5120").distributions)
def test_every_cheat_fails(distribution: str, seeds: range) -> None:
    for seed in seeds:
        of = problem(distribution, seed)
        for name, kernel in CHEATS.items():
            if (name, distribution) not in INVISIBLE:
                assert not measure(of, "C", outputs(kernel, of)["C"]).ok, (name, seed)


@pytest.mark.parametrize(
    ("name", "least"),
    [("truncated output", 1.8), ("split-K partials in bf16", 3.0), ("bf16 accumulator, 128", 7.0),
     ("scaled by 1.01", 6.0), ("fp8 A", 60.0), ("last 16 of K dropped", 300.0)],
)  # fmt: skip
def test_margin_of_cheats_on_normal_inputs(name: str, least: float) -> None:
    for seed in range(5):
        of = problem("normal", seed)
        report = judge_outputs(of, outputs(CHEATS[name], of))["C"]
        assert report.rms_ratio is not None and report.rms_ratio > least > RMS_FACTOR


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_pass_at_the_depth_of_the_core_shape(name: str) -> None:
    rms, largest = worst(problem("normal", 5, k=5120), name)
    assert rms <= 1.02 and largest <= 1.1


def cancelling(k: int, nearly: bool) -> Problem:
    """The second half of K undoes the first, wholly or but for a 64th: sums are large, results small."""
    of = problem("normal", 3, k=k)
    a, b = (np.abs(of.inputs[n].astype(np.float32)) for n in ("A", "B"))
    half = k // 2
    a[:, half:] = -a[:, :half]
    b[:, half:] = b[:, :half] * (1 + nearly / 64)
    for name, values in (("A", a), ("B", b)):
        of.inputs[name][:] = values.astype(ml_dtypes.bfloat16)
    return of.perturbed(1.0)


@pytest.mark.parametrize("nearly", [False, True])
def test_honest_kernels_pass_under_cancellation(nearly: bool) -> None:
    of = cancelling(1024, nearly)
    for name in HONEST:
        rms, largest = worst(of, name)
        assert rms <= RMS_FACTOR / 1.2 and largest <= MAX_FACTOR / 1.5, name
    for name in ("bf16 accumulator, 64", "fp8 operands"):
        report = judge_outputs(of, outputs(CHEATS[name], of))["C"]
        assert report.ok == (name == "fp8 operands" and not nearly)


def test_an_error_in_a_tiny_row_is_seen_beside_huge_rows() -> None:
    of = problem("wide_range", 4)
    result = outputs(blas, of)
    row = int(np.argmin(np.abs(of.truth["C"]).mean(axis=1)))
    assert np.abs(of.truth["C"][row]).max() < 1e-4 * np.abs(of.truth["C"]).max()
    result["C"][row] = 0
    report = judge_outputs(of, result)["C"]
    assert not report.ok and report.first_bad[0] == row and report.pattern == f"zero in rows {row} in all columns"


def test_sums_that_are_exactly_zero_must_be_zero() -> None:
    of = problem("spikes", 1)
    zeros = of.noise["C"] == 0
    assert zeros.any()
    result = outputs(blas, of)
    assert judge_outputs(of, result)["C"].ok
    result["C"][np.nonzero(zeros)[0][0], np.nonzero(zeros)[1][0]] = 1e-20
    assert not judge_outputs(of, result)["C"].ok


def test_one_wrong_block_is_not_diluted_by_many_right_ones() -> None:
    of = problem("normal", 2, m=512, n=512, k=1024)
    result = outputs(blas, of)
    accumulated = outputs(CHEATS["bf16 accumulator, 128"], of)["C"]
    result["C"][128:256, 384:512] = accumulated[128:256, 384:512]
    report = judge_outputs(of, result)["C"]
    assert report.worst_block_ratio is not None and report.worst_block_ratio > 4
    assert not report.ok
