"""A model with tools, whose calls are recorded: what each tool answers, and what the record says in the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inspect_ai.log import read_eval_log
from inspect_ai.model import ChatMessageTool
from recording import LAST_SLICE_LOST, RIGHT
from runs_support import TASK, Timing, begin, kernel, play, write_recording

from ptxbench.core import Outcome, ReplyOutcome, ReplyRecord, RunMode, StopReason, ToolCall, TrajectoryRecord, Usage
from ptxbench.runners import Bench
from ptxbench.store import RunFolder


def calling(*calls: tuple[str, dict[str, Any]], call: int, text: str = "") -> ReplyRecord:
    """A reply that calls tools."""
    return ReplyRecord(
        task=TASK, call=call, text=text, stop="tool_calls", usage=Usage(input_tokens=100, output_tokens=10),
        tool_calls=tuple(ToolCall(id=f"{call}.{i}", function=n, arguments=a) for i, (n, a) in enumerate(calls)),
    )  # fmt: skip


def saying(text: str, call: int, **fields: Any) -> ReplyRecord:
    return ReplyRecord(task=TASK, call=call, text=text, **fields)


def work(tmp_path: Path, bench: Bench, *rows: ReplyRecord, **changes: Any) -> tuple[TrajectoryRecord, list[str]]:
    """The trajectory, and what the tools answered."""
    recording = write_recording(tmp_path / "recording.jsonl", rows)
    folder = play(begin(tmp_path / "run", recording, mode=RunMode.AGENT, **changes), bench)
    (trajectory,) = folder.trajectories()
    return trajectory, tool_answers(folder)


def tool_answers(folder: RunFolder) -> list[str]:
    (log,) = (folder.root / "logs").glob("*.eval")
    (sample,) = read_eval_log(str(log)).samples or []
    return [
        message.error.message if message.error else message.text
        for message in sample.messages if isinstance(message, ChatMessageTool)
    ]  # fmt: skip


def test_an_agent_compiles_simulates_repairs_and_hands_in(tmp_path: Path, bench: Bench) -> None:
    trajectory, answers = work(
        tmp_path, bench,
        calling(("read_document", {"name": "list"}), ("read_document", {"name": "wgmma"}), call=1),
        calling(("write_kernel", {"source": LAST_SLICE_LOST}), ("compile_kernel", {}), call=2),
        calling(("simulate_kernel", {}), call=3),
        calling(("edit_kernel", {"old_text": "k < K / TILE - 1;", "new_text": "k < K / TILE;"}), call=4),
        calling(("read_machine_code", {"pattern": "HGMMA"}), call=5),
        calling(("judge_kernel", {}), call=6),
    )  # fmt: skip
    notes, wgmma, written, compiled, simulated, edited, code, judged = answers
    assert "wgmma" in notes.split(": ")[1].split(", ")
    assert "wgmma.fence" in wgmma
    assert written == edited == f"the kernel has {len(RIGHT.splitlines())} lines"
    assert compiled.startswith("compiled\n") and "registers" in compiled
    assert "wrong_result" in simulated and "wrong at M=256, N=256" in simulated
    assert all("HGMMA.64x64x16.F32.BF16" in line and line.endswith("wgmma") for line in code.splitlines())
    assert judged.startswith("## Verdict: correct_untimed")
    (turn,) = trajectory.turns
    assert turn.outcome is Outcome.CORRECT_UNTIMED
    assert turn.tool_calls == 8
    assert turn.usage == Usage(input_tokens=600, output_tokens=60)
    assert trajectory.stop is StopReason.TARGET_REACHED


def test_the_best_of_several_judgements_counts_and_they_are_limited(tmp_path: Path) -> None:
    trajectory, answers = work(
        tmp_path, Timing().bench(),
        calling(("write_kernel", {"source": "// 0.8\n"}), ("judge_kernel", {}), call=1),
        calling(
            ("write_kernel", {"source": "// 0.7\n"}), ("judge_kernel", {}), ("judge_kernel", {}), call=2
        ),
        turns=2,
    )  # fmt: skip
    assert [turn.speedup.median for turn in trajectory.turns if turn.speedup] == [0.8, 0.7]
    assert trajectory.best == trajectory.turns[0]
    assert trajectory.stop is StopReason.TURNS_USED
    assert answers[-1] == "there are no attempts left"


def test_mistakes_with_tools_are_told(tmp_path: Path) -> None:
    trajectory, answers = work(
        tmp_path, Timing().bench(),
        calling(("judge_kernel", {}), ("edit_kernel", {"old_text": "a", "new_text": "b"}), call=1),
        calling(("write_kernel", {"source": "// wrong_result\na a"}), call=2),
        calling(("edit_kernel", {"old_text": "a", "new_text": "b"}), call=3),
        calling(("read_machine_code", {"pattern": "("}), ("no_such_tool", {}), call=4),
        saying("I give up.", 5),
    )  # fmt: skip
    assert answers[0] == "there is no kernel yet; write it with write_kernel"
    assert "occurs 0 times" in answers[1] and "occurs 2 times" in answers[3]
    assert answers[4].startswith("compile_error")
    assert "no_such_tool" in answers[5]
    assert [turn.outcome for turn in trajectory.turns] == [Outcome.WRONG_RESULT]  # what was written is judged
    assert trajectory.stop is StopReason.SUBMITTED


def test_an_answer_with_a_kernel_is_judged_like_any_other(tmp_path: Path) -> None:
    trajectory, _ = work(tmp_path, Timing().bench(), saying(kernel("0.9"), 1))
    assert [turn.outcome for turn in trajectory.turns] == [Outcome.PASSED]
    assert trajectory.stop is StopReason.SUBMITTED


def test_an_answer_without_anything_is_an_outcome(tmp_path: Path) -> None:
    trajectory, _ = work(tmp_path, Timing().bench(), saying("I'm sorry, but I can't help with that.", 1))
    assert [turn.reply for turn in trajectory.turns] == [ReplyOutcome.REFUSAL]
    assert trajectory.stop is StopReason.SUBMITTED


def test_what_follows_the_last_judgement_is_counted_too(tmp_path: Path) -> None:
    trajectory, _ = work(
        tmp_path, Timing().bench(),
        calling(("write_kernel", {"source": "// 0.8\n"}), ("judge_kernel", {}), call=1),
        saying("Done.", 2, usage=Usage(input_tokens=200, output_tokens=2)),
    )  # fmt: skip
    assert trajectory.rest == Usage(input_tokens=200, output_tokens=2)
    assert trajectory.usage == Usage(input_tokens=300, output_tokens=12)


def test_a_limit_of_calls_ends_it(tmp_path: Path) -> None:
    rows = [calling(("read_document", {"name": "list"}), call=call) for call in range(1, 6)]
    trajectory, answers = work(tmp_path, Timing().bench(), *rows, limits={"calls": 3})
    assert trajectory.stop is StopReason.CALL_LIMIT
    assert len(answers) == 3
