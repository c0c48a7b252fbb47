"""The whole flow on real kernels: every bundled example and every solution gets the verdict it should."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ptxbench.core import Candidate, Outcome, Verdict, make_candidate
from ptxbench.evaluate import LocalEvaluator
from ptxbench.solutions import Example, Solution, examples, solutions

SEED = 20_240_229
STAGES = ["compiling", "recording", "simulating", "judging"]
RAN = {
    Outcome.TIMEOUT, Outcome.INTEGRITY_VIOLATION, Outcome.WRONG_RESULT, Outcome.INSTRUCTION_MISSING,
    Outcome.CORRECT_UNTIMED,
}  # fmt: skip


def candidate_of(row: Example | Solution) -> Candidate:
    return make_candidate(row.source(), task=row.task, target=row.target, origin=row.file)


def example(file: str) -> Candidate:
    return candidate_of(next(row for row in examples() if row.file == file))


def worst_ratio(verdict: Verdict) -> float:
    outputs = [output for run in verdict.correctness.workloads for output in run.outputs.values()]
    return max(output.rms_ratio or 0.0 for output in outputs)


@pytest.mark.parametrize("row", examples(), ids=lambda row: row.file)
def test_a_bundled_example_gets_its_verdict(evaluator: LocalEvaluator, row: Example) -> None:
    verdict = evaluator.evaluate(candidate_of(row))
    assert verdict.outcome is row.outcome, verdict.reason
    assert verdict.reason.endswith(".")
    assert set(row.hazards) <= {hazard.kind for hazard in verdict.hazards}
    if row.outcome.accepted and not row.hazards:
        assert verdict.hazards == ()
    check_stages(verdict)


def check_stages(verdict: Verdict) -> None:
    stages = list(verdict.stages_s)
    assert stages == STAGES[: len(stages)]
    assert (stages == STAGES) == (verdict.outcome in RAN)
    assert all(seconds >= 0 for seconds in verdict.stages_s.values())


@pytest.mark.parametrize("row", solutions(), ids=lambda row: row.file)
def test_a_solution_is_accepted_and_clean(evaluator: LocalEvaluator, row: Solution) -> None:
    verdict = evaluator.evaluate(candidate_of(row))
    assert verdict.outcome is Outcome.CORRECT_UNTIMED, f"{verdict.reason} {verdict.advice}"
    assert verdict.hazards == ()
    assert worst_ratio(verdict) <= 1.5
    report = verdict.instructions
    carried = report.families[row.target.sheet.matrix_family].carried
    assert carried is not None
    assert carried >= 0.95
    assert report.other_math_share is not None
    assert report.other_math_share <= 0.1
    assert report.perturbation_followed is not None
    assert report.perturbation_followed >= 0.95


def test_strict_judging_fails_a_broken_rule(evaluator: LocalEvaluator) -> None:
    candidate = example("hazard_missing_proxy_fence.cu")
    verdict = replace(evaluator, strict=True, tiers=("small",)).evaluate(candidate)
    assert verdict.strict
    assert verdict.outcome is Outcome.WRONG_RESULT
    assert {hazard.severity for hazard in verdict.hazards} == {"rule"}
    assert "fence.proxy.async" in verdict.advice


@pytest.mark.parametrize("file", ["right_raw_asm.cu", "wrong_fp8_operands.cu", "wrong_early_release.cu"])
def test_the_same_seed_gives_the_same_verdict(evaluator: LocalEvaluator, file: str) -> None:
    """On one thread or on several."""
    once = replace(evaluator, seed=SEED, tiers=("small",), threads=1).evaluate(example(file))
    again = replace(evaluator, seed=SEED, tiers=("small",), threads=3).evaluate(example(file))
    assert what_counts(once) == what_counts(again)
    assert once.seeds == (SEED,)


def what_counts(verdict: Verdict) -> dict[str, Any]:
    return verdict.model_dump(exclude={"stages_s"})


def test_every_verdict_draws_its_own_seed(evaluator: LocalEvaluator) -> None:
    candidate = example("wrong_syntax.cu")
    assert evaluator.evaluate(candidate).seeds != evaluator.evaluate(candidate).seeds


def test_the_header_set_can_be_withheld(evaluator: LocalEvaluator) -> None:
    without = replace(evaluator, include=None, tiers=("small",))
    assert without.evaluate(example("right_raw_asm.cu")).outcome is Outcome.CORRECT_UNTIMED
    verdict = without.evaluate(example("right_cluster_persistent.cu"))
    assert verdict.outcome is Outcome.COMPILE_ERROR
    assert "ptxbench/ptx/" in verdict.reason


def test_only_the_tiers_asked_for_are_judged(evaluator: LocalEvaluator) -> None:
    verdict = replace(evaluator, tiers=("heldout",)).evaluate(example("right_tcgen05.cu"))
    assert verdict.outcome is Outcome.CORRECT_UNTIMED
    assert {run.tier for run in verdict.correctness.workloads} == {"heldout"}


def test_what_a_verdict_is_keyed_by(evaluator: LocalEvaluator) -> None:
    candidate = example("right_raw_asm.cu")
    key = evaluator.key(candidate)
    assert key == evaluator.key(candidate.model_copy(update={"origin": "another name"}))
    others = [
        replace(evaluator, strict=True).key(candidate),
        replace(evaluator, tiers=("small",)).key(candidate),
        replace(evaluator, include=None).key(candidate),
        evaluator.key(example("right_cluster_persistent.cu")),
        evaluator.key(candidate.model_copy(update={"task": "another"})),
    ]
    assert len({key.digest, *(other.digest for other in others)}) == len(others) + 1
    assert {"cuda-nvcc", "g++", "ptxbench", "code"} <= set(key.versions)
