"""Attempts to fool or to break the judge, as rows of data: how each differs from a base source, and what must come."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Literal

from ptxbench.core import Outcome, Record, Target, Tier
from ptxbench.solutions import solutions

HERE = Path(__file__).parent
TASK = "gemm_n7168_k5120"
SEED = 20_250_117

_SECTION = re.compile(r"^ *//\[(?P<name>\w+)\n(?P<text>.*?)^ *//\]\n", re.MULTILINE | re.DOTALL)


class Edit(Record):
    """Text that stands once in a solution, and what is put in its place."""

    at: str
    put: str


class Attempt(Record):
    """One candidate.

    ``about`` says what it tries, as a clause. It is the file ``base`` with the sections in ``code`` replaced, followed
    by ``tail``; or a known-good ``solution`` (its file) with ``edits``, and the file ``part`` in front of its own code;
    or ``source`` alone. ``reason`` is found in the verdict's reason and ``remark`` in one of its remarks (regular
    expressions).

    ``hurried`` attempts use up limits, which are therefore small; ``full_sandbox`` ones differ without namespaces.
    ``quick`` attempts belong to the default test run.
    """

    name: str
    about: str
    outcome: Outcome
    reason: str
    base: str = ""
    code: dict[str, str] = {}
    tail: str = ""
    solution: str = ""
    part: str = ""
    edits: tuple[Edit, ...] = ()
    source: str = ""
    task: str = TASK
    target: Target = Target.SM_90A
    tiers: tuple[Tier, ...] = ("small",)
    encoding: Literal["plain", "crlf", "bom"] = "plain"
    remark: str = ""
    hurried: bool = False
    full_sandbox: bool = False
    quick: bool = False

    def text(self) -> str:
        """The source as a model might have written it."""
        return self._edited() if self.solution else self._filled()

    def _edited(self) -> str:
        text = next(row for row in solutions() if row.file == self.solution).source()
        for edit in self.edits:
            assert text.count(edit.at) == 1, f"{self.name}: {self.solution} has {edit.at!r} {text.count(edit.at)} times"
            text = text.replace(edit.at, edit.put)
        part = (HERE / "bases" / self.part).read_text() if self.part else ""
        return text.replace("namespace {", part + "namespace {", 1)

    def _filled(self) -> str:
        text = (HERE / "bases" / self.base).read_text() if self.base else self.source
        known = {match["name"] for match in _SECTION.finditer(text)}
        assert set(self.code) <= known, f"{self.name}: {self.base} has no section {set(self.code) - known}"
        return _SECTION.sub(lambda match: self.code.get(match["name"], match["text"]), text) + self.tail

    def data(self) -> bytes:
        """The bytes of its file."""
        text = self.text()
        if self.encoding == "crlf":
            text = text.replace("\n", "\r\n")
        return text.encode("utf-8-sig" if self.encoding == "bom" else "utf-8")


class Group(Record):
    """Attempts of a kind, with a heading and a paragraph for the page."""

    title: str
    about: str
    attempts: tuple[Attempt, ...]


def groups() -> tuple[Group, ...]:
    """All attempts, in the order of the page."""
    files = sorted((HERE / "attempts").glob("*.toml"))
    return tuple(Group.model_validate(tomllib.loads(file.read_text())) for file in files)


def attempts() -> tuple[Attempt, ...]:
    """All attempts of all groups."""
    return tuple(attempt for group in groups() for attempt in group.attempts)
