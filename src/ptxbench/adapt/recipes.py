"""Reading recipes: TOML files whose every fault is one sentence with its place."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ptxbench.core import Record, UsageError, first_problem

R = TypeVar("R", bound=Record)


def recipe_fields(path: Path) -> dict[str, Any]:
    """What a recipe's file holds; `UsageError` if it cannot be read or is no TOML in UTF-8."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the recipe {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the recipe {path} is not UTF-8 text; save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the recipe {path} is not TOML: {error}") from error


def recipe_of(kind: type[R], fields: dict[str, Any], path: Path) -> R:
    """The recipe in the fields of the file ``path``; `UsageError` at the first that is wrong."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise UsageError(f"the recipe {path} is wrong at {first_problem(error, top='its top')}") from error
