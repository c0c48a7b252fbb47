"""What a verdict was made with: our own code, the tools, and whether candidates may use the header set."""

from __future__ import annotations

import functools
from pathlib import Path

import ptxbench
from ptxbench.build import Toolchain
from ptxbench.core import digest_of, file_parts

_CODE = {".py", ".cpp", ".hpp", ".cu", ".cuh", ".toml"}

JUDGING = (
    "build", "core", "devices", "evaluate", "judge", "native", "record", "simulator", "solutions/include", "stats",
    "store", "tasks",
)  # fmt: skip
"""The folders whose code could change an answer: this room, all that it imports, and the header set."""


def versions(toolchain: Toolchain, include: Path | None) -> dict[str, str]:
    """Name and version of everything that could change an answer, apart from candidate, task and device."""
    headers = "offered" if include is not None else "withheld"
    return {**toolchain.versions, "ptxbench": ptxbench.__version__, "code": code_digest(), "headers": headers}


@functools.cache
def code_digest() -> str:
    """16 hexadecimal digits that change whenever a source file does that has a part in judging."""
    root = Path(ptxbench.__file__).parent
    files = (path for room in JUDGING for path in (root / room).rglob("*") if path.suffix in _CODE)
    return digest_of(file_parts(root, files))[:16]
