"""The initialisation of an mbarrier has to be made visible before the synchronisation that lets others use it."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import kernel

from ptxbench.core import RunOptions, Schedule
from ptxbench.simulator import load

# Thread 0 initialises; thread 32 issues a bulk copy that completes on the mbarrier. `late` comes too late for it.
BODY = """
.shared .align 128 .b8 tile[256];
.shared .align 8 .b64 bar;
mov.u32 %r1, %tid.x;
mov.u32 %r2, tile;
mov.u32 %r3, bar;
setp.eq.u32 %p1, %r1, 0;
setp.eq.u32 %p2, %r1, 32;
{before}
@%p1 mbarrier.init.shared::cta.b64 [%r3], 1;
{early}
bar.sync 0;
@%p1 {late}
@%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 128;
@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 128, [%r3];
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0;
@!%p3 bra WAIT;
ret;"""
FENCES = ("fence.proxy.async;", "fence.mbarrier_init.release.cluster;")


def kinds(reverse: bool, *, before: str = "", early: str = "", late: str = "add.u32 %r9, %r1, 1;") -> set[str]:
    program = load(kernel(BODY.format(before=before, early=early, late=late)), ["k"])
    options = RunOptions(races=True, schedule=Schedule(reverse=reverse))
    seen = run(program, Launch("k", ["out"], block=(64, 1, 1)), options, out=np.zeros(64, np.uint32))
    assert seen.fault is None
    return {hazard.kind for hazard in seen.hazards}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("fence", FENCES)
def test_a_fence_between_initialisation_and_barrier_is_enough(fence: str, reverse: bool) -> None:
    assert kinds(reverse, early=fence) == set()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("fence", FENCES)
@pytest.mark.parametrize("where", ["before", "late"])
def test_a_fence_elsewhere_is_not(fence: str, where: str, reverse: bool) -> None:
    assert kinds(reverse, **{where: fence}) == {"missing_mbarrier_init_fence"}
