"""What other CTAs do to shared memory before its CTA ends, and copies over what ordinary stores have left there."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import kernel

from ptxbench.core import Observation, RunOptions, Schedule
from ptxbench.simulator import load

SCHEDULES = [Schedule(copies=how, reverse=reverse) for how in ("eager", "late") for reverse in (False, True)]
under_schedules = pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.label)

# CTA 1 of two does something to the shared memory of CTA 0, then both end.
CLUSTER = """
.shared .align 8 .b64 bar;
.shared .align 8 .b64 word;
mov.u32 %r1, %tid.x;
mov.u32 %r2, bar;
mov.u32 %r3, word;
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
@%p1 fence.mbarrier_init.release.cluster;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
mov.u32 %r4, %cluster_ctarank;
setp.eq.u32 %p2, %r4, 1;
and.pred %p2, %p2, %p1;
mov.u32 %r8, 0;
mapa.shared::cluster.u32 %r5, %r2, %r8;
mapa.shared::cluster.u32 %r6, %r3, %r8;
"""
TOUCHES = {
    "an arrival": "@%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];\n",
    "a store": "@%p2 st.shared::cluster.u32 [%r6], %r1;\n",
}
RELAXED = "barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
ENDS = {
    "a barrier": (RELAXED.replace("relaxed", "release"), False),
    "a relaxed barrier": (RELAXED, True),
    "a relaxed barrier behind a fence": ("fence.acq_rel.cluster;\n" + RELAXED, False),
}
# CTA 0 waits for the arrival of CTA 1.
AWAIT = """
setp.eq.u32 %p4, %r4, 1;
@%p4 bra END;
WAIT:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r2], 0;
@!%p3 bra WAIT;
END:
"""


def ran(body: str, schedule: Schedule, *, ctas: int = 1, races: bool = True) -> Observation:
    launch = Launch("k", ["in_words"], grid=(ctas, 1, 1), block=(64, 1, 1), cluster=(ctas, 1, 1))
    options = RunOptions(races=races, schedule=schedule)
    seen = run(load(kernel(body + "ret;"), ["k"]), launch, options, in_words=np.zeros(64, np.uint32))
    assert seen.fault is None
    return seen


def kinds(seen: Observation) -> set[str]:
    return {hazard.kind for hazard in seen.hazards}


@under_schedules
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("touch", TOUCHES)
def test_what_a_peer_does_lies_before_the_end_of_a_cta(touch: str, end: str, schedule: Schedule) -> None:
    text, found = ENDS[end]
    seen = ran(CLUSTER + TOUCHES[touch] + text, schedule, ctas=2)
    assert kinds(seen) == ({"shared_memory_race"} if found else set())
    assert all("before the end of that CTA" in hazard.message for hazard in seen.hazards)
    assert kinds(ran(CLUSTER + TOUCHES[touch] + text, schedule, ctas=2, races=False)) == set()


@under_schedules
def test_a_cta_that_has_waited_for_its_peer_may_end(schedule: Schedule) -> None:
    assert kinds(ran(CLUSTER + TOUCHES["an arrival"] + AWAIT, schedule, ctas=2)) == set()


# A bulk copy overwrites what thread 40 has stored.
OVERWRITE = """
.shared .align 8 .b64 bar;
.shared .align 16 .b8 words[256];
mov.u32 %r1, %tid.x;
mov.u32 %r2, bar;
mov.u32 %r3, words;
setp.eq.u32 %p1, %r1, 0;
setp.eq.u32 %p2, %r1, 40;
@%p1 mbarrier.init.shared::cta.b64 [%r2], 1;
@%p1 fence.mbarrier_init.release.cluster;
{store}
{fence}
bar.sync 0;
{late}
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 128;
@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 128, [%r2];
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2], 0;
@!%p3 bra WAIT;
"""
STORE = "@%p2 st.shared.u32 [%r3+16], %r1;"
BARRIER = "@%p2 mbarrier.init.shared::cta.b64 [%r3+16], 1;\n@%p2 mbarrier.inval.shared::cta.b64 [%r3+16];"


@under_schedules
@pytest.mark.parametrize(
    ("store", "fence", "late", "found"),
    [
        (STORE, "", "", True),
        (STORE, "@%p2 fence.proxy.async;", "", False),
        (STORE, "", "@%p1 fence.proxy.async;", False),
        (STORE, "@%p2 fence.proxy.async.global;", "", True),
        (STORE.replace("+16", "+128"), "", "", False),
        (BARRIER, "", "", True),
        (BARRIER, "@%p2 fence.proxy.async;", "", False),
    ],
    ids=["no fence", "fence", "fence of the issuer", "other fence", "elsewhere", "mbarrier", "mbarrier and fence"],
)
def test_a_copy_over_ordinary_stores_needs_a_fence(
    store: str, fence: str, late: str, found: bool, schedule: Schedule
) -> None:
    body = OVERWRITE.format(store=store, fence=fence, late=late)
    assert kinds(ran(body, schedule)) == ({"missing_async_proxy_fence"} if found else set())
    assert kinds(ran(body, schedule, races=False)) == set()
