from __future__ import annotations

from pathlib import Path

import pytest
from solutions_nvcc import complaints, nvcc

from ptxbench.core import Outcome, Target, matrix_family
from ptxbench.solutions import Example, Solution, examples, solutions

MUST_FAIL = Outcome.COMPILE_ERROR
LAST = {Target.SM_90A: "gemm/sm_90a/06_persistent.cu", Target.SM_100A: "gemm/sm_100a/02_persistent.cu"}


def compiled(row: Solution | Example, folder: Path) -> tuple[int, str, str]:
    """(exit status, messages, PTX) of a row's source."""
    source = folder / Path(row.file).name
    source.write_text(row.source())
    done = nvcc(source, row.target, folder / "kernel.cubin", "-Xptxas", "-v", "--keep", "--keep-dir", str(folder))
    ptx = next(folder.glob("*.ptx"), None)
    return done.returncode, done.stderr, ptx.read_text() if ptx else ""


def check(row: Solution | Example, folder: Path) -> None:
    status, log, ptx = compiled(row, folder)
    assert status == 0, log
    assert complaints(log) == []
    assert row.file == "wrong_library_call.cu" or any(
        matrix_family(row.target).matches_ptx(line.strip().removeprefix("{ ")) for line in ptx.splitlines()
    )


@pytest.mark.parametrize("target", list(Target))
def test_the_last_step_compiles_without_complaint(target: Target, tmp_path: Path) -> None:
    check(next(row for row in solutions() if row.file == LAST[target]), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in solutions() if row.file not in LAST.values()], ids=lambda row: row.file)
def test_every_solution_compiles_without_complaint(row: Solution, tmp_path: Path) -> None:
    check(row, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("row", [r for r in examples() if r.outcome is not MUST_FAIL], ids=lambda row: row.file)
def test_every_other_example_compiles_without_complaint(row: Example, tmp_path: Path) -> None:
    check(row, tmp_path)


@pytest.mark.parametrize("row", [r for r in examples() if r.outcome is MUST_FAIL], ids=lambda row: row.file)
def test_compile_errors_are_errors(row: Example, tmp_path: Path) -> None:
    status, log, _ = compiled(row, tmp_path)
    assert status != 0
    assert "error" in log
