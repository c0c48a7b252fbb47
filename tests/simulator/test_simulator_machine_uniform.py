"""Operands that have to be the same in all lanes of a warp, and in the warps of a warpgroup."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import THREAD_ADDRESS, kernel

from ptxbench.core import Observation, RunOptions, Schedule
from ptxbench.simulator import load

# 4 KiB of zeros at 2048, a descriptor of them without swizzling in %rd10, scale-d in %p5.
TILE = """
.shared .align 1024 .b8 tile[8192];
mov.u32 %r2, tile;
shl.b32 %r3, %r1, 6;
add.u32 %r3, %r3, %r2;
""" + "\n".join(f"st.shared.v4.u32 [%r3+{16 * i}], {{0, 0, 0, 0}};" for i in range(4)) + """
fence.proxy.async;
bar.sync 0;
shr.u32 %r4, %r2, 4;
cvt.u64.u32 %rd10, %r4;
or.b64 %rd10, %rd10, 34363932672;
and.b32 %r5, %r1, 31;
setp.eq.u32 %p5, %r1, %r1;
"""
D = ", ".join(f"%f{i}" for i in range(4))
ZERO = "".join(f"mov.f32 %f{i}, 0f00000000;\n" for i in range(4))
PRODUCT = f"""
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{D}}}, %rd10, %rd11, %p5, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
ret;"""
SCHEDULES = [Schedule(), Schedule(products="late", reverse=True)]


def check(change: str, schedule: Schedule) -> Observation:
    out = np.zeros(128, np.uint32)
    body = THREAD_ADDRESS + TILE + ZERO + "mov.u64 %rd11, %rd10;\n" + change + PRODUCT
    launch = Launch("k", ["out"], block=(128, 1, 1))
    return run(load(kernel(body), ["k"]), launch, RunOptions(schedule=schedule), out=out)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.label)
def test_uniform_operands_are_silent(schedule: Schedule) -> None:
    seen = check("", schedule)
    assert (seen.fault, seen.hazards) == (None, ())


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.label)
@pytest.mark.parametrize(("change", "what"), [
    ("setp.lt.u32 %p5, %r5, 16;\n", "has another scale-d in lanes 16 to 31 of CTA (0,0,0) warp"),
    ("setp.eq.u32 %p6, %r5, 7;\n@%p6 add.u64 %rd10, %rd10, 64;\n", "has another descriptor of A in lane 7 of"),
    ("setp.ge.u32 %p6, %r5, 30;\n@%p6 add.u64 %rd11, %rd11, 64;\n", "has another descriptor of B in lanes 30 and 31"),
])  # fmt: skip
def test_lanes_that_differ_are_named(change: str, what: str, schedule: Schedule) -> None:
    (hazard,) = check(change, schedule).hazards
    assert (hazard.severity, hazard.kind) == ("rule", "divergent_operand")
    assert what in hazard.message
    assert hazard.occurrences == 4


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.label)
def test_warps_of_a_warpgroup_that_differ_are_named(schedule: Schedule) -> None:
    (hazard,) = check("setp.ge.u32 %p6, %r1, 96;\n@%p6 add.u64 %rd11, %rd11, 64;\n", schedule).hazards
    assert hazard.kind == "divergent_operand"
    assert "has another descriptor of B in CTA (0,0,0) warp" in hazard.message
    assert hazard.message.endswith("of its warpgroup.")


@pytest.mark.parametrize(("instruction", "what"), [
    ("setp.lt.u32 %p6, %r5, 3;\nselp.u32 %r6, 1, 2, %p6;\nbar.sync %r6, 32;", "barrier in lanes 3 to 31"),
    ("setp.ne.u32 %p6, %r5, 3;\nselp.u32 %r6, 32, 64, %p6;\nbar.arrive 1, %r6;", "thread count in lane 3"),
])  # fmt: skip
def test_operands_of_a_barrier(instruction: str, what: str) -> None:
    body = THREAD_ADDRESS + "and.b32 %r5, %r1, 31;\n" + instruction + "\nret;"
    seen = run(load(kernel(body), ["k"]), Launch("k", ["out"], block=(64, 1, 1)), out=np.zeros(64, np.uint32))
    assert {hazard.kind for hazard in seen.hazards} == {"divergent_operand"}
    assert f"has another {what} of" in seen.hazards[0].message


def test_the_columns_of_tensor_memory() -> None:
    body = """
.shared .align 16 .b8 place[16];
mov.u32 %r2, place;
mov.u32 %r1, %tid.x;
setp.lt.u32 %p1, %r1, 8;
selp.u32 %r3, 32, 64, %p1;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2], %r3;
ld.shared.u32 %r4, [%r2];
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r4, 32;
ret;"""
    seen = run(load(kernel(body, target="sm_100a"), ["k"]), Launch("k", ["out"]), out=np.zeros(1, np.uint32))
    (hazard,) = seen.hazards
    assert "has another number of columns in lanes 8 to 31 of" in hazard.message
