"""Digests of things in parts: no two lists of parts have the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path


def digest_of(parts: Iterable[bytes]) -> str:
    """SHA-256 over every part with its length before it, in hexadecimal."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def file_parts(root: Path, files: Iterable[Path]) -> Iterator[bytes]:
    """The name below ``root`` and the content of each file, in the order of their paths."""
    for path in sorted(files):
        yield str(path.relative_to(root)).encode()
        yield path.read_bytes()
