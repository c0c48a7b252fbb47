"""Tensor memory: fences and waits that hand cells from one warp to another, and an address read too soon."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_tensor import BASE, FINISH, SETUP, copy_in, descriptor
from simulator_text import kernel
from simulator_tiles import k_major, random_matrix

from ptxbench.core import Observation, RunOptions, Schedule
from ptxbench.simulator import load

SCHEDULES = [Schedule(products=how, reverse=reverse) for how in ("eager", "late") for reverse in (False, True)]
under_schedules = pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.label)
FENCED = SETUP.replace("bar.sync 0;", "@!%p2 fence.mbarrier_init.release.cluster;\nbar.sync 0;")
VECTOR = "{%r40, %r41, %r42, %r43, %r44, %r45, %r46, %r47}"
BITS = 1 << 4 | 1 << 7 | 1 << 10 | 8 << 17 | 8 << 24  # fp32 accumulators, bf16, N=64, M=128


def run_text(
    body: str, schedule: Schedule, *, races: bool, threads: int, image: np.ndarray | None = None
) -> Observation:
    given = np.zeros(16, np.uint8) if image is None else image
    out = np.zeros(threads, np.uint32)
    launch = Launch("k", ["in_image", "out"], block=(threads, 1, 1), shared=64 * 1024)
    options = RunOptions(schedule=schedule, races=races)
    return run(load(kernel(body, pointers=2, target="sm_100a"), ["k"]), launch, options, in_image=given, out=out)


def kinds(seen: Observation) -> set[str]:
    return {hazard.kind for hazard in seen.hazards}


HAND_OVER = {
    "wait": "tcgen05.wait::st.sync.aligned;",
    "before": "tcgen05.fence::before_thread_sync;",
    "barrier": "bar.sync 1;",
    "after": "tcgen05.fence::after_thread_sync;",
}


def hand_over(*, without: str = "") -> str:
    """Warps 0 to 3 store to tensor memory, warps 4 to 7 load the same cells."""
    step = {name: "" if name == without else text for name, text in HAND_OVER.items()}
    return FENCED + f"""
setp.lt.u32 %p6, %r1, 128;
mov.u32 %r40, 1; mov.u32 %r41, 1; mov.u32 %r42, 1; mov.u32 %r43, 1;
mov.u32 %r44, 1; mov.u32 %r45, 1; mov.u32 %r46, 1; mov.u32 %r47, 1;
@!%p6 bra TAKE;
tcgen05.st.sync.aligned.32x32b.x8.b32 [%r9], {VECTOR};
{step["wait"]}
{step["before"]}
{step["barrier"]}
bra END;
TAKE:
{step["barrier"]}
{step["after"]}
tcgen05.ld.sync.aligned.32x32b.x8.b32 {VECTOR}, [%r9];
tcgen05.wait::ld.sync.aligned;
END:
""" + FINISH


@under_schedules
def test_a_hand_over_that_is_right_is_silent(schedule):
    seen = run_text(hand_over(), schedule, races=True, threads=256)
    assert seen.fault is None
    assert seen.hazards == ()


@under_schedules
@pytest.mark.parametrize(
    ("without", "kind"), [("before", "missing_tcgen05_fence_before"), ("after", "missing_tcgen05_fence_after")]
)
def test_fences_are_missed_by_the_strict_check(without, kind, schedule):
    assert kinds(run_text(hand_over(without=without), schedule, races=False, threads=256)) == set()
    assert kind in kinds(run_text(hand_over(without=without), schedule, races=True, threads=256))


@under_schedules
def test_a_store_that_is_not_waited_for(schedule):
    seen = run_text(hand_over(without="wait"), schedule, races=True, threads=256)
    assert {"tensor_memory_race", "unwaited_tensor_store"} <= kinds(seen)


@under_schedules
def test_cells_read_without_a_barrier(schedule):
    assert "tensor_memory_race" in kinds(run_text(hand_over(without="barrier"), schedule, races=True, threads=256))


def hand_back(use: str, earlier: str = "") -> str:
    """Warps 0 to 3 load cells and do not wait; warps 4 to 7 then store to the same cells."""
    return FENCED + f"""
setp.lt.u32 %p6, %r1, 128;
mov.u32 %r40, 1;
@!%p6 bra OVERWRITE;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r9], {{%r40}};
tcgen05.wait::st.sync.aligned;
{earlier}
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r41}}, [%r9];
{use}
tcgen05.fence::before_thread_sync;
bar.sync 1;
bra END;
OVERWRITE:
bar.sync 1;
tcgen05.fence::after_thread_sync;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r9], {{%r40}};
tcgen05.wait::st.sync.aligned;
END:
""" + FINISH


@under_schedules
@pytest.mark.parametrize(
    ("use", "found"),
    [
        ("tcgen05.wait::ld.sync.aligned;", set()),
        ("add.u32 %r42, %r41, 1;", {"unwaited_tensor_load"}),  # so the load has completed
        ("mov.u32 %r42, %r41;", {"tensor_memory_race"}),
        ("mov.u32 %r42, %r41; add.u32 %r43, %r42, 1;", {"unwaited_tensor_load"}),
        ("", {"tensor_memory_race"}),
    ],
    ids=["waited for", "used", "moved", "moved and used", "left alone"],
)
def test_cells_that_are_overwritten_after_a_load(use, found, schedule):
    assert kinds(run_text(hand_back(use), schedule, races=True, threads=256)) == found


@under_schedules
def test_a_load_is_complete_only_when_those_before_it_are(schedule):
    earlier = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r50}, [%r9];"
    seen = run_text(hand_back("add.u32 %r42, %r41, 1;", earlier), schedule, races=True, threads=256)
    assert kinds(seen) == {"unwaited_tensor_load", "tensor_memory_race"}


def product(*, wait: bool = True, fence: bool = True, given_back: bool = True) -> str:
    """Thread 0 multiplies onto cells twice; all warps load the sums after each product."""
    waited = """
WAIT{parity}:
mbarrier.try_wait.parity.shared.b64 %p5, [%r6], {parity};
@!%p5 bra WAIT{parity};
"""
    rounds = [
        "setp.eq.u32 %p4, 0, 1;\n@!%p2 tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd10, %rd11, " + f"{BITS}, %p4;\n"
        "@!%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];\n"
        + (waited.format(parity=parity) if wait else "bar.sync 1;\n")
        + ("tcgen05.fence::after_thread_sync;\n" if fence else "")
        + f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {VECTOR}, [%r9];\ntcgen05.wait::ld.sync.aligned;\n"
        + ("tcgen05.fence::before_thread_sync;\nbar.sync 1;\ntcgen05.fence::after_thread_sync;\n" if given_back else "")
        for parity in (0, 1)
    ]
    return "".join(rounds)


def run_product(schedule: Schedule, **parts: bool) -> Observation:
    image, leading, stride = k_major(random_matrix("bf16", 128, 16), "128b")
    set_up = FENCED + copy_in(image.size) + f"""
mov.u64 %rd10, {descriptor(BASE, leading, stride, '128b')};
mov.u64 %rd11, %rd10;
bar.sync 0;
"""
    return run_text(set_up + product(**parts) + FINISH, schedule, races=True, threads=128, image=image)


@under_schedules
def test_products_that_are_waited_for_are_silent(schedule):
    seen = run_product(schedule)
    assert seen.fault is None
    assert seen.hazards == ()


@under_schedules
def test_sums_read_before_the_product_is_complete(schedule):
    assert "tensor_memory_race" in kinds(run_product(schedule, wait=False))


@under_schedules
def test_sums_read_without_a_fence(schedule):
    assert "missing_tcgen05_fence_after" in kinds(run_product(schedule, fence=False))


@under_schedules
def test_a_product_onto_cells_that_are_still_read(schedule):
    seen = run_product(schedule, given_back=False)
    # Where products are early, the warp that multiplies laps the others at the mbarrier.
    assert seen.fault is not None or "tensor_memory_race" in kinds(seen)


@under_schedules
def test_a_tensor_memory_address_read_before_it_is_visible(schedule):
    body = FENCED.replace("bar.sync 0;", "") + f"""
bar.sync 0;
{FINISH}"""
    body = body.replace("and.b32 %r9, %r1, 96;", "st.global.u32 [%rd2], %r8;\nand.b32 %r9, %r1, 96;")
    body = body.replace("bar.sync 0;\n@!%p3 tcgen05.dealloc", "ld.shared.u32 %r8, [%r7];\n@!%p3 tcgen05.dealloc")
    assert "shared_memory_race" in kinds(run_text(body, schedule, races=True, threads=128))
