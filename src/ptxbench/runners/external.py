"""A coding agent of any kind, through a folder: it finds instructions and a tool, and leaves a kernel file.

Nothing but that file is taken back. What the agent saw or printed does not count; the kernel is judged afresh, outside
of the folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ptxbench.core import ReplyOutcome, RunRecord, StopReason, TrajectoryRecord, in_parallel
from ptxbench.prompts import Prompt
from ptxbench.runners.attempt import Attempt
from ptxbench.runners.bench import Bench
from ptxbench.runners.exporting import KERNEL, write_task_folder
from ptxbench.runners.planning import Pace, remaining, stored_prompts
from ptxbench.runners.replies import Reading
from ptxbench.store import RunFolder

MAX_BYTES = 1 << 20
"""Of a kernel file; larger ones are not taken."""


def take_kernel(folder: Path) -> Reading:
    """The kernel that an agent left, or why there is none. Links, devices and large or binary files are not taken."""
    try:
        # A link could name any file of ours, a pipe would wait for ever.
        descriptor = os.open(folder / KERNEL, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return Reading(outcome=ReplyOutcome.NO_CODE, note=f"The agent left no {KERNEL}.")
    except OSError as error:
        return Reading(outcome=ReplyOutcome.NO_CODE, note=f"{KERNEL} cannot be taken: {error.strerror}.")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return Reading(outcome=ReplyOutcome.NO_CODE, note=f"{KERNEL} is no regular file.")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return Reading(outcome=ReplyOutcome.NO_CODE, note=f"{KERNEL} is larger than 1 MiB.")
    if not data.strip():
        return Reading(outcome=ReplyOutcome.EMPTY, note=f"{KERNEL} is empty.")
    try:
        return Reading(outcome=ReplyOutcome.EXTRACTED, source=data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return Reading(outcome=ReplyOutcome.NO_CODE, note=f"{KERNEL} is not UTF-8 text.")


def run_external(
    pace: Pace, folder: RunFolder, bench: Bench, on_end: Callable[[TrajectoryRecord], None]
) -> None:
    """Runs the agent's command once per trajectory that has no record yet, and judges what it leaves.

    ``on_end`` is called for each in the calling thread. An agent that fails or runs out of time has an outcome like any
    other; the judge's `InfrastructureError` ends the run.
    """
    run = folder.record()
    prompts, agents = stored_prompts(folder, run), _Agents(folder, run)

    def one(sample: tuple[str, int]) -> TrajectoryRecord:
        task, epoch = sample
        return _trajectory(Attempt(run, task, epoch, bench, folder), agents, prompts[task])

    in_parallel(one, remaining(run, folder), pace.connections or 1, on_end, ordered=True, abort=agents.kill)


def _trajectory(attempt: Attempt, agents: _Agents, prompt: Prompt) -> TrajectoryRecord:
    work = attempt.folder.root / "work" / attempt.name
    write_task_folder(work, prompt)
    attempt.note = agents.run(attempt.name, work)
    reading = take_kernel(work)
    if reading.outcome is ReplyOutcome.EXTRACTED:
        attempt.judge(reading.source)
    else:
        attempt.take_no_kernel(reading)
    attempt.stop = StopReason.TIME_LIMIT if attempt.note.startswith(_OUT_OF_TIME) else StopReason.SUBMITTED
    return attempt.finish()


_OUT_OF_TIME = "The agent was stopped"


@dataclass
class _Agents:
    """The agents' processes, so that none outlives the run."""

    folder: RunFolder
    record: RunRecord
    running: set[subprocess.Popen[bytes]] = field(default_factory=set[subprocess.Popen[bytes]])

    def run(self, name: str, work: Path) -> str:
        """Runs the command in its folder until it ends or its time is over; returns what was unusual about its end."""
        log = self.folder.root / "logs" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["sh", "-c", self.record.agent], cwd=work, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.running.add(process)
        try:
            code = process.wait(self.record.limits.seconds)
        except subprocess.TimeoutExpired:
            return f"{_OUT_OF_TIME} after {self.record.limits.seconds} seconds."
        finally:
            _kill(process)
            self.running.discard(process)
        return f"The agent's command ended with exit code {code}." if code else ""

    def kill(self) -> None:
        """Ends every agent and what it started."""
        for process in list(self.running):
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and its group, whichever of them is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
