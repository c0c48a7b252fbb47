"""Synchronising a whole grid as cooperative groups do: a counter whose address environment registers tell."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import kernel

from ptxbench.core import FaultKind, RunOptions, Schedule
from ptxbench.simulator import load

CTAS = 5
ADDRESS = """
mov.u32 %r1, %envreg1;
mov.u32 %r2, %envreg2;
cvt.u64.u32 %rd10, %r1;
cvt.u64.u32 %rd11, %r2;
shl.b64 %rd10, %rd10, 32;
or.b64 %rd10, %rd10, %rd11;
mov.u32 %r3, %ctaid.x;
mul.wide.u32 %rd12, %r3, 4;
add.u64 %rd12, %rd1, %rd12;
"""
# CTA 0 adds 2^31 less the number of the others, the others 1 each: the highest bit turns when all have arrived.
SYNC = f"""
setp.eq.u32 %p1, %r3, 0;
selp.b32 %r4, {(1 << 31) - (CTAS - 1)}, 1, %p1;
atom.add.release.gpu.u32 %r5, [%rd10+4], %r4;
WAIT_{{0}}:
ld.acquire.gpu.u32 %r6, [%rd10+4];
xor.b32 %r6, %r6, %r5;
setp.gt.s32 %p2, %r6, -1;
@%p2 bra WAIT_{{0}};
"""
SUM = "mov.u32 %r7, 0;\n" + "".join(
    f"ld.global.u32 %r8, [%rd1+{4 * cta}];\nadd.u32 %r7, %r7, %r8;\n" for cta in range(CTAS)
)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(reverse=True), Schedule(seed=3)], ids=lambda s: s.label)
def test_every_cta_of_a_cooperative_grid_sees_what_all_wrote_before(schedule: Schedule) -> None:
    body = (
        f"{ADDRESS}add.u32 %r9, %r3, 1;\nst.global.u32 [%rd12], %r9;\n{SYNC.format('A')}{SUM}{SYNC.format('B')}"
        "st.global.u32 [%rd12], %r7;\nret;"
    )
    out = np.zeros(CTAS, np.uint32)
    launch = Launch("k", ["out"], grid=(CTAS, 1, 1), block=(1, 1, 1), cooperative=True)
    seen = run(load(kernel(body), ["k"]), [launch, launch], RunOptions(schedule=schedule), out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    assert (out == CTAS * (CTAS + 1) // 2).all()


def test_the_address_is_zero_in_an_ordinary_launch() -> None:
    out = np.full(1, 7, np.uint32)
    body = f"{ADDRESS}cvt.u32.u64 %r4, %rd10;\nor.b32 %r4, %r4, %r1;\nst.global.u32 [%rd1], %r4;\nret;"
    assert run(load(kernel(body), ["k"]), Launch("k", ["out"], block=(1, 1, 1)), out=out).fault is None
    assert out[0] == 0


def test_what_lies_behind_the_counter_cannot_be_reached() -> None:
    body = f"{ADDRESS}st.global.u32 [%rd10+64], %r1;\nret;"
    launch = Launch("k", ["out"], block=(1, 1, 1), cooperative=True)
    seen = run(load(kernel(body), ["k"]), launch, out=np.zeros(1, np.uint32))
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.STRAY_WRITE
    assert "the workspace of the cooperative grid" in seen.fault.message
