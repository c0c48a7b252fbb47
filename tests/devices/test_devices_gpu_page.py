"""The page on judging on a GPU holds the numbers of its results files."""

from __future__ import annotations

from pathlib import Path

from gpu_page import BEGIN, END, numbers, read

ROOT = Path(__file__).parents[2]


def test_the_page_holds_the_results() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    shown = page.partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == numbers(read(ROOT / "results" / "h200")).strip()


def test_every_result_tells_its_machine_date_and_command() -> None:
    for name, found in read(ROOT / "results" / "h200").items():
        assert found["command"], name
        assert found.get("date") or found["machine"]["date"], name
        assert "H200" in str(found.get("device") or found["machine"]["name"]), name
