"""What the simulator finds beside hardware: told, deciding only in strict judging, and completing the counts."""

from __future__ import annotations

from dataclasses import replace

from test_judge_decide import CARRIED, GOOD, RACE, RULE, WRONG, run

from ptxbench.core import FamilyReport, InstructionReport, Outcome, Target
from ptxbench.judge import decide, refusal, with_simulated

HARDWARE = replace(GOOD, device={"name": "a GPU", "times": True}, findings=(RULE, RACE), notes=("Not simulated.",))
COUNTED = InstructionReport(
    families={"tcgen05": FamilyReport(claimed=1, compiled=4, executed=4096, carried=0.0)}, other_math_share=0.01,
    sizes={"M": 8192}, source="hardware counters",
)  # fmt: skip
SIMULATED = InstructionReport(
    families={"tcgen05": FamilyReport(claimed=1, compiled=4, executed=16, carried=1.0)}, other_math_share=0.0,
    perturbation_followed=0.99, sizes={"M": 256}, source="simulator",
)  # fmt: skip


def test_findings_are_told_and_do_not_decide() -> None:
    verdict = decide(HARDWARE)
    assert verdict.outcome is Outcome.CORRECT_UNTIMED and "not timed" in verdict.reason
    assert [hazard.severity for hazard in verdict.hazards] == ["race", "rule"]
    assert verdict.detail == ("Not simulated.",)


def test_findings_decide_in_strict_judging() -> None:
    verdict = decide(replace(HARDWARE, strict=True))
    assert verdict.outcome is Outcome.WRONG_RESULT
    assert RULE.message in verdict.reason and verdict.source_line == RULE.source_line


def test_a_refusal_is_known_before_everything_is() -> None:
    begun = replace(GOOD, instructions=None)
    assert refusal(begun) is None
    wrong = refusal(replace(begun, runs=(run(WRONG),)))
    assert wrong is not None and wrong.outcome is Outcome.WRONG_RESULT


def test_the_knock_out_joins_what_hardware_counted() -> None:
    counted = CARRIED.model_copy(update={"perturbation_followed": None, "source": "hardware counters"})
    simulated = CARRIED.model_copy(update={"perturbation_followed": 0.4})
    report = with_simulated(counted, simulated, Target.SM_90A)
    assert report == counted.model_copy(update={"perturbation_followed": 0.4})
    verdict = decide(replace(HARDWARE, instructions=report))
    assert verdict.outcome is Outcome.INSTRUCTION_MISSING and "40.0%" in verdict.reason


def test_shapes_that_machine_code_does_not_show_come_from_the_simulator() -> None:
    report = with_simulated(COUNTED, SIMULATED, Target.SM_100A)
    assert report is not None and report.families["tcgen05"].carried == 1.0
    assert report.families["tcgen05"].executed == 4096 and report.other_math_share == 0.01
    assert report.source == "hardware counters; shapes of tcgen05 from the simulator at M=256"


def test_one_report_alone_is_kept_as_it_is() -> None:
    assert with_simulated(None, SIMULATED, Target.SM_100A) is SIMULATED
    assert with_simulated(COUNTED, None, Target.SM_100A) is COUNTED
    assert with_simulated(None, None, Target.SM_100A) is None
