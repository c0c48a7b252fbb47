"""What the orders of a schedule show that others hide."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import kernel

from ptxbench.core import Observation, RunOptions, Schedule
from ptxbench.simulator import load


def run_words(body: str, count: int, schedule: Schedule, **options) -> tuple[Observation, np.ndarray]:
    out = np.zeros(count, np.uint32)
    launch = Launch("k", ["in_words", "out"], **options)
    seen = run(load(kernel(body, pointers=2), ["k"]), launch, RunOptions(schedule=schedule),
               in_words=np.arange(1, 65, dtype=np.uint32), out=out)  # fmt: skip
    assert seen.fault is None
    return seen, out


# Two copies in flight; the thread waits for the second and reads what the first brings.
TWO_COPIES = """
.shared .align 16 .b8 data[256];
.shared .align 8 .b64 bars[2];
mov.u32 %r2, data;
mov.u32 %r3, bars;
mbarrier.init.shared.b64 [%r3], 1;
mbarrier.init.shared.b64 [%r3+8], 1;
mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 128;
mbarrier.arrive.expect_tx.shared.b64 _, [%r3+8], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 128, [%r3];
add.u64 %rd5, %rd1, 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2+128], [%rd5], 128, [%r3+8];
{waits}
ld.shared.u32 %r4, [%r2];
st.global.u32 [%rd2], %r4;
ret;"""
WAIT = """
WAIT{0}:
mbarrier.try_wait.parity.shared.b64 %p1, [%r3+{0}], 0;
@!%p1 bra WAIT{0};"""


@pytest.mark.parametrize("reverse", [False, True])
def test_late_copies_arrive_in_both_orders(reverse):
    schedule = Schedule(copies="late", reverse=reverse)
    right = TWO_COPIES.format(waits=WAIT.format(8) + WAIT.format(0))
    seen, out = run_words(right, 1, schedule, block=(1, 1, 1))
    assert (seen.hazards, out[0]) == ((), 1)
    seen, out = run_words(TWO_COPIES.format(waits=WAIT.format(8)), 1, schedule, block=(1, 1, 1))
    kinds = {hazard.kind for hazard in seen.hazards if hazard.severity == "race"}
    assert kinds == ({"uninitialised_shared_read"} if reverse else set())


# Warp 1 tells warp 0 that the word may be overwritten, by one of several signals, and reads it afterwards.
EARLY_SIGNAL = """
.shared .align 8 .b64 bar;
.shared .align 4 .b32 word;
mov.u32 %r1, %tid.x;
mov.u32 %r2, bar;
mov.u32 %r3, word;
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared.b64 [%r2], 1;
@%p1 st.shared.u32 [%r3], 1;
bar.sync 0;
setp.ge.u32 %p2, %r1, 32;
@%p2 bra READER;
{wait}
st.shared.u32 [%r3], 2;
ret;
READER:
setp.eq.u32 %p3, %r1, 32;
{signal}
ld.shared.u32 %r4, [%r3];
st.global.u32 [%rd2], %r4;
ret;"""
SIGNALS = {
    "mbarrier": ("@%p3 mbarrier.arrive.shared.b64 _, [%r2];",
                 "W:\nmbarrier.try_wait.parity.shared.b64 %p4, [%r2], 0;\n@!%p4 bra W;"),
    "named barrier": ("bar.arrive 1, 64;", "bar.sync 1, 64;"),
    "cluster barrier": ("barrier.cluster.arrive.aligned;",
                        "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;"),
    "flag": ("@%p3 red.global.add.u32 [%rd2+4], 1;",
             "W:\nld.global.acquire.gpu.u32 %r5, [%rd2+4];\nsetp.eq.u32 %p4, %r5, 0;\n@%p4 bra W;"),
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNALS)
def test_a_warp_that_signals_too_early_is_overtaken_in_a_reversed_schedule(name):
    signal, wait = SIGNALS[name]
    body = EARLY_SIGNAL.format(signal=signal, wait=wait)
    values = {
        reverse: run_words(body, 2, Schedule(reverse=reverse), block=(64, 1, 1))[1][0] for reverse in (False, True)
    }
    assert values == {False: 1, True: 2}


# Warp 1 signals and then overwrites the word without an answer; warp 0 reads it after the signal.
RUN_AHEAD = """
.shared .align 4 .b32 word;
mov.u32 %r1, %tid.x;
mov.u32 %r3, word;
setp.ge.u32 %p2, %r1, 32;
@%p2 bra WRITER;
bar.sync 1, 64;
ld.shared.u32 %r4, [%r3];
st.global.u32 [%rd2], %r4;
ret;
WRITER:
st.shared.u32 [%r3], 1;
bar.arrive 1, 64;
st.shared.u32 [%r3], 2;
ret;"""


def test_a_warp_that_does_not_wait_for_an_answer_runs_ahead_in_a_forward_schedule():
    values = {
        reverse: run_words(RUN_AHEAD, 1, Schedule(reverse=reverse), block=(64, 1, 1))[1][0]
        for reverse in (False, True)
    }
    assert values == {False: 2, True: 1}
