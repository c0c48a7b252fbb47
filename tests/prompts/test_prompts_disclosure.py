"""What feedback must never tell: held-out sizes and what follows from them, seeds, digests, the machine."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompts_verdicts import (
    FAMILIES,
    HIDDEN,
    OTHER,
    SEED,
    SMALL,
    SOURCE,
    TASK,
    hazard,
    output,
    place,
    run,
    timing,
    verdict,
)

from ptxbench.core import Candidate, InstructionReport, Observation, Outcome, Target, Verdict, Workload, WorkloadReport
from ptxbench.judge import PERTURBATION_SCALES, Evidence, Run, decide
from ptxbench.prompts import feedback
from ptxbench.prompts.disclosure import without_numbers

PUBLIC_NUMBERS = {str(value) for w in TASK.of_tier("core", "small") for value in w.sizes.values()}
SECRETS = sorted({str(value) for w in HIDDEN for value in w.sizes.values()} - PUBLIC_NUMBERS)

# Phrases in which the judge, the simulator and the recorder put numbers; a hostile kernel decides some of them.
PHRASES = (
    "rows 0-{0} in all columns",
    "products of k in {0}-{1} are missing: everywhere",
    "the constant {0} everywhere",
    "scaled by {0}.25",
    "keys {0}-{1} (the last tile) are left out",
    "write of 16 bytes at byte {0} of C, which has {1} bytes (CTA ({0},0,0) warp 0, lane 0)",
    "launch returned {0} (unknown)",
    "mbarrier at shared byte 64 has a transaction count of {0}, outside +-(2^20-1)",
    "the tensor map 0 (on A, dimensions [{0}, {1}], box [64, 128]) is invalid",
    "{0},{1}",
    "x={0}",
    "0x{0}",
    "-{0}e{1}",
    "never written: rows {0}-{1}, columns 0-{0} (one whole 128x128 tile)",
)


def test_there_is_something_to_hide() -> None:
    assert {"512", "1600", "640", "1216"} <= set(SECRETS)


def tell(judged: Verdict) -> str:
    return feedback(judged, SOURCE, max_tokens=5000)


def assert_silent(text: str) -> None:
    for secret in SECRETS:
        assert not re.search(rf"(?<!\d){secret}(?!\d)", text), f"{secret} in:\n{text}"
    for name in TASK.distributions[1:]:
        assert name not in text
    for other in (str(SEED), "d" * 16, "a" * 16, "5" * 16, "a device of ours", "4711", "13.0.88"):
        assert other not in text


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize("workload", HIDDEN, ids=lambda w: "-".join(map(str, w.sizes.values())))
def test_nothing_found_at_hidden_sizes_gives_them_away(phrase: str, workload: Workload) -> None:
    words = phrase.format(workload.sizes["N"], workload.sizes["K"])
    bad = output(ok=False, pattern=words, ratio=float(workload.sizes["K"]))
    wrong = verdict(
        Outcome.WRONG_RESULT, run(SMALL, output()), run(OTHER, output()), run(workload, bad, distribution="wide_range"),
        reason=f"Output C is wrong {place(workload, 'wide_range')}: {words} (RMS error {workload.sizes['K']} times).",
        detail=(words, f"line 5 (PTX line 9), CTA (3,0,0) warps 0, 1, lanes ffffffff: {words}"),
        hazards=(hazard(message=words),),
    )  # fmt: skip
    assert_silent(tell(wrong))
    assert "a held-out size" in tell(wrong)
    assert "M=256, N=256, K=1536" in tell(verdict(Outcome.WRONG_RESULT, run(SMALL, bad))), "public sizes are told"

    empty = WorkloadReport(sizes=workload.sizes, tier="heldout", distribution="normal", outputs={})
    for outcome in (Outcome.TIMEOUT, Outcome.LAUNCH_ERROR, Outcome.INTEGRITY_VIOLATION):
        faulted = verdict(
            outcome, run(SMALL, output()), empty, reason=f"{words} ({place(workload)}).", detail=(words,),
            hazards=(hazard(message=words),),
        )  # fmt: skip
        assert_silent(tell(faulted))

    refused = verdict(Outcome.CONTRACT_ERROR, reason=f"{words}.", advice=words)
    assert_silent(tell(refused))


def test_counts_at_hidden_sizes_are_not_numbers() -> None:
    counts = {name: family.model_copy(update={"executed": 1600, "carried": 12.16}) for name, family in FAMILIES.items()}
    report = InstructionReport(families=counts, other_math_share=6.4, sizes=HIDDEN[1].sizes)
    judged = verdict(
        Outcome.INSTRUCTION_MISSING, run(SMALL, output()), run(HIDDEN[1], output()), instructions=report,
        reason="Other arithmetic amounts to 640.0% of the work; at most 10% is allowed (at M=128, N=384, K=1600).",
    )  # fmt: skip
    text = tell(judged)
    assert_silent(text)
    assert "12.16" not in text
    assert "at most 10% is allowed (at a held-out size)" in text


def test_numbers_at_public_sizes_are_told() -> None:
    pattern = "rows 128-255 in all columns"
    judged = verdict(
        Outcome.WRONG_RESULT, run(SMALL, output(ok=False, pattern=pattern)), run(HIDDEN[0], output()),
        reason=f"Output C is wrong {place(SMALL)}: {pattern}.",
    )  # fmt: skip
    assert tell(judged).count(pattern) == 2


def test_a_refusal_before_recording_keeps_its_numbers() -> None:
    judged = verdict(Outcome.CONTRACT_ERROR, reason="launch takes 512 arguments, expected 8.", artifact_digest="")
    assert "launch takes 512 arguments, expected 8." in tell(judged)


def test_a_refusal_of_the_recorder_keeps_the_limits_of_the_device() -> None:
    judged = verdict(Outcome.LAUNCH_ERROR, reason="307200 bytes were asked for, and the device allows 232448.")
    assert "… bytes were asked for, and the device allows 232448." in tell(judged)


def test_a_refusal_of_the_recorder_that_names_public_sizes_keeps_its_numbers() -> None:
    judged = verdict(Outcome.LAUNCH_ERROR, reason="307200 bytes were asked for (at M=256, N=256, K=1536).")
    assert "307200 bytes were asked for (at M=256, N=256, K=1536)." in tell(judged)


def test_the_judges_own_sentences_are_understood() -> None:
    """The form of a place in a reason belongs to `judge`; if it changes, hidden sizes must not slip through."""
    candidate = Candidate(task=TASK.name, target=Target.SM_90A, source=SOURCE, digest="5" * 64)
    reports = {"C": output(ok=False, pattern="zero in rows 512-639")}
    wrong = Run(HIDDEN[2].sizes, "heldout", "spikes", Observation(device="sim"), reports)
    judged = decide(Evidence(task=TASK, candidate=candidate, device={}, runs=(wrong,)))
    assert "640" in judged.reason
    text = tell(judged)
    assert_silent(text)
    assert "at a held-out size on inputs with many zeros" in text


def test_the_perturbation_is_not_told() -> None:
    text = tell(verdict(Outcome.PASSED, run(SMALL, output()), timing=timing(0.9)))
    assert not any(f"{scale:g}" in text for scale in PERTURBATION_SCALES)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("16-31 of every 64 rows", "…-… of every 64 rows"),
        ("shifted by +8 rows: rows 0-511", "shifted by +8 rows: rows …-…"),
        ("rows 384-511 (one whole 128x128 tile)", "rows …-… (one whole 128x128 tile)"),
        ("(the 16 rows of warp 2 of a warpgroup)", "(the 16 rows of warp 2 of a warpgroup)"),
        ("scaled by 11.3137 (√D)", "scaled by … (√D)"),
        ("2^x is taken of logits", "2^x is taken of logits"),
        ("mbarrier.try_wait.parity.shared::cta.b64: parity 1", "mbarrier.try_wait.parity.shared::cta.b64: parity …"),
        ("wgmma.mma_async.sync.aligned.m64n256k16 has 12,345", "wgmma.mma_async.sync.aligned.m64n256k16 has …"),
        ("the diagonal tiles of 64 keys are skipped", "the diagonal tiles of 64 keys are skipped"),
        ("rows 0-18, columns 0-24 (one whole 19x25 tile)", "rows …-…, columns …-… (one whole … tile)"),
    ],
)
def test_numbers_from_fixed_lists_stay(text: str, shown: str) -> None:
    assert without_numbers(text) == shown


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.integers(0, 10**6).map(str), st.sampled_from(" ,;:()[]-+.%=\n|")), max_size=20))
def test_no_number_survives_by_itself(pieces: list[str]) -> None:
    assert not re.search(r"\d", without_numbers("".join(pieces)))
