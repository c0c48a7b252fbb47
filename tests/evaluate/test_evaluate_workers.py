"""Pipelines in other processes give what one gives here."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any, cast

import pytest

from ptxbench.core import Capabilities, DeviceError, InfrastructureError, Outcome, Target, make_candidate
from ptxbench.evaluate import Bench, LocalEvaluator, bench_process, evaluate_all, on_bench, pooled
from ptxbench.solutions import examples

ROWS = {row.file: row for row in examples()}
REFUSED = ("wrong_syntax.cu", "wrong_library_call.cu", "wrong_signature.cu")
"""Examples that no device is asked about."""


class Unasked:
    """A bench that says what it is and no more."""

    def capabilities(self) -> Capabilities:
        return Capabilities(
            name="none", targets=(Target.SM_90A,), counts=True, times=True, hazards=False, exact_perturbation=False
        )

    def libraries(self) -> dict[str, str]:
        return {"torch": "2"}


@pytest.fixture(scope="module")
def evaluator(evaluator: LocalEvaluator) -> LocalEvaluator:
    return on_bench(evaluator, cast("Bench", Unasked()))


def comparable(verdict: Any) -> Any:
    return verdict.model_dump(exclude={"stages_s", "seeds"})


def test_workers_give_the_same_verdicts(evaluator: LocalEvaluator) -> None:
    rows = [ROWS[file] for file in REFUSED]
    candidates = [make_candidate(r.source(), task=r.task, target=r.target, origin=r.file) for r in rows]
    with pooled(evaluator, cast("Bench", Unasked()), jobs=2) as several:
        answers = evaluate_all(several, candidates, jobs=2, on_answer=lambda answer: None)
        assert several.key(candidates[0]) == evaluator.key(candidates[0])
    assert [answer.verdict and answer.verdict.outcome for answer in answers] == [row.outcome for row in rows]
    for candidate, answer in zip(candidates, answers, strict=True):
        assert comparable(answer.verdict) == comparable(evaluator.evaluate(candidate))
    assert answers[0].verdict is not None and answers[0].verdict.versions["torch"] == "2"
    assert answers[0].verdict.outcome is Outcome.COMPILE_ERROR
    assert not multiprocessing.active_children()


def test_an_error_leaves_no_process_working(evaluator: LocalEvaluator) -> None:
    row = ROWS["wrong_syntax.cu"]
    candidate = make_candidate(row.source(), task=row.task, target=row.target, origin=row.file)
    began = time.monotonic()
    with pytest.raises(InfrastructureError, match="stop"), pooled(evaluator, cast("Bench", Unasked()), 1) as several:
        assert several.evaluate(candidate).outcome is Outcome.COMPILE_ERROR
        raise InfrastructureError("stop")
    assert time.monotonic() - began < 60
    assert not multiprocessing.active_children()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is a GPU")
def test_without_a_gpu_the_bench_process_says_so(tmp_path: Path) -> None:
    missing = pytest.raises(DeviceError, match=r"no NVIDIA driver here|cuda-bindings is not installed")
    with missing, bench_process(tmp_path, tmp_path / "none"):
        pass
    assert not multiprocessing.active_children()
