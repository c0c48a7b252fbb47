"""Registers of tcgen05.ld before its wait: moves hand on that they are not loaded yet, and other uses are findings."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_tensor import COLUMNS, FINISH, SETUP, move_rows, row_address
from simulator_text import kernel

from ptxbench.core import Observation, RunOptions, Schedule
from ptxbench.simulator import load

in_both_schedules = pytest.mark.parametrize("products", ["eager", "late"])
LOAD = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r40, %r41}, [%r9];\n"
LOAD_MORE = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r42, %r43}, [%r9+2];\n"
WAIT = "tcgen05.wait::ld.sync.aligned;\n"
PACK = "mov.b64 %rd30, {%r40, %r41};\n"
UNPACK = "mov.b64 {%r44, %r45}, %rd30;\n"


def run_rows(body: str, products: str, stored: str) -> tuple[Observation, np.ndarray, list[str]]:
    """Runs ``body`` on cells that count up, then stores the register ``stored`` of every thread: the observation, what
    was stored, and the text of the lines with findings.
    """
    before = SETUP + move_rows(COLUMNS, "%rd1", store=True) + row_address("%rd2")
    text = kernel(f"{before}{body}st.global.u32 [%rd21], {stored};{FINISH}", pointers=2, target="sm_100a")
    cells = np.arange(128 * COLUMNS, dtype=np.uint32).reshape(128, COLUMNS)
    out = np.zeros_like(cells)
    launch = Launch("k", ["in_cells", "out"], block=(128, 1, 1))
    seen = run(load(text, ["k"]), launch, RunOptions(schedule=Schedule(products=products)), in_cells=cells, out=out)
    assert seen.fault is None
    assert {hazard.kind for hazard in seen.hazards} <= {"unwaited_tensor_load"}
    lines = [text.splitlines()[hazard.ptx_line - 1].strip() for hazard in seen.hazards]
    return seen, out[:, 0], lines


PLAIN = "mov.b32 %r44, %r40;\nmov.b32 %r45, %r41;\n"
TWICE = "mov.b32 %r46, %r40;\nmov.b32 %r44, %r46;\nmov.b32 %r45, %r41;\n"


@in_both_schedules
@pytest.mark.parametrize("moves", [PLAIN, PACK + UNPACK, TWICE], ids=["plain", "packed", "twice"])
def test_copies_that_are_used_after_the_wait_are_silent(moves, products):
    _, out, lines = run_rows(LOAD + moves + WAIT + "add.u32 %r47, %r44, %r45;\n", products, "%r47")
    assert lines == []
    assert np.array_equal(out, 2 * COLUMNS * np.arange(128) + 1)


@in_both_schedules
@pytest.mark.parametrize("moves", ["mov.b32 %r44, %r40;\nmov.b32 %r45, 7;\n", PACK + UNPACK], ids=["plain", "packed"])
def test_a_copy_that_is_used_before_the_wait_is_found_where_it_is_used(moves, products):
    _, _, lines = run_rows(LOAD + moves + "add.u32 %r47, %r44, %r45;\n" + WAIT, products, "%r47")
    assert lines == ["add.u32 %r47, %r44, %r45;"]


@in_both_schedules
def test_a_register_that_a_move_has_filled_anew_is_free(products):
    body = LOAD + "mov.b32 %r44, %r40;\nmov.b32 %r44, 5;\nadd.u32 %r47, %r44, 1;\n" + WAIT
    _, out, lines = run_rows(body, products, "%r47")
    assert lines == []
    assert (out == 6).all()


@in_both_schedules
@pytest.mark.parametrize("over", ["mov.b32 %r40, 5;", "mov.b64 {%r40, %r46}, %rd20;", "add.u32 %r40, %r1, 1;"])
def test_a_move_over_a_register_that_is_being_loaded(over, products):
    assert run_rows(LOAD + over + "\n" + WAIT, products, "%r40")[2] == [over]


@in_both_schedules
def test_every_load_is_found_once(products):
    body = (
        LOAD + LOAD_MORE + "add.u32 %r47, %r40, 1;\nadd.u32 %r47, %r47, %r41;\nadd.u32 %r47, %r47, %r43;\n"
        "add.u32 %r47, %r47, %r42;\n" + WAIT
    )
    _, out, lines = run_rows(body, products, "%r47")
    assert lines == ["add.u32 %r47, %r40, 1;", "add.u32 %r47, %r47, %r43;"]
    assert np.array_equal(out, 4 * COLUMNS * np.arange(128) + 7)


@in_both_schedules
def test_more_loads_than_there_are_bits_for(products):
    loads = "".join(f"tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r{100 + i}}}, [%r9+{i}];\n" for i in range(70))
    _, out, lines = run_rows(loads + "add.u32 %r47, %r169, %r100;\n" + WAIT, products, "%r47")
    assert lines == ["add.u32 %r47, %r169, %r100;"]
    assert np.array_equal(out, 2 * COLUMNS * np.arange(128) + 69)


def test_a_plain_constant_in_a_vector_stays_free():
    body = LOAD + "mov.b64 %rd30, {%r40, 3};\nadd.u32 %r47, %r1, 3;\n" + WAIT
    assert run_rows(body, "eager", "%r47")[2] == []
