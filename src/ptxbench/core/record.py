"""The base of every record that crosses a process boundary or is stored."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError


class Record(BaseModel):
    """Immutable, closed (unknown fields are errors), compared by value, serialised as JSON.

    ``bytes`` fields travel as base64.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


def first_problem(error: ValidationError, top: str = "") -> str:
    """``field.inner: what is wrong``, of the first field that does not fit; ``top`` names the record as a whole."""
    first = error.errors()[0]
    return f"{'.'.join(str(part) for part in first['loc']) or top}: {first['msg']}"
