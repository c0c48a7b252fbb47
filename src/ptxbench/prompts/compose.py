"""Conditions as rows of data, and the prompt that a condition makes of a task."""

from __future__ import annotations

import difflib
import hashlib
import json
import tomllib
from collections.abc import Collection, Mapping
from importlib import resources
from typing import Literal, NamedTuple

from ptxbench.core import Record, Target, Task, UsageError
from ptxbench.prompts.parts import Part, load_parts
from ptxbench.prompts.statement import context
from ptxbench.prompts.tokens import estimate_tokens

HEADERS = "headers"
"""The part that shows the header set; its text comes from the caller."""

INDISPENSABLE = "task"
"""The group that no prompt can do without: it says what is asked."""


ANSWER = "answer"
"""The part that says how to hand a kernel in, as the conditions name it."""

Answer = Literal["answer", "answer_with_tools", "answer_in_folder"]


class Condition(Record):
    """One row: what a model is shown. ``parts`` holds names of parts or of groups, in the order of the prompt."""

    name: str
    about: str
    parts: tuple[str, ...]


class PartUse(NamedTuple):
    """A part in a prompt: its name, its version and its estimated tokens."""

    name: str
    version: int
    tokens: int


class Prompt(Record):
    """What a model is sent first. ``digest`` is the SHA-256 of both messages; ``without`` is what was left out."""

    task: str
    target: Target
    condition: str
    without: tuple[str, ...]
    system: str
    user: str
    parts: tuple[PartUse, ...]
    digest: str

    @property
    def tokens(self) -> int:
        """Estimated tokens of all parts."""
        return sum(part.tokens for part in self.parts)

    @property
    def offers_headers(self) -> bool:
        """Whether the candidate may include the header set, so that the compiler must be given it."""
        return any(part.name == HEADERS for part in self.parts)


def load_conditions() -> dict[str, Condition]:
    """The conditions by name, in the order of the file."""
    text = (resources.files("ptxbench.prompts") / "conditions.toml").read_text(encoding="utf-8")
    return {name: Condition(name=name, **row) for name, row in tomllib.loads(text).items()}


def compose(
    task: Task,
    target: Target,
    condition: str,
    *,
    without: Collection[str] = (),
    header_text: str | None = None,
    answer: Answer = "answer",
) -> Prompt:
    """The prompt for ``task`` on ``target`` under a condition, less the parts or groups named in ``without``.

    ``header_text`` is the text of the header set, needed where the condition shows it and unused elsewhere. ``answer``
    is the part that says how to hand a kernel in: in a reply, with tools, or in a folder.

    Raises `UsageError` on an unknown condition, on a name in ``without`` that the condition does not have or cannot do
    without, and on missing header text.
    """
    conditions, parts = load_conditions(), load_parts()
    if condition not in conditions:
        raise UsageError(_unknown("prompt condition", condition, conditions))
    remaining = _remaining(conditions[condition], without, parts)
    chosen = [parts[answer] if part.name == ANSWER else part for part in remaining]
    headers = any(part.name == HEADERS for part in chosen)
    if headers and header_text is None:
        raise UsageError(f"condition '{condition}' shows the header set; give its text, or leave '{HEADERS}' out")
    names = context(task, target, headers=headers, header_text=header_text or "")
    rendered = [(part, part.render(names)) for part in chosen if part.applies(task, target)]
    system, user = (
        "\n\n".join(text for part, text in rendered if part.role == role) + "\n" for role in ("system", "user")
    )
    return Prompt(
        task=task.name,
        target=target,
        condition=condition,
        without=tuple(sorted(without)),
        system=system,
        user=user,
        parts=tuple(PartUse(part.name, part.version, estimate_tokens(text)) for part, text in rendered),
        digest=hashlib.sha256(json.dumps([system, user]).encode()).hexdigest(),
    )


def documents(task: Task, target: Target) -> dict[str, str]:
    """The knowledge documents about a task on a target, by name: for a tool that lets a model look things up."""
    names = context(task, target, headers=False, header_text="")
    return {
        part.name: part.render(names)
        for part in load_parts().values()
        if part.group not in (INDISPENSABLE, HEADERS) and part.applies(task, target)
    }


def _remaining(row: Condition, without: Collection[str], parts: Mapping[str, Part]) -> list[Part]:
    """The row's parts in its order, less those left out."""
    chosen = [part for name in row.parts for part in _members(name, parts)]
    for name in without:
        members = _members(name, parts)
        if not any(part in chosen for part in members):
            raise UsageError(f"condition '{row.name}' has no part '{name}' to leave out")
        if any(part.group == INDISPENSABLE for part in members):
            raise UsageError(f"'{name}' says what is asked and cannot be left out")
        chosen = [part for part in chosen if part not in members]
    return chosen


def _members(name: str, parts: Mapping[str, Part]) -> list[Part]:
    """The part of that name, or the parts of that group."""
    members = [parts[name]] if name in parts else [part for part in parts.values() if part.group == name]
    if not members:
        raise UsageError(_unknown("part", name, {*parts, *(part.group for part in parts.values())}))
    return members


def _unknown(what: str, name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3) or sorted(known)
    return f"unknown {what} '{name}'; did you mean {' or '.join(close)}?"
