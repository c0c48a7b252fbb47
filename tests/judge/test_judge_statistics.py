"""Thresholds on statistics that were made elsewhere, and where a wrong output is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxbench.core import Argument
from ptxbench.judge import MAX_FACTOR, RMS_FACTOR, BlockStatistics, judge_outputs, judge_statistics, measure, worst_of
from ptxbench.tasks import get_task, make_problem

C = Argument(name="C", role="output", dtype="bf16", shape=("M", "N"))
O = Argument(name="O", role="output", dtype="bf16", shape=("B", "H", "S", "D"))  # noqa: E741
LSE = Argument(name="LSE", role="output", dtype="f32", shape=("B", "H", "S"))
RIGHT = BlockStatistics(elements=512 * 512, rms=1.0, worst_rms=1.1, largest=1.2, bad=0, unwritten=0, not_finite=0)


def wrong(shape: tuple[int, ...], where: tuple[slice | int, ...], block: tuple[int, ...]) -> BlockStatistics:
    """Blocks at ``where`` are wrong throughout."""
    rms = np.ones(shape)
    rms[where] = 50.0
    bad = int((rms > 1).sum()) * int(np.prod(block))
    return BlockStatistics(
        elements=rms.size * int(np.prod(block)), rms=2.0, worst_rms=50.0, largest=80.0, bad=bad, unwritten=0,
        not_finite=0, first_bad=(0,), block=block, rms_blocks=rms, max_blocks=rms,
    )


def test_an_honest_output_is_right() -> None:
    report = judge_statistics(C, RIGHT)
    assert report.ok and report.pattern == "" and report.bad_share == 0
    assert (report.rms_ratio, report.worst_block_ratio, report.max_ratio) == (1.0, 1.1, 1.2)


@pytest.mark.parametrize("change", [
    {"rms": RMS_FACTOR * 1.01}, {"worst_rms": RMS_FACTOR * 1.01}, {"largest": MAX_FACTOR * 1.01}, {"bad": 1},
    {"not_finite": 1}, {"rms": float("inf")},
])
def test_each_bound_counts(change: dict[str, float]) -> None:
    report = judge_statistics(C, replace(RIGHT, **change))
    assert not report.ok and report.pattern
    assert report.rms_ratio is None or report.rms_ratio < 1e300


@pytest.mark.parametrize(("argument", "found", "place"), [
    (C, wrong((4, 4), (3, 1), (128, 128)), "rows 384-511, columns 128-255"),
    (C, wrong((4, 4), (slice(None), 3), (128, 128)), "columns 384-511"),
    (C, wrong((4, 4), (slice(None),), (128, 128)), "everywhere"),
    (O, wrong((2, 4, 8, 1), (1, 3, 7), (1, 1, 128, 128)), "batch 1, head 3, rows 896-1023"),
    (LSE, wrong((2, 4, 8), (slice(None), 3), (1, 1, 128)), "head 3"),
])
def test_the_pattern_names_blocks(argument: Argument, found: BlockStatistics, place: str) -> None:
    assert judge_statistics(argument, found).pattern == f"wrong values: {place}"


def test_blocks_in_no_order_are_counted() -> None:
    found = wrong((4, 4), (slice(None),), (128, 128))
    found = replace(found, rms_blocks=np.where(np.eye(4) > 0, 50.0, 1.0), max_blocks=np.ones((4, 4)))
    assert judge_statistics(C, found).pattern == "wrong values: in 4 of 16 blocks of 128x128"


def test_what_was_never_written_is_told() -> None:
    assert judge_statistics(C, replace(RIGHT, bad=4, unwritten=RIGHT.elements)).pattern == "never written: everywhere"
    half = replace(RIGHT, bad=4, unwritten=RIGHT.elements // 2)
    assert "50.0% of the elements never written" in judge_statistics(C, half).pattern


def test_of_several_calls_the_first_wrong_one_is_told_and_else_the_largest_error() -> None:
    good, better = judge_statistics(C, RIGHT), judge_statistics(C, replace(RIGHT, worst_rms=1.05))
    bad = judge_statistics(C, replace(RIGHT, bad=7, first_bad=(1, 2)))
    assert worst_of([{"C": better}, {"C": good}]) == {"C": good}
    assert worst_of([{"C": good}, {"C": bad}, {"C": better}]) == {"C": bad}


def test_statistics_and_arrays_are_judged_alike() -> None:
    """The thresholds are those of `judge_outputs` on the same output."""
    task = get_task("gemm_n7168_k5120")
    problem = make_problem(task, task.of_tier("small")[0], "normal", seed=5)
    for output in (problem.honest["C"], (problem.honest["C"] * 1.01).astype(problem.honest["C"].dtype)):
        measured, report = measure(problem, "C", output), judge_outputs(problem, {"C": output})["C"]
        found = judge_statistics(C, BlockStatistics(
            elements=output.size, rms=measured.rms, worst_rms=float(measured.rms_blocks.max()),
            largest=float(measured.max_blocks.max()), bad=int((measured.ratio > MAX_FACTOR).sum()), unwritten=0,
            not_finite=0, block=(128, 128), rms_blocks=measured.rms_blocks, max_blocks=measured.max_blocks,
        ))  # fmt: skip
        assert (found.ok, found.rms_ratio, found.max_ratio) == (report.ok, report.rms_ratio, report.max_ratio)
        assert found.bad_share == pytest.approx(report.bad_share)
