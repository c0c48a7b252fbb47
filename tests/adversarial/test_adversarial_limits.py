"""How long a candidate can keep the simulator busy."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from adversarial_attempts import SEED, attempts

from ptxbench.core import Outcome, make_candidate
from ptxbench.evaluate import LocalEvaluator, simulator_trials
from ptxbench.evaluate.trials import STEP_LIMIT
from ptxbench.tasks import load_tasks

SECONDS = 60.0
"""Of processor time, for a kernel that would never end: ten times what it takes on one core of a server."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["computes for ever", "multiplies for ever", "copies for ever"])
def test_what_does_not_end_is_ended_within_a_minute(evaluator: LocalEvaluator, name: str) -> None:
    attempt = next(attempt for attempt in attempts() if attempt.name == name)
    candidate = make_candidate(attempt.text(), task=attempt.task, target=attempt.target, origin=name)
    begin = time.process_time()
    verdict = replace(evaluator, seed=SEED).evaluate(candidate)
    assert time.process_time() - begin < SECONDS
    assert verdict.outcome is Outcome.TIMEOUT
    assert "Step limit: the run exceeded" in verdict.reason


@pytest.mark.parametrize("task", load_tasks().values(), ids=lambda task: task.name)
def test_the_replays_of_a_verdict_share_one_limit(task) -> None:
    limits = [trial.options.step_limit for trial in simulator_trials(task, ("small", "heldout"), SEED)]
    assert len(set(limits)) == 1 and 0.99 * STEP_LIMIT < sum(limits) <= STEP_LIMIT
