"""What became of one candidate must not touch another, and nothing stale or unchecked may pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from adversarial_attempts import SEED, TASK, attempts

from ptxbench.build import Limits, compile_candidate
from ptxbench.core import Candidate, Outcome, Rejection, Target, UnsupportedError, Verdict, make_candidate
from ptxbench.evaluate import LocalEvaluator
from ptxbench.native import Cache
from ptxbench.solutions import solutions
from ptxbench.tasks import get_task

pytestmark = pytest.mark.slow


def text_of(name: str) -> str:
    return next(attempt for attempt in attempts() if attempt.name == name).text()


def gemm(source: str) -> Candidate:
    return make_candidate(source, task=TASK, target=Target.SM_90A, origin="kernel.cu")


def essence(verdict: Verdict) -> Verdict:
    return verdict.model_copy(update={"stages_s": {}})


@pytest.fixture
def judge(evaluator: LocalEvaluator) -> LocalEvaluator:
    return replace(evaluator, seed=SEED, tiers=("small",))


def test_faults_hangs_and_crashes_leave_the_next_candidate_alone(judge: LocalEvaluator) -> None:
    before = judge.evaluate(gemm(text_of("honest wgmma")))
    assert before.outcome is Outcome.CORRECT_UNTIMED
    for name in ("trap", "waits for ever", "changes its inputs", "scans device memory", "crash", "one NaN"):
        assert not judge.evaluate(gemm(text_of(name))).outcome.accepted
    assert essence(judge.evaluate(gemm(text_of("honest wgmma")))) == essence(before)


def test_a_failed_compile_leaves_nothing_to_judge(judge: LocalEvaluator) -> None:
    right = text_of("honest wgmma")
    artifact = judge.evaluate(gemm(right)).artifact_digest
    broken = judge.evaluate(gemm(right.replace("return cudaGetLastError();", "return cudaGetLastError()")))
    assert broken.outcome is Outcome.COMPILE_ERROR
    assert artifact
    assert (broken.artifact_digest, broken.plan_digest) == ("", "")
    assert not broken.correctness.workloads
    assert not broken.instructions.families


def test_a_refusal_for_a_limit_is_not_remembered(judge: LocalEvaluator, tmp_path: Path) -> None:
    judge = replace(judge, cache=Cache(tmp_path))
    candidate = gemm(text_of("trap"))
    refused = compile_candidate(
        candidate, get_task(TASK), toolchain=judge.toolchain, cache=judge.cache, include=judge.include,
        limits=Limits(seconds=0.05),
    )
    assert isinstance(refused, Rejection)
    assert "needed more than 0.05 seconds" in refused.reason
    assert judge.evaluate(candidate).outcome is Outcome.LAUNCH_ERROR


def test_every_output_is_checked(judge: LocalEvaluator) -> None:
    row = next(row for row in solutions("mha_fwd_d128", Target.SM_90A))
    right = "LSE[at] = "
    source = row.source()
    assert right in source
    wrong = make_candidate(source.replace(right, right + "1.01f * "), task=row.task, target=row.target, origin=row.file)
    verdict = judge.evaluate(wrong)
    assert verdict.outcome is Outcome.WRONG_RESULT
    assert "Output LSE is wrong" in verdict.reason
    assert {name: report.ok for name, report in verdict.correctness.workloads[0].outputs.items()} == {
        "O": True, "LSE": False,
    }  # fmt: skip


def test_what_the_simulator_lacks_is_named_and_is_no_verdict(judge: LocalEvaluator) -> None:
    lacking = 'asm volatile("{ .reg .b64 a; mov.u64 a, 0; multimem.st.relaxed.sys.global.u32 [a], 1; }");'
    source = text_of("trap").replace("__trap();", lacking)
    with pytest.raises(UnsupportedError, match=r"multimem\.st\S* at PTX line \d+: the simulator does not"):
        judge.evaluate(gemm(source))
    assert judge.evaluate(gemm(text_of("trap"))).outcome is Outcome.LAUNCH_ERROR
