"""Conversations as tokens with labels, and the check that exactly what is to be learnt carries a label."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ptxbench.adapt.data.rows import Message, Row
from ptxbench.adapt.training.libraries import library
from ptxbench.core import UsageError

UNLEARNT = -100
"""The label of tokens that carry no loss (PyTorch's `ignore_index`)."""

_MARKERS = re.compile(r"</?think>|\s")


@dataclass(frozen=True)
class Example:
    """A row as tokens; ``labels`` are the tokens themselves where they are learnt and `UNLEARNT` elsewhere."""

    data: str
    row: Row
    loss: Literal["completion", "assistant"]
    input_ids: tuple[int, ...]
    labels: tuple[int, ...]

    @property
    def learnt(self) -> tuple[Message, ...]:
        """The messages that carry a loss."""
        if self.loss == "completion":
            return self.row.conversation[-1:]
        return tuple(message for message in self.row.conversation if message.role == "assistant")


def encode(tokenizer: Any, data: str, row: Row, loss: Literal["completion", "assistant"]) -> Example:
    """Tokens and labels of one row; `UsageError` if the tokenizer's chat template cannot express it."""
    messages = row.conversation
    if not messages or messages[-1].role != "assistant" or len(messages) < 2:
        raise UsageError(f"row {row.id} of the data set '{data}' does not end with an answer to a prompt; build the "
                         "data again")  # fmt: skip
    turns = sum(message.role == "assistant" for message in messages)
    if loss == "completion" or turns == 1:
        ids, labels = _last_turn(tokenizer, data, row)
    else:
        ids, labels = _all_turns(tokenizer, data, row)
    return Example(data, row, loss, tuple(ids), tuple(labels))


def as_messages(messages: Sequence[Message]) -> list[dict[str, str]]:
    """Messages as chat templates take them; an empty reasoning is left out."""
    return [message.model_dump(exclude_defaults=True) for message in messages]


def _last_turn(tokenizer: Any, data: str, row: Row) -> tuple[list[int], list[int]]:
    messages = as_messages(row.conversation)
    prompt: str = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    whole: str = tokenizer.apply_chat_template(messages, tokenize=False)
    if not whole.startswith(prompt):
        raise UsageError(f"the chat template renders the prompt of row {row.id} of '{data}' otherwise once its answer "
                         "follows, so that the answer's tokens cannot be told apart; use another template")  # fmt: skip
    end = str(tokenizer.eos_token)
    answer = whole[len(prompt) :]
    if end in answer:
        answer = answer[: answer.rindex(end) + len(end)]
    before: list[int] = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    after: list[int] = tokenizer(answer, add_special_tokens=False)["input_ids"]
    return [*before, *after], [UNLEARNT] * len(before) + after


def _all_turns(tokenizer: Any, data: str, row: Row) -> tuple[list[int], list[int]]:
    try:
        template = library("trl.chat_template_utils").get_training_chat_template(tokenizer)
    except ValueError as error:
        raise UsageError(
            f"row {row.id} of '{data}' has several answers to learn, and the trainer knows no template that marks them "
            "for this tokenizer; use loss = 'completion', or a tokenizer with a known template"
        ) from error
    encoded = tokenizer.apply_chat_template(
        as_messages(row.conversation), chat_template=template, return_dict=True, return_assistant_tokens_mask=True
    )
    ids: list[int] = encoded["input_ids"]
    marked: list[int] = encoded["assistant_masks"]
    return ids, [token if mark else UNLEARNT for token, mark in zip(ids, marked, strict=True)]


def check_labels(tokenizer: Any, input_ids: Sequence[int], labels: Sequence[int], example: Example) -> None:
    """`UsageError` unless the labels of a collated row decode to its answer: reasoning, code and end token, no more.

    ``input_ids`` and ``labels`` are one row of a batch, padding included.
    """
    where = f"row {example.row.id} of the data set '{example.data}'"
    learnt = [(token, label) for token, label in zip(input_ids, labels, strict=True) if label != UNLEARNT]
    if any(token != label for token, label in learnt):
        raise UsageError(f"the labels of {where} are not its tokens; this is a fault of the trainer's collator")
    if len(learnt) != sum(label != UNLEARNT for label in example.labels):
        raise UsageError(f"{where} lost labels on its way into the batch; the trainer cut it")
    rest = str(tokenizer.decode([label for _, label in learnt], skip_special_tokens=False))
    extra = ""
    for message in example.learnt:
        for name, part in (("reasoning", message.reasoning_content), ("text", message.content)):
            found = rest.find(part.strip())
            if found < 0:
                raise UsageError(
                    f"the {name} of the answer in {where} would not be learnt: the tokenizer's chat template does not "
                    "render it; build the data with reasoning = 'inline', or use a template for reasoning"
                )
            extra, rest = extra + rest[:found], rest[found + len(part.strip()) :]
    extra += rest
    if str(tokenizer.eos_token) not in extra:
        raise UsageError(f"the answer in {where} ends without the tokenizer's end token, so that the model would not "
                         "learn to stop; use a chat template that ends turns with it")  # fmt: skip
    extra = _MARKERS.sub("", extra.replace(str(tokenizer.eos_token), ""))
    if extra:
        raise UsageError(f"more than the answer of {where} would be learnt: {extra[:80]!r}; use another chat template")
