"""Verdicts of a GPU's run in a build, and the order in which faults are tried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from adapt_verdicts import Judge, a_verdict, as_kernel, some_variants

from ptxbench.adapt import Recipe, RecordedFirst, build, load_faults, read_verdicts
from ptxbench.adapt.data.faults import Fault
from ptxbench.adapt.data.judged import GoodKernel, Say, judge_good
from ptxbench.adapt.data.planning import plan_attempts
from ptxbench.adapt.data.recipe import Faults
from ptxbench.core import FamilyReport, InstructionReport, Interval, Outcome, TimingReport, UsageError
from ptxbench.solutions import include_dir
from ptxbench.tasks import get_task

TASKS = ("gemm_f16", "gemm_a_km", "gemm_b_kn")


@contextmanager
def silent(title: str, total: int) -> Generator[Say]:
    yield lambda line: None


def timed(median: float) -> TimingReport:
    speedup = Interval(median=median, low=0.98 * median, high=1.02 * median)
    return TimingReport(speedup=speedup, baseline="cublas", ms=1.0, tflops=1.0, speed_of_light=0.1)


def named(*names: str) -> Sequence[Fault]:
    return [fault for fault in load_faults() if fault.name in names]


def good(task: str, count: int) -> list[GoodKernel]:
    results = [judge_good(Judge(), as_kernel(one), 0.15) for one in some_variants("gemm_hopper", task, count)]
    return [result for result in results if isinstance(result, GoodKernel)]


def test_every_task_is_planned_for_equally() -> None:
    kernels = [item for task in TASKS for item in good(task, 8)]
    faults = [fault for fault in load_faults() if not fault.only_slow][:30]
    limits = Faults(per_fault=2, tries=4, unlike=0.8)
    planned = plan_attempts(faults, kernels, limits)
    assert [one.fault.name for one in planned] == [fault.name for fault in faults]
    first = [attempt.good.kernel.task.name for one in planned for attempt in one.attempts[:2]]
    shares = Counter(first)
    assert max(shares.values()) - min(shares.values()) <= 2
    again = plan_attempts(faults, kernels, limits)
    assert [[a.good.kernel.name for a in one.attempts] for one in planned] == [
        [a.good.kernel.name for a in one.attempts] for one in again
    ]


def test_attempts_are_all_that_a_fault_applies_to() -> None:
    kernels = good("gemm_f16", 6)
    (fault,) = named("missing_semicolon")
    (planned,) = plan_attempts([fault], kernels, Faults(per_fault=1, tries=2))
    assert {attempt.good.kernel.name for attempt in planned.attempts} == {item.kernel.name for item in kernels}
    assert all(attempt.source == fault.apply_to(attempt.good.kernel.variant) for attempt in planned.attempts)


def test_slow_rows_come_from_recorded_verdicts(tmp_path: Path) -> None:
    (variant,) = [one for one in some_variants("gemm_hopper", "gemm_f16", 99) if one.design.get("stages") == 4][:1]
    (fault,) = named("sleep_before_wait")
    slow = fault.apply_to(variant)
    assert slow is not None
    assert "__nanosleep(2000);\n" in slow
    counted = InstructionReport(
        sizes=dict(get_task("gemm_f16").of_tier("core")[0].sizes),
        families={"wgmma": FamilyReport(claimed=1, compiled=4, executed=4587520, carried=1.0)},
    )
    gpu: dict[str, Any] = {
        "device": {"name": "NVIDIA H200"}, "versions": {"code": "4567"}, "instructions": counted,
        "reason": "Correct and carried; 0.100 times the speed of cublaslt (95 % interval 0.098 to 0.102).",
    }  # fmt: skip
    lines = [
        a_verdict(variant.source, Outcome.PASSED, timing=timed(0.8), **gpu).model_dump_json(),
        a_verdict(slow, Outcome.PASSED, timing=timed(0.1), **gpu).model_dump_json(),
        '{"schema": 1, "origin": "x.cu", "outcome": null, "reason": "no verdict"}',
    ]
    path = tmp_path / "gpu.jsonl"
    path.write_text("\n".join(lines))
    sources = {"families": ["gemm_hopper"], "tasks": ["gemm_f16"], "targets": ["sm_90a"], "per_task": 99}
    recipe = Recipe.model_validate({
        "name": "test", "kind": "repair", "sources": sources, "gates": {"duplicate": 0.999},
        "faults": {"names": ["sleep_before_wait"], "minimum": {"slow": 1}},
        "shapes": {"gemm": [{"M": 4096, "N": 4096, "K": 4096}]},
    })  # fmt: skip
    asked = Judge()
    built = build(recipe, RecordedFirst(read_verdicts([path]), asked), include_dir(), jobs=1, display=silent)
    (row,) = built.rows
    assert (row.failure, row.speedup, row.provenance.origin) == ("slow", 0.8, variant.name)
    told = row.prompt[-1].content
    assert "0.100 times the speed of cublaslt" in told
    assert "0.100 times the speed of cublaslt." in row.completion[0].reasoning_content
    # The row's own timed sizes, which are those of an evaluation task, were not named in the prompt.
    assert row.sizes == {"M": 4096, "N": 4096, "K": 4096}
    assert "counted at a held-out size" in told
    assert not any(number in told for number in ("7168", "4587520"))
    assert row.provenance.devices == {"good": "NVIDIA H200", "faulty": "NVIDIA H200"}
    assert variant.name not in asked.asked
    assert not built.missing


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("{", "line 1 of .* is not JSON"), ('{"outcome": "passed"}', "line 1 of .* is no verdict")],
)
def test_files_that_hold_no_verdicts_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "gpu.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        read_verdicts([path])
    with pytest.raises(UsageError, match="cannot read the verdicts"):
        read_verdicts([tmp_path / "nowhere"])
