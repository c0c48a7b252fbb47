"""Every synchronisation mistake in a GEMM is found, at its source line. Correct kernels are tested in ..._gemm.py."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_gemm import CLUSTER, PLAIN, SCHEDULES, SINGLE, Gemm, Problem, replaced, without, without_waits

from ptxbench.core import FaultKind, Observation, RunOptions, Schedule

PROBLEM = Problem.random(128, 128, 1024)
PAIR_PROBLEM = Problem.random(256, 128, 1024)
EARLY_LATE = Schedule(copies="eager", products="late")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ptx")


@pytest.fixture(scope="module")
def hopper(folder):
    return PLAIN.text(folder)


@pytest.fixture(scope="module")
def blackwell(folder):
    return SINGLE.text(folder)


def run(gemm: Gemm, text: str, schedule: Schedule | None = None) -> tuple[Observation, bool]:
    """The observation, and whether the product is right."""
    problem = PROBLEM if gemm.ranks == 1 else PAIR_PROBLEM
    seen, c = gemm.run(text, problem, RunOptions(schedule=schedule or Schedule()))
    return seen, bool(np.allclose(c, problem.truth, rtol=0.01, atol=0.5))


def hazard(seen: Observation, kind: str):
    found = [hazard for hazard in seen.hazards if hazard.kind == kind]
    assert len(found) == 1, seen
    assert found[0].message
    assert found[0].advice
    return found[0]


def test_wrong_parity_is_a_deadlock_with_a_report(folder):
    seen, _ = run(PLAIN, PLAIN.text(folder, "-DWRONG_PARITY"))
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.DEADLOCK
    assert seen.warp_instructions < 100_000
    waits = PLAIN.line("mbarrier.try_wait")
    producer, consumers = seen.fault.detail
    assert producer.startswith(f"line {waits}, inlined at line {PLAIN.line('wait(&s.empty[stage]')}")
    who = "CTA (0,0,0) warp 0 (lanes 00000001)"
    assert f"{who} waits for the phase of parity 0 of the mbarrier at shared byte " in producer
    assert "in phase 0 with 2 of 2 arrivals pending and 0 transaction bytes outstanding" in producer
    assert "CTA (0,0,0) warps 4, 5, 6, 7, 8, 9, 10, 11 wait for" in consumers
    assert seen.fault.message.startswith(f"Deadlock: 9 warps wait for ever; {who} waits at line {waits} for the phase")
    assert seen.fault.source_line == waits


def test_missing_bytes_are_a_deadlock_that_names_them(hopper):
    text = without(hopper, "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [")
    seen, _ = run(PLAIN, text)
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.DEADLOCK
    assert "32768 transaction bytes outstanding" in seen.fault.message


def test_a_stage_released_before_its_products_completed_shows_with_late_products(folder):
    text = PLAIN.text(folder, "-DEARLY_RELEASE")
    assert run(PLAIN, text)[1]
    assert not run(PLAIN, text, EARLY_LATE)[1]


def test_reading_accumulators_before_the_wait_shows_with_late_products(hopper):
    text = without(hopper, "wgmma.wait_group")
    seen, right = run(PLAIN, text)
    assert right
    assert hazard(seen, "unwaited_wgmma").severity == "rule"
    assert not run(PLAIN, text, EARLY_LATE)[1]


def test_products_that_are_never_committed(hopper):
    seen, _ = run(PLAIN, without(hopper, "wgmma.commit_group"))
    assert hazard(seen, "unwaited_wgmma").source_line == PLAIN.line("wgmma.mma_async")


@pytest.mark.parametrize("schedule", SCHEDULES[:4], ids=lambda schedule: schedule.label)
def test_missing_wgmma_fence(hopper, schedule):
    seen, right = run(PLAIN, without(hopper, "wgmma.fence"), schedule)
    assert right
    found = hazard(seen, "missing_wgmma_fence")
    assert (found.severity, found.source_line) == ("rule", PLAIN.line("wgmma.mma_async"))


@pytest.mark.parametrize("schedule", SCHEDULES[:4], ids=lambda schedule: schedule.label)
def test_missing_proxy_fence(hopper, schedule):
    seen, right = run(CLUSTER, without(hopper, "fence.proxy.async"), schedule)
    assert right
    found = hazard(seen, "missing_async_proxy_fence")
    assert (found.severity, found.source_line) == ("rule", CLUSTER.line("cp.async.bulk.tensor.2d.global"))


@pytest.mark.parametrize("schedule", SCHEDULES[:2], ids=lambda schedule: schedule.label)
def test_bulk_store_that_is_not_waited_for(hopper, schedule):
    seen, right = run(CLUSTER, without(hopper, "cp.async.bulk.wait_group"), schedule)
    assert right
    found = hazard(seen, "unwaited_bulk_store")
    assert (found.severity, found.occurrences) == ("rule", 8)


def test_reading_a_stage_that_has_not_arrived(hopper):
    seen, right = run(PLAIN, without_waits(hopper), Schedule(copies="late", products="eager"))
    assert not right
    assert hazard(seen, "uninitialised_shared_read").severity == "race"


def test_barriers_that_were_never_initialised(hopper):
    seen, _ = run(PLAIN, without(hopper, "mbarrier.init"))
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.ILLEGAL_INSTRUCTION
    assert "never initialised" in seen.fault.message
    assert seen.fault.source_line in (PLAIN.line("mbarrier.try_wait"), PLAIN.line("mbarrier.arrive.expect_tx"))


def test_copies_that_nobody_waits_for_before_exit(hopper):
    text = without(without(without_waits(hopper), "wgmma.mma_async"), "mbarrier.arrive.expect_tx")
    seen, _ = run(PLAIN, without(text, "mbarrier.arrive.release"), Schedule(copies="late"))
    assert hazard(seen, "copy_in_flight_at_exit").severity == "rule"


def test_reading_tensor_memory_before_the_products_are_done(blackwell):
    seen, right = run(SINGLE, without_waits(blackwell), EARLY_LATE)
    assert not right
    assert hazard(seen, "uninitialised_tensor_memory_read").severity == "race"


def test_accumulating_onto_tensor_memory_that_was_never_written(blackwell):
    text = replaced(blackwell, r"setp\.ne\.b32 p, %r\d+, 0;", "setp.eq.u32 p, 0, 0;")
    seen, right = run(SINGLE, text)
    assert not right
    found = hazard(seen, "uninitialised_tensor_memory_read")
    assert (found.severity, found.source_line) == ("race", SINGLE.line("tcgen05.mma.cta_group::1"))


def test_tensor_memory_that_is_not_given_back(blackwell):
    seen, right = run(SINGLE, without(blackwell, "tcgen05.dealloc.cta_group::1"))
    assert right
    assert hazard(seen, "tensor_memory_not_deallocated").severity == "rule"


def test_registers_used_before_the_tensor_load_was_waited_for(blackwell):
    seen, right = run(SINGLE, without(blackwell, "tcgen05.wait::ld"))
    assert right
    assert any(found.kind == "unwaited_tensor_load" for found in seen.hazards)


def test_products_that_no_barrier_tracks(blackwell):
    text = without(without_waits(blackwell), "tcgen05.commit.cta_group::1")
    seen, _ = run(SINGLE, without(text, "mbarrier.arrive.expect_tx"), Schedule(reverse=True))
    assert hazard(seen, "product_in_flight_at_exit").severity == "rule"


DESCRIPTOR = 1 << 16 | 64 << 32 | 1 << 46 | 2 << 61
SHAPE = 1 << 4 | 1 << 7 | 1 << 10 | 16 << 17 | 8 << 24
BAD_OPERANDS = {
    "matrix descriptor": (str(DESCRIPTOR), str(DESCRIPTOR & ~(1 << 46)), "bits 46 to 48 must be 1"),
    "swizzle mode": (str(DESCRIPTOR), str(DESCRIPTOR & ~(2 << 61) | 3 << 61), "swizzle mode"),
    "N": (str(SHAPE), str(SHAPE + (1 << 17)), "N is not valid"),
    "M": (str(SHAPE), str(SHAPE + (1 << 24)), "M is not valid"),
    "operand type": (str(SHAPE), str(SHAPE + (5 << 7)), "element format 6"),
}


@pytest.mark.parametrize("name", BAD_OPERANDS)
def test_impossible_descriptors_are_illegal_instructions(blackwell, name):
    old, new, message = BAD_OPERANDS[name]
    seen, _ = run(SINGLE, replaced(blackwell, rf"\b{old}\b", new))
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.ILLEGAL_INSTRUCTION
    assert message in seen.fault.message
    assert seen.fault.source_line == SINGLE.line("tcgen05.mma.cta_group::1")


def test_a_warp_reaches_its_own_lanes_only(blackwell):
    text = replaced(blackwell, r"(tcgen05\.ld\.sync\.aligned\.32x32b\.x8\.b32 \{[^}]*\}, \[%r\d+)\]", r"\1+2097152]")
    seen, _ = run(SINGLE, text)
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.ILLEGAL_INSTRUCTION
    assert "reaches lanes 0 to 31 of tensor memory, not 32 to 63" in seen.fault.message


def test_columns_that_are_not_allocated(blackwell):
    text = replaced(blackwell, r"(tcgen05\.alloc\.cta_group::1[^,;]*, )%r\d+;", r"\g<1>64;")
    seen, _ = run(SINGLE, text)
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.ILLEGAL_ADDRESS
    assert "columns 0 to 127" in seen.fault.message
