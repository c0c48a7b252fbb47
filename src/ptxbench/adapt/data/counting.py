"""How long a conversation is, in the tokens of the model that will learn it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ptxbench.adapt.data.rows import Message
from ptxbench.core import UsageError
from ptxbench.prompts import estimate_tokens

Counter = Callable[[Sequence[Message]], int]

ESTIMATE = "estimate"

_MARKS = 8
"""Tokens that a chat template puts around a message, estimated."""


def token_counter(tokenizer: str) -> Counter:
    """A function that counts the tokens of a conversation.

    ``estimate`` counts bytes. Anything else is a name, a folder or a GGUF file for `transformers.AutoTokenizer`, whose
    chat template is applied; `UsageError` if that cannot be loaded or has no chat template.
    """
    if tokenizer == ESTIMATE:
        return lambda messages: sum(
            estimate_tokens(message.content) + estimate_tokens(message.reasoning_content) + _MARKS
            for message in messages
        )
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise UsageError(
            f"counting tokens of '{tokenizer}' needs the package transformers; install it with "
            "pip install 'ptxbench[train]', or let the recipe say tokenizer = \"estimate\""
        ) from error
    path = Path(tokenizer)
    place = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    try:
        loaded: Any = transformers.AutoTokenizer.from_pretrained(str(path.parent) if place else tokenizer, **place)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"cannot load the tokenizer '{tokenizer}': {reason}") from error
    if not loaded.chat_template:
        raise UsageError(f"the tokenizer '{tokenizer}' has no chat template, so its conversations cannot be counted")

    def count(messages: Sequence[Message]) -> int:
        turns = [message.model_dump(exclude_defaults=True) for message in messages]
        return len(loaded.apply_chat_template(turns, tokenize=True, return_dict=False))

    return count
