"""Kernels that another compiler made come out right: Triton's, for both targets, on the simulator.

Variants marked slow differ in shape, layout or depth only.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

pytest.importorskip("triton")

from cases_attention import BACKWARD, FORWARD, backward, forward, forward_through_pointers
from cases_matmul import (
    DESCRIPTORS,
    MORE_DESCRIPTORS,
    MORE_POINTERS,
    POINTERS,
    through_descriptors,
    through_pointers,
)
from oracles_expected import Oracle

from ptxbench.core import RunOptions, Schedule, Target

ALLOWED = {"unwaited_tensor_load"}
"""Triton 3.9 uses registers of ``tcgen05.ld`` before ``tcgen05.wait::ld``: the ISA forbids it, ptxas tolerates it."""

SCHEDULES = [
    Schedule(),
    Schedule(copies="late", products="late", reverse=True),
    Schedule(copies="eager", products="late"),
]


def check(oracle: Oracle, schedule: Schedule = SCHEDULES[0], *, tensor_cores: bool = True) -> None:
    launch = oracle.launch
    instruction = "wgmma.mma_async" if launch.kernel.target is Target.SM_90A else "tcgen05.mma"
    assert (instruction in launch.kernel.ptx) == tensor_cores
    seen = launch.simulate(RunOptions(schedule=schedule))
    assert seen.fault is None, seen.fault
    assert {hazard.kind for hazard in seen.hazards} <= ALLOWED, seen.hazards
    ratios = {name: expected.ratio(launch.buffers[name]) for name, expected in oracle.expected.items()}
    assert all(ratio <= 1 for ratio in ratios.values()), ratios


def and_slow(quick: Iterable[str], slow: Iterable[str]) -> list[object]:
    return [*quick, *(pytest.param(name, marks=pytest.mark.slow) for name in slow)]


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("name", and_slow(POINTERS, MORE_POINTERS))
def test_matmul_through_pointers(name: str, target: Target) -> None:
    case = {**POINTERS, **MORE_POINTERS}[name]
    check(through_pointers(case, target), tensor_cores=case.tensor_cores)


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("name", and_slow(DESCRIPTORS, MORE_DESCRIPTORS))
def test_matmul_through_descriptors(name: str, target: Target) -> None:
    oracle = through_descriptors({**DESCRIPTORS, **MORE_DESCRIPTORS}[name], target)
    assert "cp.async.bulk.tensor" in oracle.launch.kernel.ptx
    check(oracle)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES[1:], ids=str)
@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("name", DESCRIPTORS)
def test_schedules_agree(name: str, target: Target, schedule: Schedule) -> None:
    check(through_descriptors(DESCRIPTORS[name], target), schedule)


@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("name", FORWARD)
def test_attention_forward(name: str, target: Target, causal: bool) -> None:
    check(forward(FORWARD[name], target, causal=causal))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target", Target)
def test_attention_forward_through_pointers(target: Target, causal: bool) -> None:
    check(forward_through_pointers(FORWARD["d64"], target, causal=causal))


@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("name", BACKWARD)
def test_attention_backward(name: str, target: Target, causal: bool) -> None:
    check(backward(BACKWARD[name], target, causal=causal))
