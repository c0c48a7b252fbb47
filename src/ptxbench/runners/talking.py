"""Conversations with a model, as Inspect runs them: a solver that talks and a scorer that closes the books.

Inspect ends a sample where a limit is reached or a provider fails, wherever the solver stands. The scorer comes after
that in every case, so it is what stores a trajectory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
import anyio.to_thread
from inspect_ai.event import Event, ModelEvent, SampleLimitEvent
from inspect_ai.log import transcript
from inspect_ai.model import ChatMessageUser, GenerateConfig, Model, ModelOutput
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from ptxbench.core import (
    PtxbenchError,
    ReplyOutcome,
    ReplyRecord,
    RunRecord,
    StopReason,
    TrajectoryRecord,
)
from ptxbench.runners.attempt import Attempt
from ptxbench.runners.bench import Bench
from ptxbench.runners.providers import Models, reply_of
from ptxbench.runners.replies import Reading
from ptxbench.store import RunFolder

T = TypeVar("T")

_LIMITS = {
    "token": StopReason.TOKEN_LIMIT,
    "cost": StopReason.COST_LIMIT,
    "time": StopReason.TIME_LIMIT,
    "turn": StopReason.CALL_LIMIT,
}


@dataclass
class Session:
    """One run in progress. The first infrastructure error of the judge ends it: nothing else is begun, and ``failure``
    is raised when what is under way has ended.
    """

    run: RunRecord
    folder: RunFolder
    bench: Bench
    models: Models
    jobs: int
    on_end: Callable[[TrajectoryRecord], None]
    failure: PtxbenchError | None = None
    attempts: dict[str, Attempt] = field(default_factory=dict[str, Attempt])
    _limiter: anyio.CapacityLimiter | None = None

    def begin(self, state: TaskState) -> Attempt:
        """Opens the books of a sample."""
        if self.failure:
            raise self.failure
        attempt = Attempt(self.run, state.metadata["task"], state.metadata["epoch"], self.bench, self.folder)
        self.attempts[str(state.sample_id)] = attempt
        return attempt

    def model(self, attempt: Attempt) -> tuple[Model, GenerateConfig]:
        """The model of a trajectory and what is asked of it."""
        return self.models.of(attempt.task, attempt.epoch), GenerateConfig(seed=attempt.seed)

    def reply(self, output: ModelOutput, attempt: Attempt) -> ReplyRecord:
        """An output of the model as the next reply of an attempt."""
        call = len(attempt.replies) + 1
        return reply_of(output, task=attempt.task, epoch=attempt.epoch, call=call, price=self.run.price)

    async def work(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs what judges or compiles in a thread, ``jobs`` at a time. It is not cut short by a time limit."""
        if self.failure:
            raise self.failure
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self.jobs)
        try:
            return await anyio.to_thread.run_sync(function, *arguments, limiter=self._limiter)
        except PtxbenchError as error:
            self.failure = self.failure or error
            raise

    async def close(self, attempt: Attempt, events: Sequence[Event]) -> None:
        """Says why an attempt ended that no rule has ended: a limit, or the provider.

        An answer that came together with a limit is judged. An attempt that ended for another reason stays open.
        """
        calls = [event for event in events if isinstance(event, ModelEvent)]
        heard = [event for event in calls if not event.error and not event.pending and event.output.choices]
        limit = next((event for event in events if isinstance(event, SampleLimitEvent)), None)
        failed = bool(calls) and (calls[-1].pending or bool(calls[-1].error))
        for event in heard[len(attempt.replies) :]:
            reply = self.reply(event.output, attempt)
            if reply.tool_calls:
                attempt.hear(reply)
            else:
                await self.work(attempt.answer, reply)
        if limit is not None and limit.type in _LIMITS:
            if failed:
                attempt.take_no_kernel(Reading(outcome=ReplyOutcome.LIMIT, note=limit.message))
            attempt.stop, attempt.note = _LIMITS[limit.type], limit.message
        elif failed and len(attempt.replies) == self.models.recorded(attempt.task, attempt.epoch):
            attempt.stop, attempt.note = StopReason.RECORDING_ENDED, "there are no more recorded replies"
        elif failed and self.failure is None:
            note = " ".join((calls[-1].error or "").split())[:500]
            attempt.take_no_kernel(Reading(outcome=ReplyOutcome.PROVIDER_ERROR, note=note))


def conversation(session: Session) -> Solver:
    """Prompt, reply, verdict in words, reply, ... until a rule ends it; one shot is a conversation of one turn."""

    @solver(name="ptxbench/conversation")
    def build() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            attempt = session.begin(state)
            model, config = session.model(attempt)
            while attempt.stop is None:
                output = await model.generate(state.messages, config=config)
                words = await session.work(attempt.answer, session.reply(output, attempt))
                state.output = output
                state.messages += [output.message, ChatMessageUser(content=words)]
            return state

        return solve

    return build()


def bookkeeper(session: Session) -> Scorer:
    """Stores the trajectory; the score is whether its best stored verdict is accepted."""

    @scorer(metrics=[mean()], name="ptxbench/accepted")
    def build() -> Scorer:
        async def score(state: TaskState, target: Target) -> Score | None:
            attempt = session.attempts.get(str(state.sample_id))
            if attempt is None:
                return None
            if attempt.stop is None:
                with anyio.CancelScope(shield=True):
                    await session.close(attempt, transcript().events)
            if attempt.stop is None:
                return None
            trajectory = attempt.finish()
            session.on_end(trajectory)
            best = trajectory.best
            accepted = bool(best and best.outcome and best.outcome.accepted)
            return Score(
                value=1.0 if accepted else 0.0,
                answer=best.source_digest if best else "",
                explanation=f"{best.outcome if best else 'no verdict'} after {len(trajectory.turns)} turns",
                metadata={"trajectory": trajectory.model_dump(mode="json")},
            )

        return score

    return build()
