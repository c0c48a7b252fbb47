"""The bundled recording, judged on the simulator: conversations from the prompt to stored verdicts, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from recording import recording
from runs_support import TASK, begin, play

from ptxbench.core import Outcome, ReplyOutcome, ReplyRecord, StopReason, TrajectoryRecord, UsageError
from ptxbench.runners import Bench, rejudge
from ptxbench.runners.recordings import BUNDLED, read_recording
from ptxbench.store import RunFolder, find_runs

pytestmark = pytest.mark.xdist_group("runners_replay")

EXPECTED = [
    [
        Outcome.COMPILE_ERROR, Outcome.CONTRACT_ERROR, Outcome.LAUNCH_ERROR, ReplyOutcome.TRUNCATED,
        Outcome.WRONG_RESULT, Outcome.INSTRUCTION_MISSING, Outcome.CORRECT_UNTIMED,
    ],
    [
        ReplyOutcome.REFUSAL, Outcome.TIMEOUT, Outcome.INTEGRITY_VIOLATION, ReplyOutcome.INCOMPLETE,
        ReplyOutcome.NO_CODE, ReplyOutcome.CONTEXT_OVERFLOW,
    ],
    [Outcome.CORRECT_UNTIMED],
]  # fmt: skip


def outcomes(folder: RunFolder) -> list[list[Outcome | ReplyOutcome]]:
    return [[turn.outcome or turn.reply for turn in trajectory.turns] for trajectory in folder.trajectories()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, bench: Bench) -> RunFolder:
    return play(begin(tmp_path_factory.mktemp("runs") / "bundled", None, epochs=3), bench)


def test_every_turn_gets_the_outcome_that_it_was_written_for(folder: RunFolder) -> None:
    assert outcomes(folder) == EXPECTED
    stops = [trajectory.stop for trajectory in folder.trajectories()]
    assert stops == [StopReason.TARGET_REACHED, StopReason.CONTEXT_OVERFLOW, StopReason.TARGET_REACHED]


def test_what_a_turn_says_is_what_its_stored_verdict_says(folder: RunFolder) -> None:
    judged = [turn for trajectory in folder.trajectories() for turn in trajectory.turns if turn.outcome]
    assert len(judged) == 9
    for turn in judged:
        verdict = folder.verdict(turn.verdict_key or "")
        assert verdict.outcome is turn.outcome
        assert verdict.source_digest == turn.source_digest
        assert 'extern "C" int launch' in folder.source(turn.source_digest)


def test_the_best_turn_is_the_accepted_one(folder: RunFolder) -> None:
    first = folder.trajectories()[0]
    assert first.best and first.best.index == 7
    assert first.usage.reasoning_tokens > 0


def test_the_folder_is_found_and_says_what_it_was_made_with(folder: RunFolder) -> None:
    (run,) = find_runs(folder.root.parent)
    assert run == folder.record()
    assert run.prompts[TASK].tokens > 500


def test_a_run_can_be_replayed_from_its_own_replies(folder: RunFolder, bench: Bench, tmp_path: Path) -> None:
    again = play(begin(tmp_path / "again", folder.root, epochs=3), bench)
    assert [_lasting(t) for t in again.trajectories()] == [_lasting(t) for t in folder.trajectories()]


def test_a_run_can_be_judged_again(folder: RunFolder, bench: Bench, tmp_path: Path) -> None:
    new = begin(tmp_path / "rejudged", None, epochs=3, rejudged=folder.record().run)
    ended: list[TrajectoryRecord] = []
    assert rejudge(folder, new, bench, jobs=1, on_end=ended.append) == []
    assert outcomes(new) == EXPECTED
    assert [trajectory.run for trajectory in ended] == ["rejudged"] * 3
    assert new.replies(TASK, 1) == folder.replies(TASK, 1)


def test_the_bundled_recording_is_what_the_script_writes() -> None:
    assert BUNDLED.read_text() == recording(), "run tests/runners/recording.py"
    assert "by hand" in read_recording(BUNDLED).origin


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"line 1 is not a reply"),
        ('{"task": "t"}', r"line 1 is not a reply \(Field required\)"),
        ('\n{"task": "t", "call": 2}', r"not numbered 1, 2, \.\.\."),
        ('{"task": "t", "call": 1}\n{"task": "t", "call": 1}', r"not numbered 1, 2, \.\.\."),
    ],
)
def test_a_broken_recording_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_recording(path)


def test_a_missing_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the recording"):
        read_recording(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="holds no replies"):
        read_recording(tmp_path)


def test_text_that_is_no_unicode_is_repaired(bench: Bench, tmp_path: Path) -> None:
    rows = [ReplyRecord(task=TASK, call=1, text="half a character: ?")]
    path = tmp_path / "surrogate.jsonl"
    path.write_text(rows[0].model_dump_json().replace("?", "\\ud83d"))
    folder = play(begin(tmp_path / "run", path, turns=1), bench)
    assert folder.replies(TASK, 1)[0].text == "half a character: ?"


def _lasting(trajectory: TrajectoryRecord) -> list[tuple[object, ...]]:
    return [(t.reply, t.outcome, t.source_digest, t.verdict_key, t.usage) for t in trajectory.turns]
