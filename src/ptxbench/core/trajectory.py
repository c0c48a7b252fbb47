"""What a model did: a run is trajectories over tasks, a trajectory is turns, and a turn points to a stored verdict.

Scores are computed from these records and the verdicts they name, never from what a model says of itself.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from ptxbench.core.record import Record
from ptxbench.core.targets import Target
from ptxbench.core.verdict import Interval, Outcome


class RunMode(StrEnum):
    """How a model works on a task."""

    ONE_SHOT = "one-shot"
    MULTI_TURN = "multi-turn"
    AGENT = "agent"
    EXTERNAL = "external"


class ReplyOutcome(StrEnum):
    """What became of one reply before it was judged. Only `EXTRACTED` has a source that goes to the evaluator."""

    EXTRACTED = "extracted"
    NO_CODE = "no_code"
    INCOMPLETE = "incomplete"
    TRUNCATED = "truncated"
    REFUSAL = "refusal"
    EMPTY = "empty"
    CONTEXT_OVERFLOW = "context_overflow"
    PROVIDER_ERROR = "provider_error"
    LIMIT = "limit"


class StopReason(StrEnum):
    """Why a trajectory ended."""

    TARGET_REACHED = "target_reached"
    TURNS_USED = "turns_used"
    SUBMITTED = "submitted"
    TOKEN_LIMIT = "token_limit"
    COST_LIMIT = "cost_limit"
    TIME_LIMIT = "time_limit"
    CALL_LIMIT = "call_limit"
    CONTEXT_OVERFLOW = "context_overflow"
    RECORDING_ENDED = "recording_ended"
    PROVIDER_ERROR = "provider_error"


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Usage(Record):
    """Tokens of one or more calls of a model. ``cost`` is in US dollars, None where no price is known.

    Cached tokens are part of the input, reasoning tokens of the output.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        cost = None if self.cost is None and other.cost is None else (self.cost or 0.0) + (other.cost or 0.0)
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cost=cost,
        )


class ToolCall(Record):
    """One call of a tool that a model asked for."""

    id: str
    function: str
    arguments: dict[str, Any] = {}


class ReplyRecord(Record):
    """What a model answered to one call; ``call`` counts from 1 within the trajectory.

    ``text`` is what it said, ``reasoning`` what it thought aloud where the provider tells. ``stop`` is the provider's
    reason for the end in Inspect's words (``stop``, ``max_tokens``, ``model_length``, ``tool_calls``,
    ``content_filter``, ``unknown``); ``error`` is what went wrong instead of a reply.
    """

    schema_version: Literal[1] = 1
    task: str
    epoch: int = Field(default=1, ge=1)
    call: int = Field(ge=1)
    text: str = ""
    reasoning: str = ""
    stop: str = "stop"
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    seconds: float = 0.0
    error: str = ""


class TurnRecord(Record):
    """One reply and its verdict; in the agent modes one kernel handed to the judge. ``index`` counts from 1.

    ``note`` says in one sentence what was wrong with the reply, or why there is no verdict although there is a source.
    ``source_digest`` and ``verdict_key`` name files of the run's folder; ``outcome`` and ``speedup`` repeat what the
    verdict says. ``tool_calls`` counts the calls of an agent's tools since the turn before.
    """

    index: int = Field(ge=1)
    reply: ReplyOutcome
    note: str = ""
    source_digest: str = ""
    verdict_key: str | None = None
    outcome: Outcome | None = None
    speedup: Interval | None = None
    usage: Usage = Usage()
    tool_calls: int = 0
    model_seconds: float = 0.0
    judge_seconds: float = 0.0

    @property
    def merit(self) -> tuple[int, float]:
        """Sorts turns from the worst to the best: by outcome in the order of its table, then by speedup."""
        order = -1 if self.outcome is None else tuple(Outcome).index(self.outcome)
        return order, self.speedup.median if self.speedup else 0.0


class TrajectoryRecord(Record):
    """One attempt of a model at one task. ``epoch`` counts from 1; ``seed`` was sent to the provider, None if none was.

    ``prompt_digest`` names the first messages; ``started`` is an ISO 8601 time in UTC. ``remeasured`` is the speedup of
    the best turn's kernel, measured with fresh seeds after the choice was made; None if it was not measured again.
    """

    schema_version: Literal[1] = 1
    run: str
    task: str
    target: Target
    epoch: int = Field(ge=1)
    seed: int | None = None
    prompt_digest: str
    turns: tuple[TurnRecord, ...]
    rest: Usage = Usage()
    stop: StopReason
    note: str = ""
    started: str
    seconds: float
    remeasured: Interval | None = None

    @property
    def best(self) -> TurnRecord | None:
        """The judged turn with the best verdict, the first of equals; None if nothing was judged."""
        return max((turn for turn in self.turns if turn.outcome), key=lambda turn: turn.merit, default=None)

    @property
    def usage(self) -> Usage:
        """All that was used."""
        return sum((turn.usage for turn in self.turns), self.rest)


class Limits(Record):
    """Bounds of one trajectory; None is none.

    ``tokens`` are input and output together, ``cost`` is in US dollars, ``seconds`` by the clock, ``calls`` of the
    model (for agents, which may call it many times a turn).
    """

    tokens: int | None = Field(default=None, ge=1)
    cost: float | None = Field(default=None, ge=0)
    seconds: int | None = Field(default=None, ge=1)
    calls: int | None = Field(default=None, ge=1)


class Price(Record):
    """What a provider asks, in US dollars per million tokens; ``cached`` is for input that it had seen before."""

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cached: float = Field(ge=0)

    def of(self, usage: Usage) -> float:
        """The cost of tokens in US dollars."""
        fresh = usage.input_tokens - usage.cached_tokens
        return (fresh * self.input + usage.cached_tokens * self.cached + usage.output_tokens * self.output) / 1e6


class Generation(Record):
    """How replies are drawn; None leaves it to the provider. ``max_tokens`` bounds one reply, reasoning included.

    ``effort`` is how hard a reasoning model shall think.
    """

    temperature: float | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=1)
    effort: Effort | None = None


class PromptUse(Record):
    """The first messages for one task: their digest, estimated tokens, and (part, version) of all documents in them."""

    digest: str
    tokens: int
    parts: tuple[tuple[str, int], ...]


class RunRecord(Record):
    """What a run was asked to do and with what; everything needed to continue it, judge it again, or repeat it.

    ``turns`` is the most a trajectory may take, ``target_speedup`` ends it earlier, ``seeds`` has one entry per epoch
    (empty if none are sent), ``prompts`` one per task, ``device`` is what the device says of itself, ``tiers`` are the
    workload tiers judged, ``feedback_tokens`` bounds what is told of a verdict, ``headers`` whether candidates may
    include the header set. ``agent`` is the command of an external agent. ``rejudged`` names the run whose replies were
    judged again, empty for a run of its own.
    ``trained_on_evaluation_tasks`` names tasks whose solutions the model was adapted on.
    """

    schema_version: Literal[1] = 1
    run: str
    started: str
    model: str
    mode: RunMode
    condition: str
    without: tuple[str, ...] = ()
    target: Target
    tasks: tuple[str, ...]
    epochs: int = Field(ge=1)
    turns: int = Field(ge=1)
    target_speedup: float | None = None
    feedback_tokens: int
    seeds: tuple[int, ...] = ()
    device: dict[str, Any]
    tiers: tuple[str, ...]
    strict: bool = False
    headers: bool
    prompts: dict[str, PromptUse]
    generation: Generation = Generation()
    limits: Limits = Limits()
    price: Price | None = None
    agent: str = ""
    rejudged: str = ""
    versions: dict[str, str]
    trained_on_evaluation_tasks: tuple[str, ...] = ()

    @property
    def samples(self) -> tuple[tuple[str, int], ...]:
        """(task, epoch) of every trajectory that belongs to the run, epoch by epoch."""
        return tuple((task, epoch) for epoch in range(1, self.epochs + 1) for task in self.tasks)
