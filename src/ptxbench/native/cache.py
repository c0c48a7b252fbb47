"""The one content-addressed cache on disk: folders that are either complete and intact or not there at all.

Layout below the root::

    <kind>/<key>/            a finished entry; `.manifest.json` lists every file with size and SHA-256
    <kind>/.<key>.lock       held with flock(2) while one process builds the entry
    <kind>/.<key>.<id>.tmp   the entry under construction, renamed into place when complete
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs

from ptxbench.core import CacheError, Cancelled

_MANIFEST = ".manifest.json"
_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,127}")

# What the storage itself can do to us, whoever was writing at that moment.
_STORAGE_ERRNOS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file size limit was reached",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "operation not permitted",
    errno.EIO: "input/output error",
    errno.ENOTDIR: "a part of the path is not a folder",
    errno.ENOENT: "no such folder can be made",
}

_POLL_S = 0.05


def default_cache_root() -> Path:
    """``$PTXBENCH_CACHE`` if set and not empty, else the user's cache folder."""
    chosen = os.environ.get("PTXBENCH_CACHE", "")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("ptxbench", appauthor=False))


class Cache:
    """Finished folders by kind and key, safe for any number of processes and threads on one machine.

    Setting ``stop`` ends the waiting for entries that others build, with `Cancelled`.
    """

    def __init__(self, root: Path | None = None, stop: threading.Event | None = None) -> None:
        self.root = (root or default_cache_root()).absolute()
        self.stop = stop or threading.Event()

    def folder(self, kind: str, key: str, make: Callable[[Path], None]) -> Path:
        """The finished folder of ``key``, built by ``make`` if it is absent or damaged.

        ``make`` receives an empty folder and fills it; it runs at most once at a time per key on this machine. If it
        raises (a `KeyboardInterrupt` too), nothing remains and the exception passes through. The files of the
        returned folder are shared: read them, never change them.

        Raises `CacheError` where the place cannot be read or written, `ValueError` for a kind or key that is no
        plain file name.
        """
        for name in (kind, key):
            if not _NAME.fullmatch(name):
                raise ValueError(f"not a plain file name: {name!r}")
        place = self.root / kind / key
        with self._storage():
            if _intact(place):
                return place
            place.parent.mkdir(parents=True, exist_ok=True)
            with _locked(place.parent / f".{key}.lock", self.stop):
                # Another process may have finished it while this one waited.
                if not _intact(place):
                    _build(place, make)
        return place

    @contextmanager
    def _storage(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            cause = _STORAGE_ERRNOS.get(error.errno or 0)
            where = Path(os.fsdecode(error.filename)) if error.filename else self.root
            if cause is None or not (where.is_relative_to(self.root) or self.root.is_relative_to(where)):
                raise
            raise CacheError(
                f"The cache at {self.root} cannot be used ({cause}: {where}); free space or fix its permissions, "
                "or set PTXBENCH_CACHE to another folder."
            ) from error


def _build(place: Path, make: Callable[[Path], None]) -> None:
    """Builds beside ``place`` and renames. The caller holds the key's lock, so leftovers belong to dead processes."""
    for leftover in place.parent.glob(f".{place.name}.*.tmp"):
        shutil.rmtree(leftover)
    work = place.parent / f".{place.name}.{uuid.uuid4().hex}.tmp"
    work.mkdir()
    try:
        make(work)
        _seal(work)
        if place.exists():
            damaged = place.parent / f".{place.name}.{uuid.uuid4().hex}.tmp"
            place.rename(damaged)
            shutil.rmtree(damaged)
        work.rename(place)
        _fsync(place.parent)
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(work)
        raise


def _seal(folder: Path) -> None:
    """Writes the manifest and forces everything to disk, so that a rename never outlives its content."""
    files = {str(path.relative_to(folder)): _fingerprint(path) for path in _files(folder)}
    (folder / _MANIFEST).write_text(json.dumps({"files": files}, sort_keys=True))
    for path in (*_files(folder), folder / _MANIFEST):
        _fsync(path)
    for path in (*(p for p in folder.rglob("*") if p.is_dir()), folder):
        _fsync(path)


def _intact(place: Path) -> bool:
    """Whether the entry is complete and every file still has its recorded size and digest."""
    try:
        recorded = json.loads((place / _MANIFEST).read_bytes())["files"]
        present = {str(path.relative_to(place)): path for path in _files(place)}
        if present.keys() != recorded.keys():
            return False
        # Sizes first: they are free, and truncation is the common damage.
        if any(path.stat().st_size != recorded[name][0] for name, path in present.items()):
            return False
        return all(_fingerprint(path) == recorded[name] for name, path in present.items())
    except (FileNotFoundError, ValueError, KeyError, TypeError, IndexError):
        return False


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _MANIFEST)


def _fingerprint(path: Path) -> list[int | str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return [path.stat().st_size, digest]


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(path: Path, stop: threading.Event) -> Generator[None]:
    """An exclusive flock, which the kernel releases when its holder dies. The file stays: removing it would race."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        # Waiting in the kernel could not be called off from another thread.
        while not _taken(descriptor):
            if stop.wait(_POLL_S):
                raise Cancelled(f"Waiting for another process to finish {path.parent} was called off.")
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
