"""When a trajectory ends, and what its record says then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from inspect_ai.model import ChatMessage, GenerateConfig, ModelAPI, ModelOutput, modelapi
from inspect_ai.tool import ToolChoice, ToolInfo
from runs_support import AGAIN, Timing, begin, kernel, play, replies, write_recording

from ptxbench.core import DeviceError, Outcome, Price, ReplyOutcome, RunMode, StopReason, TrajectoryRecord, UsageError
from ptxbench.store import RunFolder


@modelapi(name="ptxbench-test-slow")
class SlowAPI(ModelAPI):
    """Answers too late."""

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        await anyio.sleep(60)
        raise AssertionError


Play = Callable[..., RunFolder]


def only(folder: RunFolder) -> TrajectoryRecord:
    (trajectory,) = folder.trajectories()
    return trajectory


def outcomes(trajectory: TrajectoryRecord) -> list[Outcome | ReplyOutcome]:
    return [turn.outcome or turn.reply for turn in trajectory.turns]


def test_a_target_speedup_ends_it_and_the_best_verdict_counts(played: Play) -> None:
    rows = replies(kernel("compile_error"), kernel("0.50"), kernel("0.90"), kernel("0.70"))
    trajectory = only(played(rows, target_speedup=0.9))
    assert outcomes(trajectory) == [Outcome.COMPILE_ERROR, Outcome.PASSED, Outcome.PASSED]
    assert trajectory.stop is StopReason.TARGET_REACHED
    assert trajectory.best == trajectory.turns[2]
    assert trajectory.turns[2].speedup and trajectory.turns[2].speedup.median == 0.9


def test_without_a_target_all_turns_are_used_where_the_device_times(played: Play) -> None:
    folder = played(replies(kernel("0.50"), kernel("0.90"), kernel("wrong_result")), turns=3)
    trajectory = only(folder)
    assert trajectory.stop is StopReason.TURNS_USED
    assert trajectory.best == trajectory.turns[1]
    assert trajectory.usage.input_tokens == 3000
    verdict = folder.verdict(trajectory.turns[1].verdict_key or "")
    assert verdict.timing and verdict.timing.speedup == trajectory.turns[1].speedup
    assert folder.source(trajectory.turns[1].source_digest).startswith("// 0.90")


def test_the_best_kernel_is_measured_once_more_after_the_choice(played: Play) -> None:
    chosen = only(played(replies(kernel("0.50"), kernel("0.90"), kernel("0.70")), turns=3))
    assert chosen.remeasured and chosen.remeasured.median == pytest.approx(0.9 * AGAIN)
    assert chosen.best and chosen.best.speedup and chosen.best.speedup.median == 0.9


def test_what_was_not_timed_is_not_measured_again(played: Play) -> None:
    assert only(played(replies(kernel("wrong_result")), turns=1)).remeasured is None


def test_one_shot_is_one_turn(played: Play) -> None:
    trajectory = only(played(replies(kernel("wrong_result"), kernel("0.90")), mode=RunMode.ONE_SHOT, turns=1))
    assert outcomes(trajectory) == [Outcome.WRONG_RESULT]
    assert trajectory.stop is StopReason.TURNS_USED


def test_a_provider_error_is_an_outcome(played: Play) -> None:
    rows = replies(kernel("wrong_result"), "")
    rows[1] = rows[1].model_copy(update={"error": "503: overloaded"})
    trajectory = only(played(rows))
    assert outcomes(trajectory) == [Outcome.WRONG_RESULT, ReplyOutcome.PROVIDER_ERROR]
    assert "503: overloaded" in trajectory.turns[1].note
    assert trajectory.stop is StopReason.PROVIDER_ERROR


def test_a_conversation_that_is_too_long_is_an_outcome(played: Play) -> None:
    rows = replies(kernel("wrong_result"), "")
    rows[1] = rows[1].model_copy(update={"stop": "model_length"})
    trajectory = only(played(rows))
    assert outcomes(trajectory) == [Outcome.WRONG_RESULT, ReplyOutcome.CONTEXT_OVERFLOW]
    assert trajectory.stop is StopReason.CONTEXT_OVERFLOW


@pytest.mark.parametrize(
    ("stop", "outcome"), [("content_filter", ReplyOutcome.REFUSAL), ("max_tokens", ReplyOutcome.TRUNCATED)]
)
def test_a_reply_without_a_kernel_is_told_so_and_the_model_goes_on(
    played: Play, stop: str, outcome: ReplyOutcome
) -> None:
    rows = replies("Let me think.", kernel("0.90"))
    rows[0] = rows[0].model_copy(update={"stop": stop})
    trajectory = only(played(rows, target_speedup=0.5))
    assert outcomes(trajectory) == [outcome, Outcome.PASSED]


def test_a_token_limit_ends_it_and_the_last_answer_is_judged(played: Play) -> None:
    rows = replies(kernel("wrong_result"), kernel("0.90"), kernel("0.95"))
    trajectory = only(played(rows, limits={"tokens": 2500}))
    assert outcomes(trajectory) == [Outcome.WRONG_RESULT, Outcome.PASSED]
    assert trajectory.stop is StopReason.TOKEN_LIMIT
    assert "2,500" in trajectory.note


def test_a_cost_limit_ends_it(played: Play) -> None:
    rows = replies(kernel("wrong_result"), kernel("0.90"), kernel("0.95"))
    price = Price(input=1.0, output=10.0, cached=0.1)
    trajectory = only(played(rows, limits={"cost": 0.01}, price=price))
    assert trajectory.stop is StopReason.COST_LIMIT
    assert len(trajectory.turns) == 2
    assert trajectory.usage.cost == pytest.approx(2 * (1000 * 1.0 + 500 * 10.0) / 1e6)


def test_a_time_limit_ends_it_after_the_kernel_that_is_being_judged(played: Play) -> None:
    rows = replies(kernel("wrong_result"), kernel("0.90"), kernel("0.95"))
    trajectory = only(played(rows, Timing(seconds=1.5), limits={"seconds": 1}))
    assert outcomes(trajectory) == [Outcome.WRONG_RESULT]
    assert trajectory.stop is StopReason.TIME_LIMIT


def test_a_time_limit_cuts_a_call_short(tmp_path: Path) -> None:
    folder = begin(tmp_path / "run", None, model="ptxbench-test-slow/model", limits={"seconds": 1})
    trajectory = only(play(folder, Timing().bench()))
    assert outcomes(trajectory) == [ReplyOutcome.LIMIT]
    assert trajectory.stop is StopReason.TIME_LIMIT
    assert trajectory.seconds < 10


def test_a_recording_that_lacks_an_epoch_is_refused_before_anything_is_run(played: Play) -> None:
    with pytest.raises(UsageError, match=r"no replies for gemm_n7168_k5120, epoch 2; it has gemm_n7168_k5120@1"):
        played(replies(kernel("0.90")), epochs=2)


def test_a_recording_that_ends_too_early_ends_the_trajectory(played: Play) -> None:
    trajectory = only(played(replies(kernel("wrong_result"))))
    assert outcomes(trajectory) == [Outcome.WRONG_RESULT]
    assert (trajectory.stop, trajectory.note) == (StopReason.RECORDING_ENDED, "there are no more recorded replies")


def test_a_judge_that_fails_ends_the_run_and_is_no_outcome(played: Play, tmp_path: Path) -> None:
    rows = [*replies(kernel("0.9")), *replies(kernel("wrong_result"), kernel("no device"), epoch=2)]
    with pytest.raises(DeviceError, match="the device was lost; try again"):
        played(rows, epochs=2, target_speedup=0.5)
    folder = RunFolder(tmp_path / "run")
    assert [trajectory.epoch for trajectory in folder.trajectories()] == [1]
    rows[2] = rows[2].model_copy(update={"text": kernel("0.8")})
    write_recording(tmp_path / "recording.jsonl", rows)
    play(folder, Timing().bench())
    assert [outcomes(t) for t in folder.trajectories()] == [[Outcome.PASSED], [Outcome.WRONG_RESULT, Outcome.PASSED]]


def test_a_kernel_that_the_simulator_cannot_run_has_no_verdict(played: Play) -> None:
    trajectory = only(played(replies(kernel("unsupported"), kernel("0.9")), target_speedup=0.5))
    assert outcomes(trajectory) == [ReplyOutcome.EXTRACTED, Outcome.PASSED]
    assert trajectory.turns[0].note == "the simulator does not implement `brkpt`"
    assert trajectory.turns[0].verdict_key is None
