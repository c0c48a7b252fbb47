"""What a run is told to do: tasks, prompts by mode, and the folder that remembers them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from runs_support import TASK, begin

from ptxbench.core import RunMode, Target, UsageError
from ptxbench.runners import choose_tasks, header_text, make_prompts, remaining, run_name, stored_prompts
from ptxbench.solutions import include_dir
from ptxbench.store import RunFolder, find_runs


def text(mode: RunMode, condition: str = "bare", without: tuple[str, ...] = ()) -> str:
    tasks = choose_tasks(TASK)
    headers = header_text(include_dir())
    prompts = make_prompts(
        tasks, Target.SM_90A, mode, condition=condition, without=without, header_text=headers
    )
    return prompts[TASK].user


def test_a_suite_stands_for_its_tasks() -> None:
    core = choose_tasks("core")
    assert len(core) == 5 and {task.suite for task in core} == {"core"}
    assert choose_tasks(f"{TASK}, core")[0].name == TASK
    assert len(choose_tasks(f"{TASK},core")) == 5
    with pytest.raises(UsageError, match="did you mean"):
        choose_tasks("gem_n7168_k5120")


def test_each_mode_says_how_to_hand_in() -> None:
    for mode, words in {
        RunMode.MULTI_TURN: "in one fenced block", RunMode.AGENT: "`judge_kernel` hands the file in",
        RunMode.EXTERNAL: "as `kernel.cu` in this folder",
    }.items():  # fmt: skip
        others = {"in one fenced block", "`judge_kernel` hands the file in", "as `kernel.cu` in this folder"} - {words}
        assert words in text(mode)
        assert not any(other in text(mode) for other in others)


def test_a_condition_and_what_is_left_out_make_the_prompt() -> None:
    whole, bare = text(RunMode.ONE_SHOT, "docs"), text(RunMode.ONE_SHOT, "docs", ("ptx", "sheet"))
    assert len(bare) < len(whole)
    assert bare == text(RunMode.ONE_SHOT)
    assert "ptxbench/ptx/wgmma.cuh" in text(RunMode.ONE_SHOT, "headers")


def test_a_runs_name_says_what_it_is() -> None:
    when = datetime(2026, 11, 29, 18, 15, tzinfo=UTC)
    names = [
        run_name(model, RunMode.MULTI_TURN, "docs", Target.SM_90A, when)
        for model in ("openai/gpt-5", "replay:a b/book.jsonl", "local")
    ]
    assert names == [f"20261129-181500-{name}-multi-turn-docs-sm_90a" for name in ("gpt-5", "book", "local")]


def test_a_run_keeps_the_prompts_that_it_was_begun_with(tmp_path: Path) -> None:
    folder = begin(tmp_path / "run", None, epochs=2)
    run = folder.record()
    prompts = stored_prompts(folder, run)
    assert prompts[TASK].digest == run.prompts[TASK].digest
    assert remaining(run, folder) == [(TASK, 1), (TASK, 2)]
    path = folder.root / "prompts" / f"{TASK}.json"
    changed = prompts[TASK].model_copy(update={"digest": "0"})
    path.write_text(changed.model_dump_json())
    with pytest.raises(UsageError, match="is not the prompt that the run was begun with"):
        stored_prompts(folder, run)
    path.unlink()
    with pytest.raises(UsageError, match="folder is incomplete"):
        stored_prompts(folder, run)


def test_a_folder_holds_one_run_and_one_process(tmp_path: Path) -> None:
    folder = begin(tmp_path / "run", None)
    with pytest.raises(UsageError, match="holds a run already"):
        begin(tmp_path / "run", None)
    with (
        folder.lock(),
        pytest.raises(UsageError, match="another process works on"),
        RunFolder(tmp_path / "run").lock(),
    ):
        pass
    with RunFolder(tmp_path / "run").lock():
        assert [run.run for run in find_runs(tmp_path)] == ["run"]


def test_a_changed_kernel_is_noticed(tmp_path: Path) -> None:
    folder = begin(tmp_path / "run", None)
    digest = folder.put_source("// a kernel\n")
    assert folder.source(digest) == "// a kernel\n"
    (folder.root / "sources" / f"{digest}.cu").write_text("// another\n")
    with pytest.raises(UsageError, match="was changed after the run"):
        folder.source(digest)
    with pytest.raises(UsageError, match="folder is incomplete"):
        folder.source("0" * 64)
