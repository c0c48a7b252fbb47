from __future__ import annotations

from pathlib import Path

import pytest

import ptxbench.solutions
from ptxbench.core import Outcome, Target
from ptxbench.solutions import examples, include_dir, solutions
from ptxbench.tasks import load_tasks

ROOT = Path(ptxbench.solutions.__file__).parent


def test_every_source_has_exactly_one_row() -> None:
    rows = [row.file for row in solutions()] + [f"examples/{row.file}" for row in examples()]
    assert len(rows) == len(set(rows))
    assert set(rows) == {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.cu")}


def test_rows_name_known_tasks_and_right_folders() -> None:
    tasks = load_tasks()
    assert all(row.task in tasks for row in (*solutions(), *examples()))
    assert all(row.target in Path(row.file).parts for row in solutions())


def test_rows_are_chosen_by_task_and_target() -> None:
    assert [Path(row.file).name[:2] for row in solutions("gemm_n7168_k5120", Target.SM_90A)] == [
        "01", "02", "03", "04", "05", "06",
    ]
    assert {row.target for row in solutions(target=Target.SM_100A)} == {Target.SM_100A}
    assert solutions("no_such_task") == ()


def test_the_examples_show_every_outcome_that_the_simulator_can_give() -> None:
    assert {row.outcome for row in examples()} == set(Outcome) - {Outcome.PASSED}


def test_right_examples_stand_first_and_say_so() -> None:
    accepted = [row.outcome.accepted for row in examples()]
    assert accepted == sorted(accepted, reverse=True)
    for row in examples():
        assert row.about.startswith("right") == row.outcome.accepted
        assert row.file.startswith("wrong_") != row.outcome.accepted


@pytest.mark.parametrize("row", [*solutions(), *examples()], ids=lambda row: row.file)
def test_sources_say_first_what_they_are(row: ptxbench.solutions.Solution | ptxbench.solutions.Example) -> None:
    lines = row.source().splitlines()
    assert lines[0].startswith("// ")
    assert len(lines) < 400 and max(map(len, lines)) <= 150


def test_headers_are_documented() -> None:
    headers = sorted((include_dir() / "ptxbench" / "ptx").glob("*.cuh"))
    assert len(headers) >= 12
    for path in headers:
        text = path.read_text()
        assert text.startswith("// ") and "#pragma once" in text
        assert text.count("namespace ptx {") == 1
