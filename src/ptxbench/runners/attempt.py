"""One trajectory in the making: replies come in, turns are judged, and a rule says when it is over.

Nothing here knows how a model is called.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ptxbench.core import (
    ReplyOutcome,
    ReplyRecord,
    RunRecord,
    StopReason,
    TrajectoryRecord,
    TurnRecord,
    Usage,
    Verdict,
    make_candidate,
)
from ptxbench.prompts import feedback
from ptxbench.runners.bench import Bench, Judged
from ptxbench.runners.replies import Reading, read_reply
from ptxbench.store import RunFolder


@dataclass
class Attempt:
    """A model's attempt at one task. ``stop`` is set once it is over; `finish` then stores it.

    Usage of calls that made no turn yet (an agent's) is counted towards the next.
    """

    run: RunRecord
    task: str
    epoch: int
    bench: Bench
    folder: RunFolder
    stop: StopReason | None = None
    note: str = ""
    turns: list[TurnRecord] = field(default_factory=list[TurnRecord])
    replies: list[ReplyRecord] = field(default_factory=list[ReplyRecord])
    _since: Usage = field(default_factory=Usage)
    _seconds_since: float = 0.0
    _tool_calls_since: int = 0
    _started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    _begin: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        """For people: task and epoch."""
        return f"{self.task}@{self.epoch}"

    @property
    def seed(self) -> int | None:
        """What is sent to the provider."""
        return self.run.seeds[self.epoch - 1] if self.run.seeds else None

    def hear(self, reply: ReplyRecord) -> None:
        """Keeps a reply and counts what it cost."""
        self.replies.append(reply)
        self._since += reply.usage
        self._seconds_since += reply.seconds
        self._tool_calls_since += len(reply.tool_calls)

    def answer(self, reply: ReplyRecord) -> str:
        """Hears a reply, judges the kernel in it, and returns what the model is told."""
        self.hear(reply)
        reading = read_reply(reply)
        if reading.outcome is ReplyOutcome.EXTRACTED:
            return self.judge(reading.source, note=reading.note)
        return self.take_no_kernel(reading)

    def judge(self, source: str, *, note: str = "") -> str:
        """Judges a kernel as a turn and returns the verdict in the model's words."""
        origin = f"{self.run.run}/{self.name}/turn {len(self.turns) + 1}"
        candidate = make_candidate(source, task=self.task, target=self.run.target, origin=origin)
        judged = self.bench.judge(candidate, self.folder)
        self._add(ReplyOutcome.EXTRACTED, judged.problem or note, judged)
        self._stop_by_rule(judged.verdict)
        if judged.verdict is None:
            return f"There is no verdict on this kernel: {judged.problem}"
        told = feedback(judged.verdict, source, max_tokens=self.run.feedback_tokens)
        return f"{told}\n{self._best_so_far()}"

    def take_no_kernel(self, reading: Reading) -> str:
        """Records a reply without a kernel as a turn and returns what is said to it."""
        self._add(reading.outcome, reading.note, None)
        match reading.outcome:
            case ReplyOutcome.PROVIDER_ERROR:
                self.stop = StopReason.PROVIDER_ERROR
            case ReplyOutcome.CONTEXT_OVERFLOW:
                self.stop = StopReason.CONTEXT_OVERFLOW
            case _:
                self._stop_by_rule(None)
        return f"{reading.note}\n{self._left()}"

    def finish(self) -> TrajectoryRecord:
        """Stores the trajectory, which must be over, and everything it refers to; its best kernel is timed again."""
        if self.stop is None:
            raise ValueError(f"{self.name} is not over")
        trajectory = TrajectoryRecord(
            run=self.run.run,
            task=self.task,
            target=self.run.target,
            epoch=self.epoch,
            seed=self.seed,
            prompt_digest=self.run.prompts[self.task].digest,
            turns=tuple(self.turns),
            rest=self._since,
            stop=self.stop,
            note=self.note,
            started=self._started,
            seconds=round(time.monotonic() - self._begin, 3),
        )
        trajectory = self.bench.remeasure(trajectory, self.folder)
        self.folder.put_trajectory(trajectory, self.replies)
        return trajectory

    def _add(self, outcome: ReplyOutcome, note: str, judged: Judged | None) -> None:
        verdict = judged.verdict if judged else None
        self.turns.append(
            TurnRecord(
                index=len(self.turns) + 1,
                reply=outcome,
                note=note,
                source_digest=judged.source_digest if judged else "",
                verdict_key=judged.key if judged else None,
                outcome=verdict.outcome if verdict else None,
                speedup=verdict.timing.speedup if verdict and verdict.timing else None,
                usage=self._since,
                tool_calls=self._tool_calls_since,
                model_seconds=round(self._seconds_since, 3),
                judge_seconds=round(judged.seconds, 3) if judged else 0.0,
            )
        )
        self._since, self._seconds_since, self._tool_calls_since = Usage(), 0.0, 0

    def _stop_by_rule(self, verdict: Verdict | None) -> None:
        """The target speedup ends it, an accepted kernel where nothing can be timed, and the number of turns."""
        if verdict and verdict.outcome.accepted:
            speedup = verdict.timing.speedup.median if verdict.timing else None
            wanted = self.run.target_speedup
            if not self.bench.times or (speedup is not None and wanted is not None and speedup >= wanted):
                self.stop = StopReason.TARGET_REACHED
                return
        if len(self.turns) >= self.run.turns:
            self.stop = StopReason.TURNS_USED

    def _best_so_far(self) -> str:
        best = max((turn for turn in self.turns if turn.outcome), key=lambda turn: turn.merit)
        speedup = f", {best.speedup.median:.3f} times the library's speed" if best.speedup else ""
        return f"Best so far: attempt {best.index} ({best.outcome}{speedup}). {self._left()}"

    def _left(self) -> str:
        return f"Attempts left: {self.run.turns - len(self.turns)}."
