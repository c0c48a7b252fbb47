"""Warps, CTAs and clusters: divergence, polling, barriers, semaphores between CTAs, and deadlocks."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import THREAD_ADDRESS, kernel

from ptxbench.core import FaultKind, RunOptions, Schedule
from ptxbench.simulator import load

ORDERS = [Schedule(), Schedule(reverse=True), Schedule(seed=5)]
in_every_order = pytest.mark.parametrize("schedule", ORDERS, ids=lambda schedule: schedule.label)


def run_words(text: str, count: int, schedule: Schedule | None = None, **launch):
    out = np.zeros(count, np.uint32)
    options = RunOptions(schedule=schedule or Schedule())
    seen = run(load(text, ["k"]), Launch("k", ["out"], **launch), options, out=out)
    return seen, out


@in_every_order
def test_lanes_that_diverge_meet_again(schedule):
    # Lane l loops l times; then all lanes must be together for the aligned barrier and the vote.
    body = THREAD_ADDRESS + """
mov.u32 %r2, 0;
LOOP:
setp.ge.u32 %p1, %r2, %r1;
@%p1 bra DONE;
add.u32 %r2, %r2, 1;
bra LOOP;
DONE:
bar.warp.sync 0xffffffff;
vote.sync.ballot.b32 %r3, 1, 0xffffffff;
and.b32 %r3, %r3, 0xffff0000;
add.u32 %r2, %r2, %r3;
st.global.u32 [%rd21], %r2;
ret;"""
    seen, out = run_words(kernel(body), 32, schedule)
    assert seen.fault is None
    assert np.array_equal(out, np.arange(32) + 0xFFFF0000)


@in_every_order
def test_a_lane_may_wait_for_another_lane_of_its_warp(schedule):
    # Lane 0 polls a flag that lane 1 of the same warp sets behind it: independent thread scheduling.
    body = THREAD_ADDRESS + """
setp.ne.u32 %p1, %r1, 0;
@%p1 bra OTHERS;
POLL:
ld.global.acquire.gpu.u32 %r2, [%rd1+128];
setp.eq.u32 %p2, %r2, 0;
@%p2 bra POLL;
st.global.u32 [%rd1], %r2;
ret;
OTHERS:
setp.ne.u32 %p1, %r1, 1;
@%p1 ret;
st.global.release.gpu.u32 [%rd1+128], 9;
ret;"""
    seen, out = run_words(kernel(body), 64, schedule)
    assert seen.fault is None
    assert out[0] == 9


@in_every_order
def test_brx_sends_every_lane_to_its_target(schedule):
    body = THREAD_ADDRESS + """
and.b32 %r2, %r1, 3;
targets: .branchtargets A, B, C, D;
brx.idx %r2, targets;
A: mov.u32 %r3, 10; bra END;
B: mov.u32 %r3, 11; bra END;
C: mov.u32 %r3, 12; bra END;
D: mov.u32 %r3, 13;
END:
st.global.u32 [%rd21], %r3;
ret;"""
    _, out = run_words(kernel(body), 32, schedule)
    assert np.array_equal(out, 10 + np.arange(32) % 4)


@in_every_order
def test_a_barrier_waits_for_the_warps_that_have_not_exited(schedule):
    body = THREAD_ADDRESS + """
.shared .align 4 .b8 s[512];
setp.ge.u32 %p1, %r1, 96;
@%p1 ret;
mov.u32 %r2, s;
shl.b32 %r3, %r1, 2;
add.u32 %r4, %r2, %r3;
st.shared.u32 [%r4], %r1;
bar.sync 0;
xor.b32 %r3, %r3, 128;
setp.ge.u32 %p2, %r1, 64;
@%p2 ret;
add.u32 %r4, %r2, %r3;
ld.shared.u32 %r5, [%r4];
st.global.u32 [%rd21], %r5;
ret;"""
    seen, out = run_words(kernel(body), 64, schedule, block=(128, 1, 1))
    assert seen.fault is None
    assert seen.hazards == ()
    assert np.array_equal(out, np.arange(64) ^ 32)


@in_every_order
def test_named_barriers_hand_over_between_producers_and_consumers(schedule):
    body = THREAD_ADDRESS + """
.shared .align 4 .b8 s[128];
mov.u32 %r2, s;
and.b32 %r3, %r1, 31;
shl.b32 %r4, %r3, 2;
add.u32 %r4, %r2, %r4;
setp.ge.u32 %p1, %r1, 32;
@%p1 bra CONSUMER;
st.shared.u32 [%r4], %r1;
bar.arrive 3, 64;
ret;
CONSUMER:
bar.sync 3, 64;
ld.shared.u32 %r5, [%r4];
st.global.u32 [%rd21+-128], %r5;
ret;"""
    seen, out = run_words(kernel(body), 32, schedule, block=(64, 1, 1))
    assert (seen.fault, seen.hazards) == (None, ())
    assert np.array_equal(out, np.arange(32))


@in_every_order
def test_barrier_reductions(schedule):
    body = THREAD_ADDRESS + """
setp.lt.u32 %p1, %r1, 40;
bar.red.popc.u32 %r2, 1, %p1;
bar.red.and.pred %p2, 1, %p1;
bar.red.or.pred %p3, 1, %p1;
selp.u32 %r3, 1000, 0, %p2;
selp.u32 %r4, 2000, 0, %p3;
add.u32 %r2, %r2, %r3;
add.u32 %r2, %r2, %r4;
st.global.u32 [%rd21], %r2;
ret;"""
    _, out = run_words(kernel(body), 64, schedule, block=(64, 1, 1))
    assert np.array_equal(out, np.full(64, 2040))


SEMAPHORE = """
mov.u32 %r1, %ctaid.x;
mul.wide.u32 %rd20, %r1, 4;
add.u64 %rd21, %rd1, %rd20;
POLL:
ld.global.acquire.gpu.u32 %r2, [%rd21];
setp.eq.u32 %p1, %r2, 0;
@%p1 bra POLL;
add.u32 %r3, %r2, 1;
st.global.release.gpu.u32 [%rd21+{step}], %r3;
ret;"""


@in_every_order
def test_a_cta_may_wait_for_a_later_one(schedule):
    # CTA i waits for CTA i+1; the last is started by the host's value. All must be resident at once.
    out = np.zeros(101, np.uint32)
    out[99] = 1
    text = kernel(SEMAPHORE.format(step=-4).replace("add.u64 %rd21", "add.u64 %rd20, %rd20, 4;\nadd.u64 %rd21"))
    launch = Launch("k", ["out"], grid=(99, 1, 1))
    seen = run(load(text, ["k"]), launch, RunOptions(schedule=schedule), out=out)
    assert seen.fault is None
    assert out[0] == 100


def test_more_ctas_than_fit_cannot_wait_for_each_other():
    # One CTA an SM (shared memory): 132 are resident, so the 133rd never starts.
    out = np.zeros(135, np.uint32)
    out[133] = 1
    text = kernel(SEMAPHORE.format(step=-4).replace("add.u64 %rd21", "add.u64 %rd20, %rd20, 4;\nadd.u64 %rd21"))
    seen = run(load(text, ["k"]), Launch("k", ["out"], grid=(133, 1, 1), shared=200_000), out=out)
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.DEADLOCK
    assert "only 132 of 133 clusters have started" in seen.fault.message
    assert "waits for a value that nobody will change [ld.global.acquire.gpu.u32]" in seen.fault.detail[0]
    assert seen.warp_instructions < 2_000_000


@in_every_order
def test_a_grid_wide_barrier(schedule):
    body = """
mov.u32 %r1, %ctaid.x;
mul.wide.u32 %rd20, %r1, 4;
add.u64 %rd21, %rd1, %rd20;
atom.release.gpu.global.add.u32 %r2, [%rd1+400], 1;
POLL:
ld.global.acquire.gpu.u32 %r3, [%rd1+400];
setp.lt.u32 %p1, %r3, 64;
@%p1 bra POLL;
st.global.u32 [%rd21], %r3;
ret;"""
    seen, out = run_words(kernel(body), 128, schedule, grid=(64, 1, 1), block=(1, 1, 1))
    assert seen.fault is None
    assert np.array_equal(out[:64], np.full(64, 64))


def test_a_spin_lock_that_is_never_released_is_a_deadlock():
    body = """
LOCK:
atom.global.cas.b32 %r2, [%rd1], 1, 2;
setp.ne.u32 %p1, %r2, 1;
@%p1 bra LOCK;
ret;"""
    seen, _ = run_words(kernel(body), 4)
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.DEADLOCK
    assert seen.warp_instructions < 1_000_000


def test_a_bounded_wait_ends_in_its_own_trap():
    body = """
.shared .align 8 .b64 bar;
mov.u32 %r2, bar;
mbarrier.init.shared.b64 [%r2], 1;
mov.u32 %r3, 0;
WAIT:
mbarrier.try_wait.parity.shared.b64 %p1, [%r2], 0;
@%p1 bra DONE;
add.u32 %r3, %r3, 1;
setp.lt.u32 %p2, %r3, 1000;
@%p2 bra WAIT;
trap;
DONE:
ret;"""
    seen, _ = run_words(kernel(body), 4, block=(1, 1, 1))
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.TRAP


def test_a_long_loop_without_stores_is_no_deadlock():
    body = """
mov.u32 %r2, 0;
LOOP:
add.u32 %r2, %r2, 1;
setp.lt.u32 %p1, %r2, 200000;
@%p1 bra LOOP;
st.global.u32 [%rd1], %r2;
ret;"""
    seen, out = run_words(kernel(body), 4)
    assert (seen.fault, out[0]) == (None, 200_000)


def test_divergence_at_an_aligned_barrier_is_reported():
    body = """
mov.u32 %r1, %tid.x;
setp.eq.u32 %p1, %r1, 0;
@%p1 bra SKIP;
bar.sync 0;
ret;
SKIP:
bar.sync 1;
ret;"""
    seen, _ = run_words(kernel(body), 4)
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.DEADLOCK
    expected = "(lanes fffffffe) waits for lanes 00000001 of the warp, which are elsewhere [bar.sync]"
    assert any(expected in line for line in seen.fault.detail)


def test_a_barrier_with_too_few_threads_is_a_deadlock_that_counts_them():
    seen, _ = run_words(kernel("bar.sync 2, 64;\nret;"), 4)
    assert seen.fault is None or seen.fault.kind is FaultKind.ILLEGAL_INSTRUCTION
    body = "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 32;\n@%p1 bra END;\nbar.sync 2, 64;\nEND:\nret;"
    seen, _ = run_words(kernel(body), 4, block=(64, 1, 1))
    assert seen.fault is not None
    assert "waits at barrier 2, which has 32 of 64 threads" in seen.fault.detail[0]


CLUSTER_EXCHANGE = """
.shared .align 4 .b8 s[128];
mov.u32 %r1, %tid.x;
mov.u32 %r2, %cluster_ctarank;
mov.u32 %r3, s;
shl.b32 %r4, %r1, 2;
add.u32 %r5, %r3, %r4;
xor.b32 %r6, %r2, 1;
mapa.shared::cluster.u32 %r7, %r5, %r6;
shl.b32 %r8, %r2, 8;
or.b32 %r8, %r8, %r1;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
st.shared::cluster.u32 [%r7], %r8;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
ld.shared.u32 %r9, [%r5];
mov.u32 %r10, %ctaid.x;
mad.lo.u32 %r10, %r10, 32, %r1;
mul.wide.u32 %rd20, %r10, 4;
add.u64 %rd21, %rd1, %rd20;
st.global.u32 [%rd21], %r9;
ret;"""


@in_every_order
def test_ctas_of_a_cluster_exchange_shared_memory(schedule):
    seen, out = run_words(kernel(CLUSTER_EXCHANGE), 128, schedule, grid=(4, 1, 1), cluster=(2, 1, 1))
    assert (seen.fault, seen.hazards) == (None, ())
    rank = np.arange(128) // 32 % 2
    assert np.array_equal(out, (rank ^ 1) * 256 + np.arange(128) % 32)


def test_shared_cta_access_to_another_cta_faults():
    text = kernel(CLUSTER_EXCHANGE.replace("st.shared::cluster", "st.shared"))
    seen, _ = run_words(text, 128, grid=(4, 1, 1), cluster=(2, 1, 1))
    assert seen.fault is not None
    assert "shared::cluster" in seen.fault.advice


def test_memory_of_an_exited_cta_cannot_be_reached():
    text = kernel(CLUSTER_EXCHANGE.replace("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;", """
setp.eq.u32 %p1, %r2, 1;
@%p1 ret;
mov.u32 %r20, 0;
LOOP:
add.u32 %r20, %r20, 1;
setp.lt.u32 %p2, %r20, 5000;
@%p2 bra LOOP;"""))  # fmt: skip
    seen, _ = run_words(text, 128, grid=(2, 1, 1), cluster=(2, 1, 1))
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.ILLEGAL_ADDRESS
    assert "has exited" in seen.fault.message


def test_a_cluster_barrier_that_one_cta_misses():
    body = """
mov.u32 %r2, %cluster_ctarank;
setp.eq.u32 %p1, %r2, 1;
@%p1 bra LOOP;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
ret;
LOOP:
ld.global.relaxed.gpu.u32 %r3, [%rd1];
bra LOOP;"""
    seen, _ = run_words(kernel(body), 4, grid=(2, 1, 1), cluster=(2, 1, 1))
    assert seen.fault is not None
    assert any("at the cluster barrier, where 1 of 2 warps have arrived" in line for line in seen.fault.detail)


REGISTERS = """
mov.u32 %r1, %tid.x;
setp.ge.u32 %p1, %r1, 32;
@%p1 bra SECOND;
setmaxnreg.dec.sync.aligned.u32 {kept};
ret;
SECOND:
setmaxnreg.inc.sync.aligned.u32 {wanted};
ret;"""


def run_registers(kept: int, wanted: int, registers: int = 128):
    program = load(kernel(REGISTERS.format(kept=kept, wanted=wanted)), ["k"])
    launch = Launch("k", ["out"], block=(64, 1, 1))
    return run(program, launch, registers=registers, moves_registers=True, out=np.zeros(1, np.uint32)).fault


def test_registers_move_from_one_warp_to_another():
    assert run_registers(40, 216) is None


def test_registers_are_allocated_in_units_of_eight():
    assert run_registers(40, 216, registers=123) is None


def test_registers_that_nobody_gives_back():
    fault = run_registers(64, 216)
    assert fault is not None
    assert fault.kind is FaultKind.DEADLOCK
    assert "waits for 88 more registers a thread, of which the other warps have given back 64" in fault.detail[0]


def test_registers_can_only_be_increased_upwards():
    fault = run_registers(40, 64)
    assert fault is not None
    assert "asks for 64 registers a thread while the warp has 128" in fault.message


def test_special_registers_of_a_cluster_launch():
    names = ("ctaid.x", "nctaid.x", "clusterid.x", "nclusterid.x", "cluster_ctaid.x", "cluster_nctaid.x",
             "cluster_ctarank", "cluster_nctarank", "ntid.x", "warpid")  # fmt: skip
    reads = "\n".join(
        f"mov.u32 %r{30 + i}, %{name};\nst.global.u32 [%rd21+{4 * i}], %r{30 + i};" for i, name in enumerate(names)
    )
    body = f"mov.u32 %r1, %ctaid.x;\nmul.wide.u32 %rd20, %r1, 64;\nadd.u64 %rd21, %rd1, %rd20;\n{reads}\nret;"
    _, out = run_words(kernel(body), 16 * 6, grid=(6, 1, 1), cluster=(2, 1, 1))
    for cta, row in enumerate(out.reshape(6, 16)):
        assert list(row[:10]) == [cta, 6, cta // 2, 3, cta % 2, 2, cta % 2, 2, 32, 0]
