"""Relaxed arrivals hand on what the warp had done at its last fence (fence, then barrier.cluster.arrive.relaxed)."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import kernel

from ptxbench.core import RunOptions, Schedule
from ptxbench.simulator import load

# Each CTA of two initialises an mbarrier, and the other's second warp arrives on it.
PROLOGUE = """
.shared .align 8 .b64 bar;
mov.u32 %r1, %tid.x;
mov.u32 %r2, bar;
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
{fence}
barrier.cluster.arrive{order}.aligned;
barrier.cluster.wait.acquire.aligned;
mov.u32 %r3, %cluster_ctarank;
xor.b32 %r3, %r3, 1;
mapa.shared::cluster.u32 %r4, %r2, %r3;
setp.eq.u32 %p2, %r1, 32;
@%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], 0;
@!%p3 bra WAIT;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
ret;"""


def kinds(fence: str, order: str, reverse: bool) -> set[str]:
    launch = Launch("k", ["out"], grid=(2, 1, 1), block=(64, 1, 1), cluster=(2, 1, 1))
    options = RunOptions(races=True, schedule=Schedule(reverse=reverse))
    program = load(kernel(PROLOGUE.format(fence=fence, order=order)), ["k"])
    seen = run(program, launch, options, out=np.zeros(1, np.uint32))
    assert seen.fault is None
    return {hazard.kind for hazard in seen.hazards}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("fence", "order"), [
    ("@%p1 fence.mbarrier_init.release.cluster;", ".relaxed"),
    ("fence.acq_rel.cluster;", ".relaxed"),
    ("", ".release"),
])  # fmt: skip
def test_a_fence_before_a_relaxed_arrival_is_enough(fence: str, order: str, reverse: bool) -> None:
    assert kinds(fence, order, reverse) == set()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_relaxed_arrival_alone_is_not(reverse: bool) -> None:
    assert "shared_memory_race" in kinds("", ".relaxed", reverse)
