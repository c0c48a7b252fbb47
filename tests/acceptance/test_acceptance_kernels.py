"""Honest kernels of different style are accepted: no false alarm, no false rejection."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence

import pytest
from honest_kernels import KERNELS, HonestKernel, honest_kernels
from study import problems_of, replayed

from ptxbench.core import Candidate, Outcome, Target, Verdict
from ptxbench.evaluate import LocalEvaluator
from ptxbench.tasks import Problem

SEEDS = 20
WIDE_RMS, WIDE_LARGEST = 1.1, 1.5  # the bounds are 1.5 and 3


def rows(*, wide: bool = False) -> list[object]:
    """Every row; all but the quick ones, or all of them for the wide run, are slow."""
    return [
        pytest.param(row, id=row.name, marks=() if row.quick and not wide else pytest.mark.slow)
        for row in honest_kernels()
    ]


@functools.lru_cache(maxsize=1)
def problems(task: str) -> Sequence[Problem]:
    return problems_of(task, SEEDS)


def check(verdict: Verdict) -> None:
    assert verdict.outcome is Outcome.CORRECT_UNTIMED, f"{verdict.reason} {verdict.advice}"
    assert verdict.hazards == ()
    report = verdict.instructions
    assert (report.families[verdict.target.sheet.matrix_family].carried or 0) >= 0.95
    assert (report.other_math_share or 0) <= 0.05  # the bound is 0.1
    assert report.perturbation_followed == 1.0


@pytest.mark.parametrize("row", rows())
def test_an_honest_kernel_is_accepted_and_clean(evaluator: LocalEvaluator, row: HonestKernel) -> None:
    check(evaluator.evaluate(row.candidate()))


@pytest.mark.parametrize("row", rows(wide=True))
def test_an_honest_kernel_is_right_on_every_seed_and_distribution(
    evaluator: LocalEvaluator, row: HonestKernel
) -> None:
    check_wide(evaluator, row.candidate())


def check_wide(evaluator: LocalEvaluator, candidate: Candidate) -> None:
    tried = 0
    for found in replayed(evaluator, candidate, problems(candidate.task)):
        assert found.ok and found.rms <= WIDE_RMS and found.largest <= WIDE_LARGEST, found
        tried += 1
    assert tried >= SEEDS * 4


def test_there_are_kernels_enough_and_every_source_serves() -> None:
    kernels = honest_kernels()
    assert len({row.name for row in kernels}) == len(kernels)
    assert len({row.source() for row in kernels}) == len(kernels)
    per_kind = Counter((row.name.split("-")[0], row.target) for row in kernels)
    assert per_kind["gemm", Target.SM_90A] >= 14 and per_kind["gemm", Target.SM_100A] >= 6
    assert per_kind["forward", Target.SM_90A] >= 4 and per_kind["backward", Target.SM_90A] >= 2
    assert per_kind["forward", Target.SM_100A] + per_kind["backward", Target.SM_100A] >= 2
    files = {str(path.relative_to(KERNELS)) for path in KERNELS.rglob("*.cu")}
    assert files == {row.file for row in kernels}


def test_parts_are_included_in_place_and_constants_set() -> None:
    row = HonestKernel("gemm-x", "gemm_sm_90a/ring.cu", "", {"TILE_N": 64, "STAGES": 2})
    text = row.source()
    assert '#include "' not in text
    assert "constexpr int TILE_N = 64, STAGES = 2, SWIZZLE = 128;" in text
    assert HonestKernel("forward-x", "attention_sm_90a/forward_online.cu", "", {"CAUSAL": 1}).task.endswith("_causal")


def test_a_constant_that_the_source_does_not_set_is_an_error() -> None:
    with pytest.raises(ValueError, match="sets WIDTH 0 times"):
        HonestKernel("gemm-x", "gemm_sm_90a/ring.cu", "", {"WIDTH": 64}).source()
