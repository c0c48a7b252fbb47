"""The real judge on the simulator, and runs against a judge whose answers are known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from runs_support import Timing, begin, play, write_recording

from ptxbench.core import ReplyRecord
from ptxbench.evaluate import LocalEvaluator, StoringEvaluator
from ptxbench.runners import Bench
from ptxbench.store import RunFolder, VerdictStore


@pytest.fixture(scope="session")
def evaluator(evaluator: LocalEvaluator) -> LocalEvaluator:
    return replace(evaluator, include=None, tiers=("small",), threads=1)


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> VerdictStore:
    """Shared by the tests of a session, as the store of a machine is shared by its runs."""
    return VerdictStore(tmp_path_factory.mktemp("verdicts"))


@pytest.fixture(scope="session")
def bench(evaluator: LocalEvaluator, verdicts: VerdictStore) -> Bench:
    storing = StoringEvaluator(evaluator, verdicts, resume=True)
    return Bench(storing, evaluator.key, storing, storing, evaluator.compile, times=False)


Play = Callable[..., RunFolder]


@pytest.fixture
def played(tmp_path: Path) -> Play:
    """Runs replies against a judge whose answers are known."""

    def run(rows: Sequence[ReplyRecord], judge: Timing | None = None, **changes: Any) -> RunFolder:
        recording = write_recording(tmp_path / "recording.jsonl", rows)
        return play(begin(tmp_path / "run", recording, **changes), (judge or Timing()).bench())

    return run
