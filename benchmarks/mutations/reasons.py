"""Why survivors are called equivalent, or missed: the committed rows of ``survivors.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

SURVIVORS = Path(__file__).with_name("survivors.toml")


@dataclass(frozen=True)
class Reason:
    """Covers survivors whose file, class, operation and opcode match its patterns, and whose line is among ``lines``,
    place among ``places`` and number among ``numbers`` if there are any.
    """

    reason: str
    file: str = "*"
    group: str = "*"
    operation: str = "*"
    opcode: str = "*"
    lines: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()

    def covers(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is one of those."""
        if row["noticed"] != "survived":
            return False
        pairs = ((self.file, "file"), (self.group, "class"), (self.operation, "operation"), (self.opcode, "opcode"))
        chosen = ((self.lines, "line"), (self.places, "place"), (self.numbers, "number"))
        return all(fnmatchcase(row[key], pattern) for pattern, key in pairs) and all(
            not numbers or row[key] in numbers for numbers, key in chosen
        )


@dataclass(frozen=True)
class Reading:
    """The last reading of the rows by somebody else than their writer: how many there were, and how many of these got
    another reason or were taken back.
    """

    rows: int
    reworded: int
    taken_back: int


def read_reasons(path: Path = SURVIVORS) -> tuple[Reason, ...]:
    """Why survivors are equivalent, in order; the first row that covers a survivor counts."""
    return _rows(path, "survivors")


def read_missed(path: Path = SURVIVORS) -> tuple[Reason, ...]:
    """Why survivors are none of these."""
    return _rows(path, "missed")


def last_reading(path: Path = SURVIVORS) -> Reading:
    return Reading(**tomllib.loads(path.read_text())["last_reading"])


def _rows(path: Path, table: str) -> tuple[Reason, ...]:
    return tuple(
        Reason(**{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()})
        for row in tomllib.loads(path.read_text())[table]
    )


def reason_for(row: Mapping[str, Any], reasons: Sequence[Reason]) -> str:
    """Why a survivor is equivalent; empty if nobody says that it is."""
    return next((reason.reason for reason in reasons if reason.covers(row)), "")
