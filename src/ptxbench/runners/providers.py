"""Models for Inspect: its own providers by name, replies from a recording, and a small model on this machine's CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from inspect_ai._util.error import PrerequisiteError  # Inspect exports it nowhere
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    Content,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    Model,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
)
from inspect_ai.tool import ToolCall as InspectToolCall
from inspect_ai.tool import ToolChoice, ToolInfo
from rich.text import Text

from ptxbench.core import Price, ReplyRecord, ToolCall, Usage, UsageError
from ptxbench.runners.local import LocalModel
from ptxbench.runners.recordings import BUNDLED, Recording, read_recording


class Models(Protocol):
    """Where a run's model comes from."""

    def common(self) -> Model:
        """The model that the transcript names."""
        ...

    def of(self, task: str, epoch: int) -> Model:
        """The model of one trajectory."""
        ...

    def recorded(self, task: str, epoch: int) -> int | None:
        """How many replies there are for one trajectory; None for a model that can always say more."""
        ...


@dataclass(frozen=True)
class Live:
    """One model for all trajectories."""

    model: Model

    def common(self) -> Model:
        """The model."""
        return self.model

    def of(self, task: str, epoch: int) -> Model:
        """The model."""
        return self.model

    def recorded(self, task: str, epoch: int) -> None:
        """A model can always say more."""


@dataclass(frozen=True)
class Replayed:
    """The replies of a recording."""

    recording: Recording

    def common(self) -> Model:
        """A model with nothing to say, for its name."""
        return self._model(())

    def of(self, task: str, epoch: int) -> Model:
        """Says what was recorded for this trajectory."""
        return self._model(self.recording.of(task, epoch))

    def recorded(self, task: str, epoch: int) -> int:
        """How many replies were recorded."""
        return len(self.recording.of(task, epoch))

    def _model(self, replies: Sequence[ReplyRecord]) -> Model:
        return get_model(f"ptxbench-replay/{self.recording.name}", memoize=False, replies=tuple(replies))


class ReplayError(Exception):
    """The error that a recording tells of, or that it has ended."""


@modelapi(name="ptxbench-replay")
class ReplayAPI(ModelAPI):
    """Answers the n-th call of a conversation with its n-th recorded reply."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - Inspect's own signature
        replies: Sequence[ReplyRecord] = (),
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        self.replies = replies

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """The reply that belongs to this place of the conversation; `ReplayError` where there is none."""
        spoken = sum(isinstance(message, ChatMessageAssistant) for message in input)
        if spoken >= len(self.replies):
            raise ReplayError(f"the recording ends after {len(self.replies)} replies")
        reply = self.replies[spoken]
        if reply.error:
            raise ReplayError(reply.error)
        return output_of(reply, self.model_name)


@modelapi(name="ptxbench-local")
class LocalAPI(ModelAPI):
    """A model file on this machine's CPU."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 - Inspect's own signature
        local: LocalModel | None = None,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        if local is None:
            raise UsageError("a local model is chosen with --model local or local:FILE.gguf")
        self.local = local

    def max_connections(self) -> int:
        """One call at a time: the model uses every core."""
        return 1

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """The reply of the model; tools are not offered to it."""
        messages = [{"role": _role(message), "content": message.text} for message in input]
        reply = await self.local.chat(
            messages, max_tokens=config.max_tokens, temperature=config.temperature, seed=config.seed
        )
        return output_of(reply, self.model_name)


def find_models(name: str, config: GenerateConfig) -> Models:
    """The model that a name stands for; `UsageError` where it cannot be had.

    ``replay`` and ``replay:PATH`` are recordings, ``local`` and ``local:FILE.gguf`` model files; everything else is a
    name of Inspect's, such as ``openai/gpt-5``.
    """
    kind, _, argument = name.partition(":")
    if kind == "replay":
        return Replayed(read_recording(Path(argument) if argument else BUNDLED))
    if kind == "local":
        local = LocalModel.find(Path(argument) if argument else None)
        return Live(get_model(f"ptxbench-local/{local.name}", config=config, memoize=False, local=local))
    if "/" not in name:
        raise UsageError(f"there is no model {name!r}; use provider/model, replay:FILE.jsonl, or local")
    try:
        return Live(get_model(name, config=config, memoize=False))
    except (PrerequisiteError, ValueError) as error:
        reason = " ".join(Text.from_markup(str(error)).plain.split())
        raise UsageError(f"cannot use the model {name}: {reason}") from error


def output_of(reply: ReplyRecord, model: str) -> ModelOutput:
    """A reply as Inspect has it."""
    content: list[Content] = [ContentReasoning(reasoning=reply.reasoning)] if reply.reasoning else []
    calls = [InspectToolCall(id=c.id, function=c.function, arguments=dict(c.arguments)) for c in reply.tool_calls]
    message = ChatMessageAssistant(
        content=[*content, ContentText(text=reply.text)] if content else reply.text,
        tool_calls=calls or None,
        model=model,
        source="generate",
    )
    usage = reply.usage
    stop: Any = reply.stop
    return ModelOutput(
        model=model,
        choices=[ChatCompletionChoice(message=message, stop_reason=stop)],
        usage=ModelUsage(
            input_tokens=usage.input_tokens - usage.cached_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.input_tokens + usage.output_tokens,
            input_tokens_cache_read=usage.cached_tokens or None,
            reasoning_tokens=usage.reasoning_tokens or None,
            total_cost=usage.cost,
        ),
    )


def reply_of(output: ModelOutput, *, task: str, epoch: int, call: int, price: Price | None) -> ReplyRecord:
    """Inspect's output as a reply. Text that is no valid Unicode is repaired, so that it can be stored."""
    message = output.choices[0].message if output.choices else None
    blocks = message.content if message and isinstance(message.content, list) else []
    usage = usage_of(output.usage)
    if price and usage.cost is None:
        usage = usage.model_copy(update={"cost": price.of(usage)})
    return ReplyRecord(
        task=task,
        epoch=epoch,
        call=call,
        text=_valid(message.text if message else ""),
        reasoning=_valid("\n".join(b.reasoning for b in blocks if isinstance(b, ContentReasoning))),
        stop=output.stop_reason,
        tool_calls=tuple(
            ToolCall(id=c.id, function=c.function, arguments=dict(c.arguments))
            for c in (message.tool_calls or [] if message else [])
        ),
        usage=usage,
        seconds=round(output.time or 0.0, 3),
        error=output.error or "",
    )


def usage_of(usage: ModelUsage | None) -> Usage:
    """Inspect's counts as ours."""
    if usage is None:
        return Usage()
    cached = usage.input_tokens_cache_read or 0
    return Usage(
        input_tokens=usage.input_tokens + cached + (usage.input_tokens_cache_write or 0),
        output_tokens=usage.output_tokens,
        cached_tokens=cached,
        reasoning_tokens=usage.reasoning_tokens or 0,
        cost=usage.total_cost,
    )


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _role(message: ChatMessage) -> str:
    return "user" if message.role == "tool" else message.role
