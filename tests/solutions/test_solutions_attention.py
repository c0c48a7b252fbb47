"""Causal and plain attention kernels are twins: one file each, because a candidate is one file, and one line apart."""

from __future__ import annotations

import pytest

from ptxbench.solutions import Solution, solutions

BY_FILE = {row.file: row for row in solutions()}
CAUSAL = [row for row in solutions() if row.task.startswith("mha_") and row.task.endswith("_causal")]


def test_there_are_causal_kernels() -> None:
    assert CAUSAL


@pytest.mark.parametrize("row", CAUSAL, ids=lambda row: row.file)
def test_twins_differ_in_one_constant(row: Solution) -> None:
    twin = BY_FILE[row.file.replace("_causal.cu", ".cu")]
    assert (twin.task, twin.target) == (row.task.removesuffix("_causal"), row.target)
    pairs = zip(twin.source().splitlines(), row.source().splitlines(), strict=True)
    changed = [(plain, causal) for plain, causal in pairs if plain != causal]
    assert len(changed) == 1
    plain, causal = changed[0]
    assert "false" in plain and plain.replace("false", "true", 1) == causal
