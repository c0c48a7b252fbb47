"""The page of the wide run holds the numbers of its results file, and the file covers every kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from acceptance_page import BEGIN, END, bars, filled, numbers
from honest_kernels import honest_kernels, known_good

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "acceptance.md"


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return json.loads((ROOT / "results" / "cpu" / "acceptance.json").read_text())


def test_the_page_agrees_with_the_file(found: dict[str, Any]) -> None:
    page = PAGE.read_text()
    assert filled(page, found) == page
    assert numbers(found) in page


def test_every_honest_kernel_was_tried_widely_and_never_refused(found: dict[str, Any]) -> None:
    assert found["seeds"] >= 20
    names = {row.name for row in honest_kernels()} | {candidate.origin for candidate in known_good()}
    assert {row["kernel"] for row in found["honest"]} == names
    for row in found["honest"]:
        assert row["kernel_caught"] == 0 and row["accepted"] == row["count"] >= 80, row
        assert row["rms"]["highest"] < found["bounds"]["rms"] and row["largest"]["highest"] < found["bounds"]["largest"]


def test_every_cheat_is_caught_somewhere(found: dict[str, Any]) -> None:
    assert all(row["kernel_caught"] > 0 for row in found["cheats"])


def test_bars_show_every_share_that_is_not_zero() -> None:
    drawn = list(bars([1.0, 1.5, 2.0], [1, 399, 0, 0], [0, 0, 0, 4]))
    assert drawn[0] == "    0 -     1 | o 0.2%"
    assert drawn[1].startswith("    1 -   1.5 | oooo")
    assert drawn[2] == "  1.5 -     2 |"
    assert drawn[3] == f"    2 -       | {'x' * 40} 100.0%"


def test_only_what_stands_between_the_marks_is_written(found: dict[str, Any]) -> None:
    page = filled(f"before\n{BEGIN}\nold\n{END}\nafter\n", found)
    assert page.startswith(f"before\n{BEGIN}\n`python") and page.endswith(f"{END}\nafter\n") and "old\n" not in page
