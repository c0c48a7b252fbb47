"""Attempts that only hardware can be asked to believe get their verdicts there, and all at once disturb nobody."""

from __future__ import annotations

import json
import re
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from adversarial_attempts import HERE, SEED, TASK, Attempt, Group

from ptxbench.cli.gpu import GPU_TIERS, judging
from ptxbench.core import Outcome, Target, Verdict, make_candidate
from ptxbench.evaluate import evaluate_all

GROUP = Group.model_validate(tomllib.loads((HERE / "device" / "kernels.toml").read_text()))
ATTEMPTS = {attempt.name: attempt for attempt in GROUP.attempts}
JOBS = 8


def test_every_attempt_has_a_text() -> None:
    assert len(ATTEMPTS) == len(GROUP.attempts)
    texts = {attempt.text() for attempt in ATTEMPTS.values()}
    assert len(texts) == len(ATTEMPTS)


@pytest.fixture(scope="module")
def verdicts(results: Any) -> Iterator[dict[str, Verdict]]:
    """Every attempt judged, several at a time, by the product's own composition."""
    candidates = [
        make_candidate(attempt.text(), task=TASK, target=attempt.target, origin=name)
        for name, attempt in ATTEMPTS.items()
    ]
    with judging(threading.Event(), "cuda", Target.SM_90A, jobs=JOBS) as evaluator:
        judge = replace(evaluator, seed=SEED, tiers=GPU_TIERS)
        answers = evaluate_all(judge, candidates, jobs=JOBS, on_answer=lambda answer: None)
        device = evaluator.device.capabilities().model_dump(mode="json")
    results.record("machine", date=datetime.now(UTC).isoformat(timespec="seconds"), **device)
    found = {answer.origin: answer.verdict for answer in answers if answer.verdict is not None}
    rows = {
        name: {
            "about": ATTEMPTS[name].about, "outcome": verdict.outcome, "reason": verdict.reason,
            "expected": ATTEMPTS[name].outcome, "speedup": verdict.timing and verdict.timing.speedup.model_dump(),
            "hazards": [hazard.kind for hazard in verdict.hazards], "stages_s": verdict.stages_s,
        }
        for name, verdict in found.items()
    }
    results.record("adversarial", **json.loads(json.dumps(rows, default=str)))
    results.write()
    yield found


@pytest.mark.gpu
@pytest.mark.parametrize("attempt", ATTEMPTS.values(), ids=lambda attempt: attempt.name)
def test_an_attempt_gets_its_verdict_on_a_gpu(attempt: Attempt, verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[attempt.name]
    assert verdict.outcome is attempt.outcome, f"{verdict.outcome.value}: {verdict.reason} {verdict.advice}"
    assert re.search(attempt.reason, verdict.reason), verdict.reason


@pytest.mark.gpu
def test_what_relies_on_earlier_calls_is_no_faster_than_honest_work(verdicts: dict[str, Verdict]) -> None:
    honest = verdicts["honest, for comparison"].timing
    assert honest is not None
    for name, verdict in verdicts.items():
        if verdict.outcome is Outcome.PASSED:
            assert verdict.timing is not None
            assert verdict.timing.speedup.median < 1.01 * honest.speedup.median, name
