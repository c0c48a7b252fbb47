"""A run as the tables see it: its record, the trajectories that ended, and what has to be said beside any number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ptxbench.core import ReplyOutcome, RunRecord, StopReason, TrajectoryRecord, TurnRecord
from ptxbench.stats import speedup_of
from ptxbench.store import RunFolder

NOT_JUDGED = "not_judged"


@dataclass(frozen=True)
class Run:
    """One run. ``trajectories`` are those that ended, by task and epoch; ``clean`` holds the keys of accepted verdicts
    without any hazard.
    """

    record: RunRecord
    trajectories: tuple[TrajectoryRecord, ...]
    clean: frozenset[str]

    @property
    def name(self) -> str:
        """The run's own name, the last part of its folder."""
        return self.record.run

    @property
    def samples(self) -> frozenset[tuple[str, int]]:
        """(task, epoch) of the trajectories that ended."""
        return frozenset((one.task, one.epoch) for one in self.trajectories)

    @property
    def missing(self) -> int:
        """How many trajectories that belong to the run have not ended."""
        return len(self.record.samples) - len(self.trajectories)

    @property
    def device(self) -> str:
        """The name of the judging device."""
        return str(self.record.device["name"])

    @cached_property
    def outcomes(self) -> dict[str, int]:
        """How many turns ended in which outcome: the verdict's, or what was wrong with the reply, or ``not_judged``.
        Most frequent first.
        """
        counts = Counter(_outcome(turn) for trajectory in self.trajectories for turn in trajectory.turns)
        return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))

    def of(self, samples: Collection[tuple[str, int]], turns: int) -> Run:
        """The run as if it had been asked for these (task, epoch) and this many turns only."""
        kept = tuple(_shortened(one, turns) for one in self.trajectories if (one.task, one.epoch) in samples)
        return replace(self, record=self.record.model_copy(update={"turns": turns}), trajectories=kept)

    def notes(self) -> tuple[str, ...]:
        """What a reader must know before trusting a number, one sentence each, gravest first."""
        record = self.record
        said: list[str] = []
        if record.trained_on_evaluation_tasks:
            known = ", ".join(record.trained_on_evaluation_tasks)
            said.append(f"{self.name}: the model was adapted on solutions of {known}, so its numbers there say "
                        "nothing of tasks that it has not seen.")  # fmt: skip
        if self.missing:
            said.append(f"{self.name} is incomplete: {self.missing} of {len(record.samples)} trajectories have not "
                        "ended; the numbers speak of the others (`ptxbench resume` goes on).")  # fmt: skip
        unjudged = self.outcomes.get(NOT_JUDGED, 0)
        if unjudged:
            said.append(f"{self.name}: {unjudged} of {sum(self.outcomes.values())} turns have a kernel without a "
                        "verdict, which counts as a failure; their notes say why.")  # fmt: skip
        ended = len(self.trajectories)
        failed = sum(one.stop is StopReason.PROVIDER_ERROR for one in self.trajectories)
        if failed:
            said.append(f"{self.name}: {failed} of {ended} trajectories ended in errors of the provider and count as "
                        "they stand (`ptxbench resume --retry` repeats them).")  # fmt: skip
        chosen = sum(speedup_of(one) is None for one in self.trajectories)
        if chosen:
            said.append(f"{self.name}: in {chosen} of {ended} trajectories the fastest of several kernels was not "
                        "measured again after it was chosen, so no speedups are shown.")  # fmt: skip
        return tuple(said)


def read_run(path: Path) -> Run:
    """Reads a run's folder, also while the run goes on; `UsageError` if there is none or a file is damaged."""
    folder = RunFolder(path)
    record, trajectories = folder.record(), folder.trajectories()
    accepted = {
        turn.verdict_key for one in trajectories for turn in one.turns
        if turn.verdict_key is not None and turn.outcome is not None and turn.outcome.accepted
    }  # fmt: skip
    return Run(record, trajectories, frozenset(key for key in accepted if not folder.verdict(key).hazards))


def _outcome(turn: TurnRecord) -> str:
    if turn.outcome is not None:
        return turn.outcome.value
    return NOT_JUDGED if turn.reply is ReplyOutcome.EXTRACTED else turn.reply.value


def _shortened(trajectory: TrajectoryRecord, turns: int) -> TrajectoryRecord:
    """The trajectory up to a turn; its best kernel's second measurement stays if that is still the best."""
    shorter = trajectory.model_copy(update={"turns": tuple(one for one in trajectory.turns if one.index <= turns)})
    return shorter if shorter.best == trajectory.best else shorter.model_copy(update={"remeasured": None})
