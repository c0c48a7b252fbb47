"""Recordings of replies: JSON lines that a run can be replayed from, written by hand or kept by an earlier run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ptxbench.core import Record, ReplyRecord, UsageError

BUNDLED = Path(__file__).parent / "recordings" / "gemm_sm_90a.jsonl"


class Heading(Record):
    """The first line of a recording, if it has one: where the replies come from."""

    recording: int
    origin: str


@dataclass(frozen=True)
class Recording:
    """Replies by (task, epoch), in the order of their calls. ``origin`` says where they come from."""

    name: str
    origin: str
    replies: Mapping[tuple[str, int], tuple[ReplyRecord, ...]]

    def of(self, task: str, epoch: int) -> tuple[ReplyRecord, ...]:
        """The replies of one trajectory; `UsageError` if there are none."""
        found = self.replies.get((task, epoch))
        if found is None:
            known = ", ".join(f"{name}@{number}" for name, number in self.replies)
            raise UsageError(f"the recording {self.name} has no replies for {task}, epoch {epoch}; it has {known}")
        return found


def read_recording(path: Path) -> Recording:
    """Reads one file, or the replies of a run's folder; `UsageError` names the line that is wrong."""
    files = sorted((path / "replies").glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"{path} holds no replies; give a recording (.jsonl) or the folder of a run")
    origin, rows = f"the run {path.name}" if path.is_dir() else "unknown", list[ReplyRecord]()
    for file in files:
        for number, line in _lines(file):
            try:
                data = json.loads(line)
                if isinstance(data, dict) and "recording" in data:
                    origin = Heading.model_validate(data).origin
                else:
                    rows.append(ReplyRecord.model_validate(data))
            except (json.JSONDecodeError, ValidationError) as error:
                message = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error.msg
                raise UsageError(f"{file}, line {number} is not a reply ({message})") from error
    replies: dict[tuple[str, int], list[ReplyRecord]] = {}
    for row in rows:
        replies.setdefault((row.task, row.epoch), []).append(row)
    for (task, epoch), found in replies.items():
        found.sort(key=lambda row: row.call)
        if [row.call for row in found] != list(range(1, len(found) + 1)):
            raise UsageError(f"the calls of {task}, epoch {epoch} in {path} are not numbered 1, 2, ...; correct `call`")
    return Recording(path.name, origin, {key: tuple(found) for key, found in replies.items()})


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the recording {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the recording {file} is not UTF-8 text; save it as UTF-8") from error
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())
