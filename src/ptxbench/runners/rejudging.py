"""Judging a finished run again: the same kernels, today's judge, fresh secret seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ptxbench.core import Outcome, RunRecord, TrajectoryRecord, TurnRecord, in_parallel, make_candidate
from ptxbench.runners.bench import Bench
from ptxbench.store import RunFolder


@dataclass(frozen=True)
class Change:
    """A turn whose outcome is another one now; None where there is no verdict."""

    trajectory: str
    turn: int
    before: Outcome | None
    after: Outcome | None


def rejudge(
    old: RunFolder, new: RunFolder, bench: Bench, *, jobs: int, on_end: Callable[[TrajectoryRecord], None]
) -> list[Change]:
    """Judges every kernel of ``old`` again into the folder ``new`` and returns what changed.

    ``new`` holds a run's record already. Replies and usage are copied; what a model was told stays what the old judge
    said. Trajectories that ``new`` has already are left alone, so that an interrupted call can be repeated.
    """
    run = new.record()
    done = {(trajectory.task, trajectory.epoch): trajectory for trajectory in new.trajectories()}
    changes: list[Change] = []

    def again(trajectory: TrajectoryRecord) -> tuple[TrajectoryRecord, TrajectoryRecord]:
        ready = done.get((trajectory.task, trajectory.epoch))
        if ready:
            return trajectory, ready
        turns = tuple(_judged(turn, trajectory, run, old, new, bench) for turn in trajectory.turns)
        judged = bench.remeasure(trajectory.model_copy(update={"run": run.run, "turns": turns}), new)
        new.put_trajectory(judged, old.replies(trajectory.task, trajectory.epoch))
        return trajectory, judged

    def note(pair: tuple[TrajectoryRecord, TrajectoryRecord]) -> None:
        changes.extend(_changes(*pair))
        on_end(pair[1])

    in_parallel(again, old.trajectories(), jobs, note, ordered=True)
    return changes


def _judged(
    turn: TurnRecord, trajectory: TrajectoryRecord, run: RunRecord, old: RunFolder, new: RunFolder, bench: Bench
) -> TurnRecord:
    if not turn.source_digest:
        return turn
    origin = f"{run.run}/{trajectory.task}@{trajectory.epoch}/turn {turn.index}"
    source = old.source(turn.source_digest)
    judged = bench.judge(make_candidate(source, task=trajectory.task, target=trajectory.target, origin=origin), new)
    verdict = judged.verdict
    return turn.model_copy(
        update={
            "note": judged.problem or turn.note,
            "verdict_key": judged.key,
            "outcome": verdict.outcome if verdict else None,
            "speedup": verdict.timing.speedup if verdict and verdict.timing else None,
            "judge_seconds": round(judged.seconds, 3),
        }
    )


def _changes(before: TrajectoryRecord, after: TrajectoryRecord) -> Sequence[Change]:
    return [
        Change(f"{before.task}@{before.epoch}", a.index, a.outcome, b.outcome)
        for a, b in zip(before.turns, after.turns, strict=True)
        if a.outcome != b.outcome
    ]

