"""The outcome table: every row, the order of the rows, and the words."""

from dataclasses import replace
from typing import Any

import pytest
from emulated_gemm import CHEATS, blas, outputs, problem

from ptxbench.core import (
    FAULT_OUTCOMES,
    Artifact,
    Candidate,
    FamilyReport,
    Fault,
    FaultKind,
    Hazard,
    InstructionReport,
    Interval,
    LaunchPlan,
    Observation,
    Outcome,
    Rejection,
    Remark,
    Schedule,
    Target,
    TimingReport,
)
from ptxbench.judge import Evidence, Run, decide, judge_run, min_time_ms
from ptxbench.tasks import get_task

TASK = get_task("gemm_n7168_k5120")
PROBLEM = problem("normal", 1)
RIGHT, WRONG = outputs(blas, PROBLEM), outputs(CHEATS["last 64 of K dropped"], PROBLEM)
PLAIN, LATE = Schedule(), Schedule(copies="late", products="late")
RACE = Hazard(
    severity="race", kind="uninitialised_shared_read", message="Line 40 reads shared memory that nothing wrote.",
    advice="Wait for the barrier first.", source_line=40,
)  # fmt: skip
RULE = Hazard(
    severity="rule", kind="missing_async_proxy_fence", message="Line 50 lacks a proxy fence.",
    advice="Add fence.proxy.async.", source_line=50,
)  # fmt: skip
CARRIED = InstructionReport(
    families={"wgmma": FamilyReport(claimed=1, compiled=4, executed=64, carried=1.0)}, other_math_share=0.0,
    perturbation_followed=1.0,
)  # fmt: skip
ARTIFACT = Artifact(
    digest="artifact", source_digest="source", target=Target.SM_90A, ptx="", cubin=b"", host_library=b"", kernels=(),
    sass=(), remarks=(Remark(severity="warning", line=3, message="unused"),), versions={"nvcc": "13.0"},
)  # fmt: skip
PLAN = LaunchPlan(digest="plan", artifact_digest="artifact", sizes=PROBLEM.sizes, buffers=(), nodes=())


def run(results: dict[str, Any] = RIGHT, schedule: Schedule = PLAIN, **seen: Any) -> Run:
    return judge_run(PROBLEM, Observation(device="simulator", schedule=schedule, **seen), results)


def timing(ms: float) -> TimingReport:
    speedup = Interval(median=1.05, low=1.04, high=1.06)
    return TimingReport(speedup=speedup, baseline="cuBLAS", ms=ms, tflops=700.0, speed_of_light=0.8)


GOOD = Evidence(
    task=TASK,
    candidate=Candidate(task=TASK.name, target=Target.SM_90A, source="", digest="source", origin="a model"),
    device={"name": "simulator"}, artifact=ARTIFACT, plans=(PLAN,), runs=(run(), run(schedule=LATE)),
    instructions=CARRIED, seeds=(7,), stages_s={"simulating": 0.1}, versions={"ptxbench": "1"},
)  # fmt: skip


def fault(kind: FaultKind) -> Run:
    seen = Fault(kind=kind, message="Warp 3 did it at line 12.", source_line=12, advice="Stop.", detail=("warp 3",))
    return run(WRONG, fault=seen)


def test_good_evidence_is_correct_untimed_and_keeps_everything() -> None:
    verdict = decide(GOOD)
    assert verdict.outcome is Outcome.CORRECT_UNTIMED
    assert [w.schedule for w in verdict.correctness.workloads] == [PLAIN.label, LATE.label]
    assert verdict.correctness.workloads[0].outputs["C"].ok and verdict.instructions == CARRIED
    assert (verdict.plan_digest, verdict.artifact_digest, verdict.source_digest) == ("plan", "artifact", "source")
    assert (verdict.seeds, verdict.origin, verdict.remarks) == ((7,), "a model", ARTIFACT.remarks)
    assert verdict.versions == {"nvcc": "13.0", "ptxbench": "1"}


def test_timed_evidence_passes_above_the_architectural_bound_only() -> None:
    bound = min_time_ms(TASK, TASK.of_tier("core")[0].sizes, Target.SM_90A)
    passed = decide(replace(GOOD, timing=timing(1.2 * bound)))
    assert passed.outcome is Outcome.PASSED and passed.timing is not None and "1.050 times" in passed.reason
    impossible = decide(replace(GOOD, timing=timing(0.99 * bound)))
    assert impossible.outcome is Outcome.INTEGRITY_VIOLATION and impossible.timing is None


def test_bound_is_the_larger_of_arithmetic_and_memory() -> None:
    core = TASK.of_tier("core")[0].sizes
    assert min_time_ms(TASK, core, Target.SM_90A) == pytest.approx(
        2 * 8192 * 7168 * 5120 / (132 * 4096 * 1980e6) * 1e3
    )
    thin = {"M": 128, "N": 128, "K": 64}
    assert min_time_ms(TASK, thin, Target.SM_90A) == pytest.approx(2 * (2 * 128 * 64 + 128 * 128) / 4.8e12 * 1e3)


@pytest.mark.parametrize("outcome", [Outcome.COMPILE_ERROR, Outcome.CONTRACT_ERROR, Outcome.TIMEOUT])
def test_a_rejection_is_the_verdict(outcome: Outcome) -> None:
    remark = Remark(severity="error", line=1, message="expected a ;")
    rejection = Rejection(outcome=outcome, reason="It was refused.", advice="Fix it.", remarks=(remark,))
    verdict = decide(Evidence(TASK, GOOD.candidate, GOOD.device, rejection=rejection))
    assert (verdict.outcome, verdict.reason, verdict.advice) == (outcome, "It was refused.", "Fix it.")
    assert verdict.remarks == (remark,) and verdict.plan_digest == ""


@pytest.mark.parametrize("kind", FaultKind)
def test_a_fault_has_the_outcome_of_its_kind(kind: FaultKind) -> None:
    verdict = decide(replace(GOOD, runs=(run(), fault(kind)), instructions=None))
    assert verdict.outcome is FAULT_OUTCOMES[kind]
    assert verdict.reason == "Warp 3 did it at line 12 (at M=128, N=128, K=1024 on normal inputs)."
    assert verdict.advice == "Stop." and verdict.detail == ("warp 3",)


def test_a_changed_input_is_an_integrity_violation_even_if_the_output_is_right() -> None:
    verdict = decide(replace(GOOD, runs=(run(changed_inputs=("A",)),)))
    assert verdict.outcome is Outcome.INTEGRITY_VIOLATION and "changed its input A" in verdict.reason


def test_a_wrong_output_says_where_and_how_much() -> None:
    verdict = decide(replace(GOOD, runs=(run(WRONG),)))
    assert verdict.outcome is Outcome.WRONG_RESULT
    assert "products of k in 960-1023 are missing" in verdict.reason
    assert "RMS error" in verdict.reason and "M=128, N=128, K=1024 on normal inputs" in verdict.reason


def test_a_result_that_depends_on_the_schedule_names_it() -> None:
    verdict = decide(replace(GOOD, runs=(run(), run(WRONG, LATE))))
    assert verdict.outcome is Outcome.WRONG_RESULT and LATE.label in verdict.reason
    assert f"right with {PLAIN.label}" in verdict.advice


def test_a_race_explains_a_wrong_output() -> None:
    verdict = decide(replace(GOOD, runs=(run(), run(WRONG, LATE, hazards=(RACE,)))))
    assert verdict.outcome is Outcome.WRONG_RESULT and verdict.advice == RACE.advice


def test_a_race_fails_although_outputs_agree_and_a_rule_only_when_strict() -> None:
    raced = decide(replace(GOOD, runs=(run(), run(schedule=LATE, hazards=(RACE,)))))
    assert raced.outcome is Outcome.WRONG_RESULT
    assert "race" in raced.reason and LATE.label in raced.reason
    ruled = replace(GOOD, runs=(run(hazards=(RULE,)),))
    assert decide(ruled).outcome is Outcome.CORRECT_UNTIMED and decide(ruled).hazards == (RULE,)
    assert decide(replace(ruled, strict=True)).outcome is Outcome.WRONG_RESULT


def test_hazards_are_merged_over_runs_with_races_first() -> None:
    verdict = decide(replace(GOOD, runs=(run(hazards=(RULE,)), run(schedule=LATE, hazards=(RULE, RACE)))))
    assert [(h.kind, h.occurrences) for h in verdict.hazards] == [(RACE.kind, 1), (RULE.kind, 2)]


def test_missing_instructions_fail_a_correct_kernel() -> None:
    idle = FamilyReport(claimed=1, compiled=1, executed=0, carried=0.0)
    verdict = decide(replace(GOOD, instructions=CARRIED.model_copy(update={"families": {"wgmma": idle}})))
    assert verdict.outcome is Outcome.INSTRUCTION_MISSING and "never executed" in verdict.reason


def test_conditions_hold_in_the_order_of_the_table() -> None:
    nothing = InstructionReport(families={"wgmma": FamilyReport(claimed=0, compiled=0, executed=0)})
    everything = replace(
        GOOD,
        rejection=Rejection(outcome=Outcome.CONTRACT_ERROR, reason="Refused."),
        runs=(run(WRONG), run(changed_inputs=("B",)), fault(FaultKind.DEADLOCK), fault(FaultKind.TRAP)),
        instructions=nothing,
    )
    seen: list[Outcome] = [decide(everything).outcome]
    everything = replace(everything, rejection=None)
    for _ in range(3):
        seen.append(decide(everything).outcome)
        everything = replace(everything, runs=everything.runs[:-1])
    seen.append(decide(everything).outcome)
    seen.append(decide(replace(everything, runs=GOOD.runs)).outcome)
    assert seen == [
        Outcome.CONTRACT_ERROR, Outcome.LAUNCH_ERROR, Outcome.TIMEOUT, Outcome.INTEGRITY_VIOLATION,
        Outcome.WRONG_RESULT, Outcome.INSTRUCTION_MISSING,
    ]  # fmt: skip


def test_several_plans_have_a_joint_digest() -> None:
    other = PLAN.model_copy(update={"digest": "other"})
    first, second = (decide(replace(GOOD, plans=plans)).plan_digest for plans in ((PLAN, other), (other, PLAN)))
    assert len(first) == 64 and first != second


@pytest.mark.parametrize("gap", [{"runs": ()}, {"instructions": None}])
def test_evidence_with_gaps_is_the_callers_error(gap: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a candidate that"):
        decide(replace(GOOD, **gap))


def test_ratios_beyond_measure_are_told_in_words() -> None:
    of = problem("spikes", 1)
    verdict = decide(
        replace(GOOD, runs=(judge_run(of, Observation(device="simulator"), outputs(CHEATS["constant"], of)),))
    )
    assert "RMS error over a million times" in verdict.reason
