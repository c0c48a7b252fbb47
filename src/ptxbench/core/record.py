"""The base of every record that crosses a process boundary or is stored."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ptxbench.core.errors import UsageError


class Record(BaseModel):
    """Immutable, closed (unknown fields are errors), compared by value, serialised as JSON.

    ``bytes`` fields travel as base64.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


R = TypeVar("R", bound=Record)


def record_in(path: Path, kind: type[R], called: str, remedy: str) -> R:
    """The record in a JSON file. `UsageError` if the file cannot be read, for which ``remedy`` says what to do, or is
    not what is ``called`` so.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; {remedy}") from error
    except ValidationError as error:
        raise UsageError(f"{path} is not {called} ({first_problem(error)})") from error


def first_problem(error: ValidationError, top: str = "") -> str:
    """``field.inner: what is wrong``, of the first field that does not fit; ``top`` names the record as a whole."""
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc']) or top}: {first['msg']}"
