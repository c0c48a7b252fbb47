"""clusterlaunchcontrol: running clusters take over the work of those that have not been launched."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, load, run
from simulator_text import kernel

from ptxbench.core import RunOptions, Schedule

# Every CTA counts in out[CTA] the work it does for that CTA, and in the last word that it was launched.
BODY = """
.shared .align 16 .b8 answer[16];
.shared .align 8 .b64 bar;
.reg .b128 %q;
mov.u32 %r1, %tid.x;
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, answer;
mov.u32 %r4, bar;
mov.u32 %r5, 0;
mov.u32 %r6, 1;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra LOOP;
mbarrier.init.shared.b64 [%r4], 1;
red.global.add.u32 [%rd1+64], 1;
LOOP:
bar.warp.sync -1;
@%p1 bra WAIT;
mul.wide.u32 %rd2, %r2, 4;
add.u64 %rd2, %rd2, %rd1;
red.global.add.u32 [%rd2], 1;
mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 16;
clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r3], [%r4];
WAIT:
mbarrier.try_wait.parity.shared.b64 %p2, [%r4], %r5;
@!%p2 bra WAIT;
xor.b32 %r5, %r5, 1;
ld.shared.b128 %q, [%r3];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p3, %q;
@!%p3 ret;
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r2, %q;
clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r10, %r11, %r12, _}, %q;
setp.ne.u32 %p4, %r10, %r2;
@%p4 trap;
bra LOOP;"""


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(copies="late", products="late", reverse=True)], ids=str)
def test_every_piece_of_work_is_done_once(schedule: Schedule) -> None:
    out = np.zeros(17, np.uint32)
    program = load(kernel(BODY, target="sm_100a"), ["k"])
    seen = run(program, Launch("k", ["out"], grid=(16, 1, 1)), RunOptions(schedule=schedule), out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    assert (out[:16] == 1).all()
    assert 1 <= out[16] < 16
