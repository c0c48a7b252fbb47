"""External agents: what is laid out for them, what is taken back, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from recording import UNFINISHED
from runs_support import TASK, Timing, begin, play

from ptxbench.core import Outcome, ReplyOutcome, RunMode, StopReason, Target, TrajectoryRecord, UsageError
from ptxbench.native import Cache
from ptxbench.prompts import Prompt
from ptxbench.runners import choose_tasks, make_prompts, write_harbor_task
from ptxbench.runners.external import MAX_BYTES, take_kernel
from ptxbench.store import RunFolder


def prompt() -> Prompt:
    return make_prompts(
        choose_tasks(TASK), Target.SM_90A, RunMode.EXTERNAL, condition="docs", without=(), header_text=""
    )[TASK]


def work(tmp_path: Path, command: str, **changes: Any) -> tuple[TrajectoryRecord, RunFolder]:
    folder = begin(tmp_path / "run", None, mode=RunMode.EXTERNAL, agent=command, turns=1, model="agent", **changes)
    play(folder, Timing().bench())
    (trajectory,) = folder.trajectories()
    return trajectory, folder


def test_the_kernel_that_an_agent_leaves_is_judged(tmp_path: Path) -> None:
    command = "grep -q 'kernel.cu' INSTRUCTIONS.md && test -x judge && printf '// 0.9\\n' > kernel.cu"
    trajectory, folder = work(tmp_path, command)
    (turn,) = trajectory.turns
    assert turn.outcome is Outcome.PASSED
    assert folder.source(turn.source_digest) == "// 0.9\n"
    assert trajectory.stop is StopReason.SUBMITTED


def test_an_agent_that_fails_leaves_what_it_has(tmp_path: Path) -> None:
    trajectory, folder = work(tmp_path, "echo 'no idea'; printf '// wrong_result\\n' > kernel.cu; exit 3")
    assert [turn.outcome for turn in trajectory.turns] == [Outcome.WRONG_RESULT]
    assert trajectory.note == "The agent's command ended with exit code 3."
    assert (folder.root / "logs" / f"{TASK}@1.log").read_text() == "no idea\n"


def test_an_agent_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    command = "printf '// 0.9\\n' > kernel.cu; (sleep 2; echo '// 0.99' > kernel.cu) & sleep 60"
    trajectory, folder = work(tmp_path, command, limits={"seconds": 1})
    assert trajectory.stop is StopReason.TIME_LIMIT
    assert trajectory.note == "The agent was stopped after 1 seconds."
    assert [turn.outcome for turn in trajectory.turns] == [Outcome.PASSED]
    assert subprocess.run(["pgrep", "-f", str(folder.root)], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        ("true", ReplyOutcome.NO_CODE),
        (": > kernel.cu", ReplyOutcome.EMPTY),
        ("ln -s /etc/hostname kernel.cu", ReplyOutcome.NO_CODE),
        ("mkfifo kernel.cu", ReplyOutcome.NO_CODE),
        ("mkdir kernel.cu", ReplyOutcome.NO_CODE),
        ("printf '\\377\\376' > kernel.cu", ReplyOutcome.NO_CODE),
        (f"head -c {MAX_BYTES + 1} /dev/zero > kernel.cu", ReplyOutcome.NO_CODE),
    ],
)
def test_what_is_no_kernel_file_is_not_taken(tmp_path: Path, command: str, outcome: ReplyOutcome) -> None:
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    reading = take_kernel(tmp_path)
    assert reading.outcome is outcome
    assert not reading.source and reading.note.endswith(".")


def test_the_tool_in_the_folder_judges(tmp_path: Path, shared_cache: Cache) -> None:
    folder = begin(tmp_path / "run", None, mode=RunMode.EXTERNAL, agent="true", turns=1, model="agent")
    play(folder, Timing().bench())
    work = folder.root / "work" / f"{TASK}@1"
    (work / "kernel.cu").write_text(UNFINISHED)
    environment = os.environ | {"PTXBENCH_CACHE": str(shared_cache.root)}
    done = subprocess.run(
        [work / "judge", "--json"], env=environment, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1, done.stderr
    assert '"outcome": "compile_error"' in done.stdout


def test_a_task_in_harbors_format(tmp_path: Path) -> None:
    wheel = tmp_path / "ptxbench-0.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    (task,) = choose_tasks(TASK)
    folder = tmp_path / "task"
    write_harbor_task(folder, task, prompt(), package=wheel, solution="// right\n", agent_seconds=60)
    settings = tomllib.loads((folder / "task.toml").read_text())
    assert settings["task"]["name"] == f"ptxbench/{TASK}-sm_90a"
    assert settings["artifacts"] == ["/app/kernel.cu"]
    assert settings["verifier"]["environment_mode"] == "separate"
    assert settings["agent"]["timeout_sec"] == 60
    assert "kernel.cu" in (folder / "instruction.md").read_text()
    assert (folder / "environment" / wheel.name).read_bytes() == b"a wheel"
    assert f"COPY {wheel.name} /opt/" in (folder / "environment" / "Dockerfile").read_text()
    for script in ("tests/test.sh", "solution/solve.sh", "environment/judge"):
        path = folder / script
        assert path.stat().st_mode & 0o111
        assert subprocess.run(["bash", "-n", path], check=False).returncode == 0


@pytest.mark.parametrize(
    ("outcome", "code", "reward"),
    [
        ("correct_untimed", 0, '{"accepted": 1, "correct": 1}'),
        ("instruction_missing", 1, '{"accepted": 0, "correct": 1}'),
        ("wrong_result", 1, '{"accepted": 0, "correct": 0}'),
        ("", 2, None),
    ],
)
def test_harbors_reward_follows_the_verdict(tmp_path: Path, outcome: str, code: int, reward: str | None) -> None:
    """The verifier's script, in a folder instead of a container, with a judge that gives a known answer."""
    wheel = tmp_path / "ptxbench-0.0-py3-none-any.whl"
    wheel.touch()
    (task,) = choose_tasks(TASK)
    write_harbor_task(tmp_path / "task", task, prompt(), package=wheel, solution=None, agent_seconds=60)
    script = (tmp_path / "task" / "tests" / "test.sh").read_text()
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "kernel.cu").write_text("// a kernel\n")
    (tmp_path / "ptxbench").write_text(f"#!/bin/sh\necho '{{\"outcome\": \"{outcome}\"}}'\nexit {code}\n")
    (tmp_path / "ptxbench").chmod(0o755)
    script = script.replace("/logs", f"{tmp_path}/logs").replace("/app", f"{tmp_path}/app")
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", script], env={"PATH": path}, check=False)
    result = tmp_path / "logs" / "verifier" / "reward.json"
    assert (result.read_text() if result.exists() else None) == reward
    assert done.returncode == (2 if reward is None else 0)


def test_a_wheel_that_is_none_is_refused(tmp_path: Path) -> None:
    (task,) = choose_tasks(TASK)
    with pytest.raises(UsageError, match="give the wheel of PTXBench"):
        write_harbor_task(
            tmp_path / "task", task, prompt(), package=tmp_path / "none.whl", solution=None, agent_seconds=60
        )
    with pytest.raises(UsageError, match="is no wheel"):
        write_harbor_task(
            tmp_path / "task", task, prompt(), package=Path(__file__), solution=None, agent_seconds=60
        )
