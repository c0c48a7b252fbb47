"""Feedback: what happened, where and why, most useful first, in bounded space."""

from __future__ import annotations

import pytest
from prompts_verdicts import (
    HIDDEN,
    OTHER,
    SCHEDULES,
    SMALL,
    SOURCE,
    hazard,
    output,
    place,
    run,
    timing,
    verdict,
)

from ptxbench.core import FamilyReport, InstructionReport, Outcome, Remark, UsageError, Verdict
from ptxbench.prompts import MIN_TOKENS, estimate_tokens, feedback

RIGHT = (run(SMALL, output()), run(OTHER, output()), run(HIDDEN[0], output()))


def tell(judged: Verdict, max_tokens: int = 2000) -> str:
    return feedback(judged, SOURCE, max_tokens=max_tokens)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_is_named_explained_and_fits(outcome: Outcome) -> None:
    more = {"timing": timing(0.9)} if outcome is Outcome.PASSED else {}
    judged = verdict(outcome, *RIGHT, **more)
    for budget in (MIN_TOKENS, 150, 300, 1000):
        text = tell(judged, budget)
        assert text.startswith(f"## Verdict: {outcome.value}\n")
        assert estimate_tokens(text) <= budget


def test_too_small_a_budget_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="at least"):
        tell(verdict(Outcome.PASSED, *RIGHT, timing=timing(1.0)), MIN_TOKENS - 1)


def test_an_unknown_task_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="unknown task"):
        tell(verdict(Outcome.COMPILE_ERROR, task="gemm"))


def test_a_long_reason_is_cut_to_the_budget() -> None:
    text = tell(verdict(Outcome.LAUNCH_ERROR, reason="word " * 5000), MIN_TOKENS)
    assert estimate_tokens(text) <= MIN_TOKENS
    assert text.count("word") == 0 or "…" in text


def test_remarks_are_sorted_quoted_and_explained() -> None:
    remarks = (
        Remark(severity="remark", line=0, message="(C7508) Potential Performance Loss: 'setmaxnreg' ignored"),
        Remark(severity="warning", line=9, message='variable "x" was declared but never referenced'),
        Remark(severity="error", line=3, message='identifier "mapB" is undefined'),
        Remark(severity="error", line=3, message='identifier "mapB" is undefined'),
    )
    text = tell(verdict(Outcome.COMPILE_ERROR, reason="Line 3: …", remarks=remarks, artifact_digest=""))
    lines = text.partition("## Compiler\n")[2].splitlines()
    assert lines == [
        '- line 3: error: identifier "mapB" is undefined',
        "    3 | line_3();",
        "    → declare it, or include the header that does",
        '- line 9: warning: variable "x" was declared but never referenced',
        "    9 | line_9();",
        "- note: (C7508) Potential Performance Loss: 'setmaxnreg' ignored",
        "    → give the kernel __launch_bounds__(threads, 1), so that setmaxnreg is kept",
    ]


def test_many_remarks_are_counted_not_listed() -> None:
    remarks = tuple(Remark(severity="error", line=n, message=f"expected a {n}") for n in range(1, 41))
    text = tell(verdict(Outcome.COMPILE_ERROR, remarks=remarks))
    assert "- (28 more left out)" in text
    assert "line 12:" in text
    assert "line 13:" not in text


def test_the_line_of_the_reason_is_quoted() -> None:
    judged = verdict(Outcome.LAUNCH_ERROR, run(SMALL, output()), reason="An illegal address.", source_line=42)
    assert "- An illegal address.\n    42 | line_42();" in tell(judged)


def test_lines_that_do_not_exist_are_not_quoted() -> None:
    text = tell(verdict(Outcome.LAUNCH_ERROR, reason="An illegal address.", source_line=4711))
    assert "- An illegal address.\n-" in text


def test_a_deadlock_is_told_once_per_kind_of_waiting() -> None:
    detail = tuple(
        f"line 5, inlined at line 60 (PTX line 90), CTA ({x},0,0) warps 0, 1, lanes ffffffff: mbarrier.try_wait: "
        "mbarrier at shared byte 64 (address 0x440) is in phase 0; waits for the phase of parity 0 to complete"
        for x in range(8)
    )
    judged = verdict(
        Outcome.TIMEOUT, run(SMALL, output()).model_copy(update={"outputs": {}}),
        reason=f"deadlock: 16 warps wait for ever ({place(SMALL)}).", detail=detail,
    )  # fmt: skip
    text = tell(judged)
    assert text.count("mbarrier.try_wait") == 1
    assert "warps 0, 1 in 8 blocks alike" in text
    assert "    5 | line_5();\n    60 | line_60();" in text
    assert "M=256, N=256, K=1536 on plain random inputs" in text


def test_a_wrong_result_has_its_pattern_and_what_it_suggests() -> None:
    bad = output(ok=False, pattern="transposed (rows and columns exchanged)", ratio=3340)
    judged = verdict(Outcome.WRONG_RESULT, run(SMALL, bad), run(OTHER, bad), run(HIDDEN[0], bad))
    text = tell(judged)
    assert "C at M=256, N=256, K=1536: wrong in 1 of 1 runs; transposed" in text
    assert "25.00% of the elements are out of bounds, the first at [17, 5]; the RMS error is 3.34e+03 times" in text
    assert "→ rows and columns of the fragment, or the order of the operands, are exchanged" in text
    assert "C at a held-out size: wrong in 1 of 1 runs" in text


def test_right_under_one_schedule_and_wrong_under_another_is_a_race() -> None:
    runs = [run(SMALL, output(ok=s == SCHEDULES[0]), schedule=s) for s in SCHEDULES]
    text = tell(verdict(Outcome.WRONG_RESULT, *runs))
    assert f"(wrong with {SCHEDULES[1]}): a race" in text


def test_wrong_on_some_inputs_is_a_matter_of_values() -> None:
    runs = [run(SMALL, output(ok=d == "normal"), distribution=d) for d in ("normal", "wide_range")]
    text = tell(verdict(Outcome.WRONG_RESULT, *runs))
    assert "wrong only on inputs of a wide dynamic range: a matter of the values" in text
    assert "wide_range" not in text


def test_wrong_at_hidden_sizes_only_is_an_assumption_about_sizes() -> None:
    text = tell(verdict(Outcome.WRONG_RESULT, *RIGHT[:2], run(HIDDEN[0], output(ok=False))))
    assert "right at all sizes that were shown and wrong at others" in text


def test_wrong_at_one_public_size_is_told_with_both() -> None:
    text = tell(verdict(Outcome.WRONG_RESULT, run(SMALL, output()), run(OTHER, output(ok=False))))
    assert "wrong at M=128, N=384, K=1088 and right at M=256, N=256, K=1536" in text


def test_no_conclusion_where_everything_is_wrong() -> None:
    text = tell(verdict(Outcome.WRONG_RESULT, run(SMALL, output(ok=False)), run(OTHER, output(ok=False))))
    assert "race" not in text
    assert "wrong only" not in text


def test_hazards_are_quoted_with_advice() -> None:
    text = tell(verdict(Outcome.CORRECT_UNTIMED, run(SMALL, output()), hazards=(hazard(),)))
    assert "- rule (line 7): stmatrix reads shared byte 4096.\n    7 | line_7();\n    → Put a fence." in text
    assert "Next: repair the hazards" in text


def test_the_four_numbers_with_the_matrix_instruction_first() -> None:
    text = tell(verdict(Outcome.INSTRUCTION_MISSING, *RIGHT))
    lines = text.partition("## Instructions\n")[2].partition("\n\n")[0].splitlines()
    assert lines[0] == "- counted at M=256, N=256, K=1536"
    assert lines[1].startswith("- wgmma: claimed 4, compiled 4, executed 3072, carried 100.0% of the task's FLOPs")
    assert "- tma_load: claimed 2, compiled 2, executed 384, moved 3.00 times the bytes of the inputs" in lines
    assert "- other arithmetic: 2.0% of the task's FLOPs (at most 10% is allowed)" in lines
    assert not any("stmatrix" in line for line in lines)


def test_a_matrix_instruction_that_never_ran_is_shown_as_such() -> None:
    report = InstructionReport(families={"wgmma": FamilyReport(claimed=4, compiled=1, executed=0, carried=0.0)},
                               sizes=SMALL.sizes)  # fmt: skip
    assert "wgmma: claimed 4, compiled 1, executed 0, carried 0.0%" in tell(
        verdict(Outcome.INSTRUCTION_MISSING, *RIGHT, instructions=report)
    )


@pytest.mark.parametrize(
    ("speedup", "advice"),
    [(1.02, "as fast as the library"), (0.9, "Close."), (0.7, "Larger tiles"), (0.2, "The structure is the limit")],
)
def test_time_is_told_against_the_library(speedup: float, advice: str) -> None:
    text = tell(verdict(Outcome.PASSED, *RIGHT, timing=timing(speedup)))
    assert f"{speedup:.3f} times the speed of cublas" in text
    assert "0.8123 ms, 740 TFLOP/s, 76% of what the device can do" in text
    assert advice in text


def test_sections_are_left_out_from_the_end_and_that_is_said() -> None:
    judged = verdict(Outcome.PASSED, *RIGHT, timing=timing(0.9), hazards=(hazard(),))
    titles = ["## Verdict", "## Time", "## Hazards", "## Instructions", "## Results"]
    whole = tell(judged)
    assert [whole.index(title) for title in titles] == sorted(whole.index(title) for title in titles)
    short = tell(judged, 200)
    assert "## Time" in short
    assert "## Results" not in short
    assert short.endswith("(more is left out)\n")
