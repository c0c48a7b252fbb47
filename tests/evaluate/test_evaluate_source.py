from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ptxbench.core import Target, UsageError
from ptxbench.evaluate import read_candidate

ROW = {"task": "gemm_n7168_k5120", "target": Target.SM_90A}


def test_reads_utf8_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    text = '// größer\nextern "C" int launch();\n'
    for index, data in enumerate((text.encode(), b"\xef\xbb\xbf" + text.encode())):
        path = tmp_path / f"{index}.cu"
        path.write_bytes(data)
        candidate = read_candidate(path, **ROW)
        assert candidate.source == text
        assert candidate.digest == hashlib.sha256(text.encode()).hexdigest()
        assert candidate.origin == f"{index}.cu"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b" \n\t\n", "is empty"),
        (b"\x7fELF\0\0\0", "is binary"),
        (b"int x;\nint y; // \xff\n", r"not UTF-8 text \(line 2, byte 17\)"),
        (b"/" * (2 << 20), "larger than 1 MiB"),
    ],
)
def test_refuses_what_is_not_a_source(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "kernel.cu"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=message):
        read_candidate(path, **ROW)


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    with path.open("wb") as file:
        file.truncate(100 << 30)
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        read_candidate(path, **ROW)


def test_names_missing_folders_and_special_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        read_candidate(tmp_path / "missing.cu", **ROW)
    with pytest.raises(UsageError, match="is a folder"):
        read_candidate(tmp_path, **ROW)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        read_candidate(tmp_path / "pipe", **ROW)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_names_an_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cu"
    path.write_text("int x;")
    path.chmod(0)
    with pytest.raises(UsageError, match="Permission denied"):
        read_candidate(path, **ROW)
