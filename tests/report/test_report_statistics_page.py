"""docs/statistics.md is true: its code runs, its example is a real run, its numbers and its output are that run's."""

from __future__ import annotations

import doctest
import functools
import io
import re
import shlex
import threading
from pathlib import Path

import pytest
from report_runs import Turn, run_record, source_name, speed, trajectory, write_run
from rich.console import Console

from ptxbench.cli.console import guarded
from ptxbench.cli.program import run_command
from ptxbench.core import Outcome, ReplyOutcome, TrajectoryRecord
from ptxbench.report import Row, measures, read_run, run_view

PAGE = Path(__file__).parents[2] / "docs" / "statistics.md"
TEXT = PAGE.read_text()
WIDTH = 125


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def described(text: str) -> Turn:
    """A cell of the table of trajectories."""
    if re.fullmatch(r"[0-9.]+", text):
        return float(text)
    return ReplyOutcome(text) if text in {reply.value for reply in ReplyOutcome} else Outcome(text)


def example_run(folder: Path, name: str) -> Path:
    rows = re.findall(r"^\| (\w+) \| (\d) \| (\S+) \| (\S+) \| (\S+) \| ?(\S*) ?\|$", TEXT, re.MULTILINE)
    assert len(rows) == 8
    record = run_record(name, tasks=tuple(dict.fromkeys(task for task, *_ in rows)), epochs=4, turns=3)
    found: list[TrajectoryRecord] = []
    for task, epoch, *turns, again in rows:
        remeasured = speed(float(again)) if again else None
        found.append(trajectory(record, task, int(epoch), [described(turn) for turn in turns], remeasured=remeasured))
    # The one accepted kernel of the attention has a finding.
    return write_run(folder, record, found, hazards={source_name(name, "mha_fwd_d128", 2, 2)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    for name in ("example", "other"):
        example_run(root, name)
    return root


@pytest.fixture(scope="module")
def rows(folder: Path) -> dict[tuple[str, str], Row]:
    return {(row.task, row.label): row for row in measures(read_run(folder / "example"))}


def test_the_code_on_the_page_runs() -> None:
    found = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert found.failed == 0
    assert found.attempted == sum(block.count(">>> ") for block in blocks("pycon")) > 8


def test_the_shares_on_the_page_are_those_of_the_example(rows: dict[tuple[str, str], Row]) -> None:
    shares = re.findall(r"(\w+@\d|fast_[\d.]+) = (\d)/(\d)", TEXT)
    assert len(shares) == 9
    for label, count, total in shares:
        assert rows["all", label].value == int(count) / int(total), label


def test_the_other_numbers_on_the_page_are_those_of_the_example(rows: dict[tuple[str, str], Row]) -> None:
    assert "| speedup q0.5 = 0.84 |" in TEXT and rows["all", "speedup q0.5"].value == 0.84
    assert "| 1.01 for the GEMM |" in TEXT and rows["gemm_n7168_k5120", "best speedup"].value == 1.01
    assert "| 24 000 / 4 = 6000 |" in TEXT and rows["all", "tokens per solved"].value == 24_000 / 4


def test_the_output_on_the_page_is_what_the_command_prints(folder: Path) -> None:
    run = read_run(folder / "example")
    console = Console(file=io.StringIO(), width=WIDTH)
    console.print(run_view(run, measures(run)), highlight=False)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    (shown,) = blocks("text")
    assert [line.rstrip() for line in printed.splitlines()] == shown.rstrip("\n").splitlines()


def test_the_commands_on_the_page_work(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    lines = [line for block in blocks("console") for line in block.splitlines()]
    assert len(lines) == 4
    for line in lines:
        program, *arguments = shlex.split(line)
        assert program == "ptxbench"
        assert guarded(functools.partial(run_command, arguments, threading.Event())) == 0
        assert capsys.readouterr().out
