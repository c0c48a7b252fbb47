"""Runs on disk: a folder that holds everything a run said and got, readable without the code that wrote it.

::

    RUN/run.json                       what the run was asked to do (`core.RunRecord`)
    RUN/prompts/TASK.json              the first messages
    RUN/trajectories/TASK@EPOCH.json   one attempt each, written when it has ended (`core.TrajectoryRecord`)
    RUN/replies/TASK@EPOCH.jsonl       its replies in order, fit to be replayed
    RUN/sources/DIGEST.cu              every kernel that was taken from a reply
    RUN/verdicts/..                    the verdicts on them, named by the digests of their full keys
    RUN/logs/                          the transcripts of the program that talked to the model

A file appears whole or not at all. A trajectory that has a record is done; whatever ended the program before that, it
is run again and nothing else is.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ptxbench.core import Record, ReplyRecord, RunRecord, TrajectoryRecord, UsageError, Verdict, record_in
from ptxbench.store.verdicts import VerdictKey, VerdictStore, read_verdict, write_atomically

R = TypeVar("R", bound=Record)


class RunFolder:
    """One run. Writing is safe for several threads; `lock` keeps a second process out."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.verdicts = VerdictStore(root / "verdicts")

    def exists(self) -> bool:
        """Whether there is a run in the folder."""
        return (self.root / "run.json").exists()

    def create(self, run: RunRecord, prompts: Mapping[str, Record]) -> None:
        """Writes prompts (by task), then the run's record; `UsageError` if the folder holds a run already."""
        if self.exists():
            raise UsageError(f"{self.root} holds a run already; continue it with `ptxbench resume`, or choose another")
        for task, prompt in prompts.items():
            self._write(self.root / "prompts" / f"{task}.json", prompt)
        self._write(self.root / "run.json", run)

    @contextmanager
    def lock(self) -> Generator[None]:
        """Held while the run goes on; `UsageError` if another process holds it.

        A killed process gives it back; what it left half-written is removed.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.root / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UsageError(f"cannot write {self.root}: {error.strerror}; choose another folder") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise UsageError(f"another process works on {self.root}; wait until it has ended") from error
            for leftover in self.root.rglob(".*.*"):
                leftover.unlink()
            yield
        finally:
            os.close(descriptor)

    def record(self) -> RunRecord:
        """What the run was asked to do; `UsageError` if the folder holds no run."""
        return _read(self.root / "run.json", RunRecord)

    def trajectories(self) -> tuple[TrajectoryRecord, ...]:
        """The trajectories that have ended, by task and epoch."""
        files = sorted((self.root / "trajectories").glob("*.json"))
        return tuple(sorted((_read(f, TrajectoryRecord) for f in files), key=lambda t: (t.task, t.epoch)))

    def put_trajectory(self, trajectory: TrajectoryRecord, replies: Iterable[Record]) -> None:
        """Stores what a model said, then the trajectory, which makes it done."""
        name = f"{trajectory.task}@{trajectory.epoch}"
        lines = "".join(f"{reply.model_dump_json()}\n" for reply in replies)
        write_atomically(self.root / "replies" / f"{name}.jsonl", lines.encode())
        self._write(self.root / "trajectories" / f"{name}.json", trajectory)

    def forget(self, trajectory: TrajectoryRecord) -> None:
        """Removes a trajectory's record, so that it is run again; its kernels and verdicts stay."""
        (self.root / "trajectories" / f"{trajectory.task}@{trajectory.epoch}.json").unlink(missing_ok=True)

    def replies(self, task: str, epoch: int) -> tuple[ReplyRecord, ...]:
        """What a model said in a trajectory, in order; empty for an external agent."""
        path = self.root / "replies" / f"{task}@{epoch}.jsonl"
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
            return tuple(ReplyRecord.model_validate_json(line) for line in lines if line)
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            raise UsageError(f"cannot read {path}; the run's folder is incomplete") from error

    def put_source(self, source: str) -> str:
        """Stores a kernel and returns its digest, as `core.Candidate` has it."""
        digest = hashlib.sha256(source.encode()).hexdigest()
        path = self._source(digest)
        if not path.exists():
            write_atomically(path, source.encode())
        return digest

    def source(self, digest: str) -> str:
        """The kernel of that digest; `UsageError` if the folder lacks it or holds another text under its name."""
        path = self._source(digest)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}; the run's folder is incomplete") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise UsageError(f"{path} was changed after the run; restore it")
        return data.decode()

    def put_verdict(self, key: VerdictKey, verdict: Verdict) -> str:
        """Stores a verdict and returns the digest of its key."""
        self.verdicts.put(key, verdict)
        return key.digest

    def verdict(self, key_digest: str) -> Verdict:
        """The verdict that a turn names; `UsageError` if the folder lacks it."""
        return read_verdict(self.verdicts.root / key_digest[:2] / f"{key_digest}.json")

    def _source(self, digest: str) -> Path:
        return self.root / "sources" / f"{digest}.cu"

    def _write(self, path: Path, record: Record) -> None:
        write_atomically(path, record.model_dump_json(indent=2).encode())


def find_runs(folder: Path) -> tuple[RunRecord, ...]:
    """The records of all runs directly below a folder, by the time they were started."""
    found = (_read(path, RunRecord) for path in folder.glob("*/run.json"))
    return tuple(sorted(found, key=lambda run: (run.started, run.run)))


def _read(path: Path, kind: type[R]) -> R:
    return record_in(path, kind, f"a {kind.__name__} of schema 1", "give the folder of a run")
