"""The base of every record that crosses a process boundary or is stored."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Immutable, closed (unknown fields are errors), compared by value, serialised as JSON.

    ``bytes`` fields travel as base64.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")
