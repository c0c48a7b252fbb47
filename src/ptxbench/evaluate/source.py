"""Reading a candidate from a file, with one clear sentence for every way in which that can fail."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from ptxbench.core import Candidate, Target, UsageError, make_candidate

MAX_SOURCE_BYTES = 1 << 20
"""Larger sources are refused unread; the largest hand-written kernels known are below 200 KB."""


def read_candidate(path: Path, *, task: str, target: Target) -> Candidate:
    """Reads one UTF-8 source file (``-`` is standard input); `UsageError` names what is wrong and what to do."""
    data = _read_standard_input() if str(path) == "-" else _read_file(path)
    name = "standard input" if str(path) == "-" else path.name
    if len(data) > MAX_SOURCE_BYTES:
        raise UsageError(f"{name} is larger than 1 MiB; a candidate is one source file of at most 1 MiB")
    if not data.strip():
        raise UsageError(f"{name} is empty; a candidate is one CUDA C++ source file that defines `launch`")
    if b"\0" in data:
        raise UsageError(f"{name} is binary (it holds NUL bytes); give the .cu source, not something compiled")
    try:
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{name} is not UTF-8 text (line {line}, byte {error.start}); save it as UTF-8") from error
    return make_candidate(source, task=task, target=target, origin=name)


def read_folder(folder: Path, *, task: str, target: Target) -> tuple[list[Candidate], dict[str, str]]:
    """Reads every ``.cu`` file below a folder, in order of their names.

    The candidates' origins are paths relative to the folder. Files that cannot be read are returned with the sentence
    that says why; `UsageError` if there is no file at all.
    """
    try:
        files = sorted(path for path in folder.rglob("*.cu") if not path.is_dir())
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}") from error
    if not files:
        raise UsageError(f"{folder} holds no .cu file; give a folder of candidates, or one file")
    candidates: list[Candidate] = []
    unreadable: dict[str, str] = {}
    for path in files:
        name = str(path.relative_to(folder))
        try:
            candidate = read_candidate(path, task=task, target=target)
        except UsageError as error:
            unreadable[name] = str(error)
        else:
            candidates.append(candidate.model_copy(update={"origin": name}))
    return candidates, unreadable


def _read_file(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UsageError(f"{path} is a folder; give one .cu file")
        if not stat.S_ISREG(mode):
            raise UsageError(f"{path} is not a regular file; give one .cu file, or - for standard input")
        with path.open("rb") as file:
            return file.read(MAX_SOURCE_BYTES + 1)
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _read_standard_input() -> bytes:
    return sys.stdin.buffer.read(MAX_SOURCE_BYTES + 1)
