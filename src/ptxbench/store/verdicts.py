"""Verdicts on disk: one JSON file each, named by the digest of everything that could change the answer."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from ptxbench.core import Record, Target, UsageError, Verdict, record_in


class VerdictKey(Record):
    """Everything a verdict depends on except the secret seeds; equal keys may share a verdict.

    ``versions`` holds judge, toolchain, device, driver and baseline versions; ``workloads`` the tiers judged.
    """

    task: str
    target: Target
    source_digest: str
    workloads: tuple[str, ...]
    strict: bool
    device: str
    versions: dict[str, str]

    @property
    def digest(self) -> str:
        """SHA-256 of the key's canonical JSON, hexadecimal."""
        canonical = self.model_copy(update={"versions": dict(sorted(self.versions.items()))})
        return hashlib.sha256(canonical.model_dump_json().encode()).hexdigest()


class VerdictStore:
    """A folder of verdicts, safe for several processes: a file appears whole or not at all; the last writer wins."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, key: VerdictKey) -> Path:
        """Where the verdict of a key is, or would be."""
        digest = key.digest
        return self.root / digest[:2] / f"{digest}.json"

    def get(self, key: VerdictKey) -> Verdict | None:
        """The stored verdict, or None. An unreadable file counts as absent: it will be judged again."""
        try:
            return read_verdict(self.path(key))
        except UsageError:
            return None

    def put(self, key: VerdictKey, verdict: Verdict) -> Path:
        """Stores a verdict and returns its path."""
        path = self.path(key)
        write_atomically(path, verdict.model_dump_json(indent=2).encode())
        return path


def read_verdict(path: Path) -> Verdict:
    """Reads one verdict; `UsageError` if the file is missing or is not a verdict of a known schema."""
    return record_in(path, Verdict, "a verdict of schema 1", "give a file that `ptxbench eval` stored")


def write_atomically(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all: a temporary file beside it, flushed to disk, then renamed.

    Raises `UsageError` where the folder cannot be written or the disk is full, and leaves nothing behind.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
        temporary = None
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; choose another folder or free space") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
