"""Every attempt gets the verdict it should, for the reason it should."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from adversarial_attempts import SEED, Attempt, attempts
from cheats_page import UPDATE, Page

from ptxbench.core import Verdict
from ptxbench.evaluate import LocalEvaluator, read_candidate

MAX_REMARKS, MAX_TEXT = 50, 4200


def judge(evaluator: LocalEvaluator, attempt: Attempt, folder: Path) -> Verdict:
    """Writes the candidate to a file, as a model would hand it in, and judges it."""
    file = folder / "kernel.cu"
    file.write_bytes(attempt.data())
    candidate = read_candidate(file, task=attempt.task, target=attempt.target)
    return replace(evaluator, seed=SEED, tiers=attempt.tiers).evaluate(candidate)


def rows() -> list[object]:
    """Every attempt; all but the quick ones are slow, because most are compiled and judged: minutes on two cores."""
    return [
        pytest.param(attempt, id=attempt.name, marks=() if attempt.quick else pytest.mark.slow)
        for attempt in attempts()
    ]


@pytest.mark.parametrize("attempt", rows())
def test_attempt(
    attempt: Attempt, evaluator: LocalEvaluator, hurried: LocalEvaluator, page: Page, tmp_path: Path
) -> None:
    if attempt.full_sandbox and evaluator.toolchain.sandbox.level != "full":
        pytest.skip("this host allows no full sandbox")
    verdict = judge(hurried if attempt.hurried else evaluator, attempt, tmp_path)
    assert verdict.outcome is attempt.outcome, f"{verdict.outcome.value}: {verdict.reason} {verdict.advice}"
    assert re.search(attempt.reason, verdict.reason), verdict.reason
    assert re.search(attempt.remark, "\n".join(remark.message for remark in verdict.remarks))
    check_text(verdict, tmp_path)
    page.compare(attempt, verdict)


def check_text(verdict: Verdict, folder: Path) -> None:
    """What a verdict says is bounded, printable, and tells nothing of this machine."""
    said = [verdict.reason, verdict.advice, *(remark.message for remark in verdict.remarks), *verdict.detail]
    assert verdict.reason.endswith((".", ")."))
    assert len(verdict.remarks) <= MAX_REMARKS
    assert verdict.timing is None
    for text in said:
        assert len(text) <= MAX_TEXT
        assert text.isprintable(), text
        for path in (str(folder), str(Path.home()) + "/", "/tmp/", "/box", "site-packages"):
            assert path not in text, text


def test_no_attempt_is_accepted_but_honest_work_and_what_gains_nothing() -> None:
    accepted = {attempt.name for attempt in attempts() if attempt.outcome.accepted}
    assert accepted == {
        # These always do the work: what they rely on does not last, or does not happen.
        "cache by pointer", "environment", "work at exit", "first call only", "every second call",
        "result cached in the workspace", "options in a comment",
        # These are honest.
        "honest wgmma", "honest tcgen05", "Windows line ends", "byte order mark", "printf", "split-K with atomics",
        "PTX with comments", "set-up behind a static flag", "two streams",
        "attention forward", "attention backward", "attention forward on Blackwell", "attention backward on Blackwell",
        "causal without skipping", "backward in two passes",
    }


def test_the_page_lists_every_attempt_once(page: Page) -> None:
    names = [attempt.name for attempt in attempts()]
    assert len(names) == len(set(names))
    if page.update:
        pytest.skip("the page is being written")
    assert list(page.rows) == names, UPDATE
    assert page.text == page.render(), UPDATE
