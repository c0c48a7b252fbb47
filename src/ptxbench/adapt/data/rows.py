"""Rows of a data set, and what is known of each: where it came from, what it shows, who verified it."""

from __future__ import annotations

import hashlib
import json
from typing import Literal

from ptxbench.core import Record, Target, Verdict

LICENCE = "Apache-2.0"
"""Of everything that this package writes: kernels, templates, explanations, prompts and verdicts' words."""


class Message(Record):
    """One turn of a conversation. ``reasoning_content`` is what the assistant thinks before it answers, or empty."""

    role: Literal["system", "user", "assistant"]
    content: str
    reasoning_content: str = ""


class Provenance(Record):
    """Where a row came from. ``origin`` names the kernel (a solution's file, a family's variant, a run's turn).

    ``good`` and ``faulty`` are source digests; by these two names, ``verdicts`` holds what the judge said of each,
    ``devices`` what it ran on, and ``judges`` the versions of everything that could change the answer.
    """

    origin: str
    good: str
    faulty: str = ""
    verdicts: dict[str, str] = {}
    devices: dict[str, str] = {}
    judges: dict[str, dict[str, str]] = {}


class Row(Record):
    """One example. Expert rows have ``messages``; repair rows ``prompt`` and ``completion``, of which only the latter
    is to be learnt.

    ``failure`` is the kind of failure that a repair row mends (empty for expert rows), ``fault`` the operator that made
    it. ``speedup`` is that of the good kernel where a device timed it. ``tokens`` counts all messages as the recipe's
    tokenizer does.
    """

    kind: Literal["expert", "repair"]
    task: str
    task_family: str
    target: Target
    kernel_family: str
    techniques: tuple[str, ...]
    failure: str = ""
    fault: str = ""
    messages: tuple[Message, ...] = ()
    prompt: tuple[Message, ...] = ()
    completion: tuple[Message, ...] = ()
    condition: str
    sizes: dict[str, int]
    tokens: int = 0
    speedup: float | None = None
    split: Literal["train", "validation"] = "train"
    licence: str = LICENCE
    provenance: Provenance

    @property
    def conversation(self) -> tuple[Message, ...]:
        """All messages in order."""
        return self.messages or (*self.prompt, *self.completion)

    @property
    def id(self) -> str:
        """16 hexadecimal digits that follow from the messages."""
        text = json.dumps([message.model_dump() for message in self.conversation], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def provenance(origin: str, good: Verdict, faulty: Verdict | None = None) -> Provenance:
    """Where a kernel came from and what verified it, and the faulty one of a repair."""
    judged = {"good": good} if faulty is None else {"good": good, "faulty": faulty}
    return Provenance(
        origin=origin,
        good=good.source_digest,
        faulty="" if faulty is None else faulty.source_digest,
        verdicts={name: verdict.outcome.value for name, verdict in judged.items()},
        devices={name: str(verdict.device.get("name", "")) for name, verdict in judged.items()},
        judges={name: verdict.versions for name, verdict in judged.items()},
    )


class Dropped(Record):
    """Something that did not become a row, and why. ``gate`` is a short name that reports count by."""

    name: str
    gate: str
    detail: str = ""
