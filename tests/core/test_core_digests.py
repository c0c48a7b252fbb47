"""Digests of parts, and of files by their names and contents."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ptxbench.core import digest_of, file_parts


def test_a_part_is_preceded_by_its_length() -> None:
    expected = hashlib.sha256((2).to_bytes(8, "little") + b"ab" + (0).to_bytes(8, "little")).hexdigest()
    assert digest_of([b"ab", b""]) == expected
    assert digest_of([b"ab", b"c"]) != digest_of([b"a", b"bc"])


def test_files_come_in_the_order_of_their_paths_with_names_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name, content in (("b/x", b"1"), ("a", b"2")):
        (tmp_path / name).write_bytes(content)
    files = [tmp_path / "b" / "x", tmp_path / "a"]
    assert list(file_parts(tmp_path, files)) == [b"a", b"2", b"b/x", b"1"]
