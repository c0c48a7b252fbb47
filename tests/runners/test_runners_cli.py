"""`ptxbench run`, `resume` and `rejudge` as processes: what they keep when they are killed, and how they end."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from recording import UNFINISHED, fenced
from runs_support import TASK, replies, write_recording

from cli_program import ENDLESS_KERNEL, Running, run
from ptxbench.core import Outcome, ReplyOutcome
from ptxbench.evaluate import LocalEvaluator
from ptxbench.store import RunFolder

pytestmark = pytest.mark.xdist_group("runners_cli")

OPTIONS = ("--target", "sm_90a", "--tasks", TASK, "--condition", "bare", "--workloads", "small")


@pytest.fixture(scope="module")
def cache(evaluator: LocalEvaluator) -> Path:
    """With our libraries built."""
    return evaluator.cache.root


def recording(path: Path, *texts: str) -> Path:
    """A reply to each of several epochs."""
    return write_recording(path, [row for epoch, text in enumerate(texts, 1) for row in replies(text, epoch=epoch)])


def outcomes(folder: Path) -> Sequence[Outcome | ReplyOutcome]:
    return [turn.outcome or turn.reply for t in RunFolder(folder).trajectories() for turn in t.turns]


def seeds(folder: Path) -> list[tuple[int, ...]]:
    run = RunFolder(folder)
    return [run.verdict(turn.verdict_key or "").seeds for t in run.trajectories() for turn in t.turns]


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path, cache: Path) -> None:
    book, folder = tmp_path / "book.jsonl", tmp_path / "runs" / "killed"
    recording(book, fenced("One.", UNFINISHED), fenced("Two.", ENDLESS_KERNEL), "Three.")
    options = (*OPTIONS, "--mode", "one-shot", "--epochs", "3", "--connections", "1")
    killed = Running(
        "run", "--model", f"replay:{book}", *options, "--out", tmp_path / "runs", "--name", "killed", cache=cache,
        folder=tmp_path,
    )  # fmt: skip
    killed.wait_for("[1/3]")
    time.sleep(1.0)  # the second is being judged
    assert killed.end(signal.SIGKILL).code == -signal.SIGKILL
    assert outcomes(folder) == [Outcome.COMPILE_ERROR]
    (folder / "verdicts" / ".left.json.half").write_text("{")
    first = folder / "trajectories" / f"{TASK}@1.json"
    before = first.stat().st_mtime_ns

    recording(book, "never asked again", fenced("Two.", UNFINISHED + "// two\n"), "Three.")
    done = run("resume", folder, "--connections", "1", "--json", cache=cache)
    assert done.code == 0, done.err
    assert outcomes(folder) == [Outcome.COMPILE_ERROR, Outcome.COMPILE_ERROR, ReplyOutcome.NO_CODE]
    assert first.stat().st_mtime_ns == before
    assert "[2/2]" in done.err
    shown = json.loads(done.out)
    assert [t["epoch"] for t in shown["trajectories"]] == [1, 2, 3]
    assert not list(folder.rglob(".left*"))

    again = run("resume", folder, cache=cache)
    assert (again.code, again.out) == (0, f"{folder}: 0 of 3 trajectories have an accepted kernel\n")


def test_an_interrupted_run_says_so_and_stores_nothing_unfinished(tmp_path: Path, cache: Path) -> None:
    book = recording(tmp_path / "book.jsonl", fenced("Endless.", ENDLESS_KERNEL))
    running = Running("run", "--model", f"replay:{book}", *OPTIONS, "--name", "stopped", cache=cache, folder=tmp_path)
    folder = tmp_path / "runs" / "stopped"
    deadline = time.monotonic() + 60
    while not list(folder.glob("sources/*.cu")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    ended = running.end(signal.SIGINT, pause=1.0)
    assert ended.code == 2
    assert ended.sentence == "ptxbench: stopped by SIGINT; nothing was left half-written"
    assert ended.seconds < 10
    assert RunFolder(folder).trajectories() == ()


def test_a_providers_failure_can_be_repeated_and_a_run_judged_again(tmp_path: Path, cache: Path) -> None:
    book, folder = tmp_path / "book.jsonl", tmp_path / "runs" / "failed"
    rows = replies(fenced("One.", UNFINISHED))
    write_recording(book, [rows[0].model_copy(update={"error": "503: overloaded"})])
    done = run(
        "run", "--model", f"replay:{book}", *OPTIONS, "--turns", "1", "--out", tmp_path / "runs", "--name", "failed",
        cache=cache,
    )  # fmt: skip
    assert done.code == 1
    assert "A provider failed in 1 of them" in done.out and "503: overloaded" in done.out
    write_recording(book, rows)
    assert run("resume", folder, "--retry", cache=cache).code == 0
    assert outcomes(folder) == [Outcome.COMPILE_ERROR]

    rejudged = run("rejudge", folder, cache=cache)
    assert rejudged.code == 0, rejudged.err
    new = RunFolder(folder.with_name("failed-rejudged"))
    assert new.record().rejudged == "failed"
    assert outcomes(new.root) == [Outcome.COMPILE_ERROR]
    assert seeds(new.root) != seeds(folder)
    assert run("rejudge", folder, cache=cache).code == 0  # repeated: nothing is left to do
    refused = run("resume", new.root, cache=cache)
    assert refused.code == 2 and "repeat `ptxbench rejudge`" in refused.sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--model", "replay", "--tasks", "gem_n7168_k5120"), "did you mean"),
        (("--model", "replay", "--condition", "doc"), "unknown prompt condition 'doc'; did you mean docs"),
        (("--model", "replay", "--without", "sheet", "--condition", "bare"), "condition 'bare' has no part 'sheet'"),
        (("--model", "replay", "--device", "tpu"), "there is no device 'tpu'"),
        (("--model", "replay", "--mode", "external"), "--mode external and --agent COMMAND belong together"),
        (("--model", "replay", "--price", "cheap"), "--price takes input,output"),
        (("--model", "replay", "--cost-limit", "1"), "--cost-limit needs a price"),
        (("--model", "replay", "--reasoning-effort", "huge"), "there is no reasoning effort 'huge'"),
        (("--model", "gpt-5"), "there is no model 'gpt-5'; use provider/model, replay:FILE.jsonl, or local"),
        (("--model", "nobody/model"), "cannot use the model nobody/model"),
        (("--model", "replay:none.jsonl"), "cannot read the recording none.jsonl"),
        (("--model", "local:none.gguf"), "--model local"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    tmp_path: Path, cache: Path, arguments: Sequence[str], sentence: str
) -> None:
    done = run("run", "--target", "sm_90a", "--out", tmp_path / "runs", *arguments, cache=cache, cwd=tmp_path)
    assert done.code == 2
    assert sentence in done.sentence
    assert done.out == ""
    assert not (tmp_path / "runs").exists()


def test_a_folder_without_a_run_is_refused(tmp_path: Path, cache: Path) -> None:
    for command in ("resume", "rejudge"):
        done = run(command, tmp_path, cache=cache)
        assert done.code == 2 and "give the folder of a run" in done.sentence
