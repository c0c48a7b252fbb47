"""Moves that the compiler makes between wgmma's registers: between a fence and the products, and while products run."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import THREAD_ADDRESS, kernel

from ptxbench.core import Observation, RunOptions, Schedule
from ptxbench.simulator import load

STEP = 2.0 * 16  # what one product adds: A is 2 throughout, B is 1, and K is 16
BOTH = pytest.mark.parametrize("products", ["eager", "late"])
PROLOGUE = THREAD_ADDRESS + """
shl.b32 %r2, %r1, 4;
add.u32 %r2, %r2, 2048;
mov.b32 %r3, 0x3f803f80;
st.shared.v4.b32 [%r2], {%r3, %r3, %r3, %r3};
fence.proxy.async;
bar.sync 0;
mov.b64 %rd10, 0x0000000800080080;
mov.b32 %r20, 0x40004000;
"""
COMMIT, WAIT = "wgmma.commit_group.sync.aligned;\n", "wgmma.wait_group.sync.aligned 0;\n"
FENCE = "wgmma.fence.sync.aligned;\n"


def product(first: int, accumulate: int = 1) -> str:
    """A product on the accumulators ``%f{first}`` to ``%f{first + 3}``."""
    names = ", ".join(f"%f{first + i}" for i in range(4))
    return (
        f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{names}}}, {{%r20, %r20, %r20, %r20}}, %rd10, "
        f"{accumulate}, 1, 1, 0;\n"
    )


def moved(to: int, source: int) -> str:
    return "".join(f"mov.f32 %f{to + i}, %f{source + i};\n" for i in range(4))


def zeroed(first: int) -> str:
    return "".join(f"mov.f32 %f{first + i}, 0f00000000;\n" for i in range(4))


NEVER = f"bra DONE;\n{product(8)}DONE:\n"
"""A product that does not run, but makes ``%f8`` to ``%f11`` registers of products."""


def ran(body: str, products: str, out: str = "%f0", *, races: bool = False) -> tuple[Observation, np.ndarray]:
    """What was seen, and the value of register ``out`` in every thread."""
    values = np.zeros(128, np.float32)
    text = kernel(f"{PROLOGUE}{body}st.global.f32 [%rd21], {out};\nret;")
    launch = Launch("k", ["out"], block=(128, 1, 1), shared=8192)
    schedule = Schedule(copies="eager", products="late" if products == "late" else "eager")
    seen = run(load(text, ["k"]), launch, RunOptions(schedule=schedule, races=races), out=values)
    assert seen.fault is None
    return seen, values


def kinds(seen: Observation) -> list[str]:
    return [hazard.kind for hazard in seen.hazards]


@BOTH
def test_an_accumulator_in_flight_may_be_moved_to_other_registers(products: str) -> None:
    body = zeroed(0) + FENCE + product(0) + moved(8, 0) + product(8) + COMMIT + WAIT
    seen, values = ran(body, products, "%f11")
    assert kinds(seen) == []
    assert (values == 2 * STEP).all()


@BOTH
def test_part_of_an_accumulator_in_flight_may_be_moved(products: str) -> None:
    last = product(0).replace("%f1, %f2", "%f9, %f2")
    body = zeroed(0) + FENCE + product(0) + "mov.f32 %f9, %f1;\n" + last + COMMIT + WAIT
    for register in ("%f0", "%f9"):
        seen, values = ran(body, products, register)
        assert kinds(seen) == []
        assert (values == 2 * STEP).all()


@BOTH
def test_moves_back_and_forth_in_flight_keep_the_sum(products: str) -> None:
    turn = product(0) + COMMIT + moved(8, 0) + product(8) + COMMIT + moved(0, 8)
    seen, values = ran(zeroed(0) + FENCE + turn + turn + product(0) + COMMIT + WAIT, products)
    assert kinds(seen) == []
    assert (values == 5 * STEP).all()


@BOTH
@pytest.mark.parametrize("register", ["%f0", "%f8"])
def test_both_names_of_a_moved_accumulator_get_the_result(products: str, register: str) -> None:
    body = zeroed(0) + FENCE + product(0) + moved(8, 0) + COMMIT + WAIT
    seen, values = ran(body + NEVER, products, register)
    assert kinds(seen) == []
    assert (values == STEP).all()


@BOTH
def test_a_register_that_was_moved_from_may_get_another_value(products: str) -> None:
    body = zeroed(0) + FENCE + product(0) + moved(8, 0) + product(8) + COMMIT + "mov.f32 %f0, 0f40400000;\n" + WAIT
    seen, values = ran(body, products, "%f0")
    assert kinds(seen) == []
    assert (values == 3).all()


@BOTH
def test_zeros_put_into_accumulators_behind_the_fence_are_no_finding(products: str) -> None:
    seen, values = ran(FENCE + zeroed(0) + product(0) + COMMIT + WAIT, products)
    assert kinds(seen) == []
    assert (values == STEP).all()


@BOTH
def test_fenced_values_moved_behind_the_fence_are_no_finding(products: str) -> None:
    seen, values = ran(zeroed(8) + FENCE + moved(0, 8) + product(0) + product(8) + COMMIT + WAIT, products)
    assert kinds(seen) == []
    assert (values == STEP).all()


@BOTH
def test_arithmetic_behind_the_fence_is_a_finding(products: str) -> None:
    body = zeroed(0) + FENCE + "add.f32 %f0, %f0, 0f3f800000;\n" + product(0) + COMMIT + WAIT
    assert kinds(ran(body, products)[0]) == ["missing_wgmma_fence"]


@BOTH
def test_a_move_does_not_hide_arithmetic_behind_the_fence(products: str) -> None:
    body = zeroed(8) + FENCE + "add.f32 %f8, %f8, 0f3f800000;\n" + moved(0, 8) + product(0) + COMMIT + WAIT
    seen, _ = ran(body + NEVER, products)
    assert kinds(seen) == ["missing_wgmma_fence"]


ONCE = zeroed(0) + FENCE + product(0) + COMMIT + WAIT
USES = {
    "read": ("add.f32 %f16, %f0, %f1;\n", True),
    "written": ("add.f32 %f1, %f16, %f16;\n", True),
    "moved away": ("mov.f32 %f16, %f0;\nadd.f32 %f17, %f16, %f16;\n", False),
    "others read": ("add.f32 %f17, %f16, %f16;\n", False),
}


@BOTH
@pytest.mark.parametrize("accumulate", [0, 1])
@pytest.mark.parametrize("use", USES)
def test_registers_that_are_used_and_then_overwritten_by_a_product(use: str, accumulate: int, products: str) -> None:
    text, found = USES[use]
    again = product(0, accumulate) + COMMIT + WAIT
    seen, values = ran(ONCE + text + again, products, races=True)
    assert kinds(seen) == (["missing_wgmma_fence"] if found else [])
    assert kinds(ran(ONCE + text + FENCE + again, products, races=True)[0]) == []
    assert use == "written" or (values == (1 + accumulate) * STEP).all()


@BOTH
def test_only_the_strict_check_asks_for_a_fence_where_nothing_is_read(products: str) -> None:
    assert kinds(ran(ONCE + USES["read"][0] + product(0, 0) + COMMIT + WAIT, products)[0]) == []


def test_a_moved_accumulator_is_not_readable_before_the_wait() -> None:
    reading = "add.f32 %f16, %f8, 0f00000000;\n"
    body = zeroed(0) + FENCE + product(0) + moved(8, 0) + reading + product(8) + COMMIT + WAIT
    assert (ran(body, "eager", "%f16")[1] == STEP).all()
    assert np.isnan(ran(body, "late", "%f16")[1]).all()


def test_products_of_two_widths_in_flight_on_common_registers_stay_apart() -> None:
    wide = product(0).replace("n8k16", "n16k16").replace("%f3}", "%f3, %f4, %f5, %f6, %f7}")
    _, values = ran(zeroed(0) + zeroed(4) + FENCE + product(0) + wide + COMMIT + WAIT, "late")
    assert np.isnan(values).all()  # the ISA orders only products of the same shape
