"""Whole GEMMs on both targets: results, counts, schedules, perturbation."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from simulator_gemm import CLUSTER, GEMMS, PAIR, PLAIN, SCHEDULES, SINGLE, Gemm, Problem

from ptxbench.core import RunOptions, Schedule, families_of

PROBLEM = Problem.random(256, 256, 1024)
by_kernel = pytest.mark.parametrize("gemm", GEMMS, ids=lambda gemm: gemm.kernel)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ptx")
    found = {gemm.source: gemm.text(folder) for gemm in (PLAIN, SINGLE)}
    return {gemm.kernel: found[gemm.source] for gemm in GEMMS}


def error_of(gemm: Gemm, c: np.ndarray, truth: np.ndarray) -> float:
    """The largest error in units of the output's precision at the largest value."""
    unit = 2.0**-8 if gemm.bf16_output else 2.0**-20
    return float(np.abs(c - truth).max() / (unit * np.abs(truth).max()))


@by_kernel
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.label)
def test_every_schedule_gives_the_right_product(gemm, schedule, texts):
    seen, c = gemm.run(texts[gemm.kernel], PROBLEM, RunOptions(schedule=schedule))
    assert seen.fault is None
    assert seen.hazards == ()
    assert seen.schedule == schedule
    assert error_of(gemm, c, PROBLEM.truth) < 1


@by_kernel
def test_schedules_agree_bit_for_bit(gemm, texts):
    results = [gemm.run(texts[gemm.kernel], PROBLEM, RunOptions(schedule=schedule))[1] for schedule in SCHEDULES[:5]]
    assert all(np.array_equal(results[0], result) for result in results[1:])


@by_kernel
def test_perturbation_scales_every_product(gemm, texts):
    _, c = gemm.run(texts[gemm.kernel], PROBLEM, RunOptions(perturbation=1.375))
    assert error_of(gemm, c, 1.375 * PROBLEM.truth) < 2


@by_kernel
def test_matrix_flops_are_those_of_the_problem(gemm, texts):
    seen, _ = gemm.run(texts[gemm.kernel], PROBLEM)
    products = [site for site in seen.counts if site.flops]
    assert sum(site.flops for site in products) == 2 * 256 * 256 * 1024
    assert {site.operand_dtype for site in products} == {"bf16"}
    assert all(site.frames and site.frames[0][0].endswith(gemm.source) for site in products)


def executed_by_family(gemm: Gemm, text: str, size: int) -> Counter[str]:
    seen, _ = gemm.run(text, Problem.random(size, size, size))
    assert seen.fault is None
    counts: Counter[str] = Counter()
    for site in seen.counts:
        family = next((f.name for f in families_of(gemm.target) if f.matches_ptx(site.opcode)), "")
        counts[family] += site.executed
    return counts


def test_counts_of_the_hopper_gemm_are_those_of_hardware(texts):
    # The same structure gave these warp-level counts on an H200 at 512^3 (facts of the CUPTI measurement).
    counts = executed_by_family(CLUSTER, texts["gemm_cluster"], 512)
    assert counts["wgmma"] == 4096
    assert counts["tma_load"] == 256
    assert counts["stmatrix"] == 1024
    assert counts["tma_store"] == 64


def test_counts_of_the_blackwell_gemm(texts):
    single = executed_by_family(SINGLE, texts["gemm_single"], 512)
    assert (single["tcgen05"], single["tma_load"], single["tcgen05_commit"]) == (512, 256, 16 * 9)
    pair = executed_by_family(PAIR, texts["gemm_pair"], 512)
    assert (pair["tcgen05"], pair["tma_load"]) == (256, 256)


def test_tma_bytes_are_the_bytes_of_the_tiles(texts):
    seen, _ = PLAIN.run(texts["gemm_plain"], PROBLEM)
    loaded = sum(site.bytes for site in seen.counts if site.opcode.startswith("cp.async.bulk.tensor"))
    assert loaded == 4 * (1024 // 64) * 2 * 128 * 64 * 2


def test_runs_in_parallel_threads_do_not_disturb_each_other(texts):
    def one(seed: int) -> bool:
        problem = Problem.random(128, 128, 256 + 64 * seed)
        _, c = PLAIN.run(texts["gemm_plain"], problem, RunOptions(schedule=Schedule(seed=seed)))
        return error_of(PLAIN, c, problem.truth) < 1

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(8)))
