"""Known-good kernels, the PTX header set that candidates may include, and the bundled examples, as rows of data."""

from __future__ import annotations

import tomllib
from pathlib import Path

from ptxbench.core import Outcome, Record, Target

__all__ = ["Example", "Solution", "examples", "include_dir", "solutions"]

_ROOT = Path(__file__).parent


class Solution(Record):
    """A kernel that is right and carried for every size of its task. ``file`` is relative to this room."""

    file: str
    task: str
    target: Target
    about: str

    def source(self) -> str:
        """The text of the file."""
        return (_ROOT / self.file).read_text(encoding="utf-8")


class Example(Record):
    """A bundled candidate and what the simulator must say of it. ``file`` is relative to the folder ``examples``.

    ``hazards`` are kinds of findings that must be among the verdict's. ``hidden_on_gpu`` marks a fault that hardware
    usually does not show, so that a GPU would let it pass.
    """

    file: str
    task: str
    target: Target
    outcome: Outcome
    about: str
    hazards: tuple[str, ...] = ()
    hidden_on_gpu: bool = False

    def source(self) -> str:
        """The text of the file."""
        return (_ROOT / "examples" / self.file).read_text(encoding="utf-8")


class _Manifest(Record):
    solutions: tuple[Solution, ...]
    examples: tuple[Example, ...]


def include_dir() -> Path:
    """The folder to put on the compiler's include path, so that ``<ptxbench/ptx/...>`` is found."""
    return _ROOT / "include"


def solutions(task: str | None = None, target: Target | None = None) -> tuple[Solution, ...]:
    """The known-good kernels, in the order of the manifest; optionally those of one task, of one target."""
    return tuple(
        row for row in _manifest().solutions
        if task in (None, row.task) and target in (None, row.target)
    )


def examples() -> tuple[Example, ...]:
    """The bundled examples, right ones first."""
    return _manifest().examples


def _manifest() -> _Manifest:
    return _Manifest.model_validate(tomllib.loads((_ROOT / "manifest.toml").read_text(encoding="utf-8")))
