"""Waits by parity: a warp has to know that the phase before the one it waits for is over."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import kernel

from ptxbench.core import Observation, RunOptions
from ptxbench.simulator import load

START = """
.shared .align 8 .b64 bar;
mov.u32 %r1, %tid.x;
mov.u32 %r20, bar;
setp.eq.u32 %p1, %r1, {maker};
setp.lt.u32 %p3, %r1, {maker};
@%p1 mbarrier.init.shared.b64 [%r20], 1;
bar.sync 0;
"""
WAIT = "{label}:\nmbarrier.try_wait.parity{how}.shared.b64 %p2, [%r20], {parity};\n@!%p2 bra {label};\n"
GO = "bar.arrive 1, 64;\n"
ARRIVE = "@%p1 mbarrier.arrive.shared.b64 _, [%r20];\n"
FIRST, RELAXED, LAST, MAKER = (
    WAIT.format(label=label, how=how, parity=parity)
    for label, how, parity in (("A", "", 0), ("B", ".relaxed.cta", 0), ("C", "", 1), ("D", "", 0))
)
# Warp 1 completes two phases, the second when warp 0 has come to barrier 1; warp 0 waits for the second phase.
MAKES = ARRIVE + MAKER + "bar.sync 1, 64;\n" + ARRIVE + "bra END;\n"
TWO_WARPS = START.format(maker=32) + "@%p3 bra WAIT;\n" + MAKES + "WAIT:\n{first}" + LAST + "END:\nret;"


def check(body: str, threads: int = 64, *, races: bool = True) -> Observation:
    launch = Launch("k", ["out"], block=(threads, 1, 1))
    return run(load(kernel(body), ["k"]), launch, RunOptions(races=races), out=np.zeros(1, np.uint32))


def test_a_wait_for_the_second_phase_alone_is_found() -> None:
    seen = check(TWO_WARPS.format(first=GO))
    assert seen.fault is None
    (hazard,) = seen.hazards
    assert (hazard.severity, hazard.kind) == ("rule", "unknown_mbarrier_phase")
    assert "waits by parity for phase 1 of the mbarrier at shared byte 0, but" in hazard.message
    assert "nothing tells CTA (0,0,0) warp 0 that phase 0 is over" in hazard.message
    assert "wait for every phase" in hazard.advice


@pytest.mark.parametrize("first", [FIRST + GO, RELAXED + GO, "bar.sync 1, 64;\n"], ids=["wait", "relaxed", "barrier"])
def test_a_warp_that_knows_of_the_first_phase_is_silent(first: str) -> None:
    seen = check(TWO_WARPS.format(first=first))
    assert (seen.fault, seen.hazards) == (None, ())


def test_who_arrives_alone_knows_that_the_phase_is_over() -> None:
    seen = check(START.format(maker=0) + ARRIVE + ARRIVE + LAST + "ret;", 32)
    assert (seen.fault, seen.hazards) == (None, ())


def test_a_wait_that_names_its_phase_by_the_state_is_silent() -> None:
    wait = "RETRY:\nmbarrier.try_wait.shared.b64 %p2, [%r20], %rd3;\n@!%p2 bra RETRY;\n"
    state = ARRIVE.replace("_,", "%rd3,")
    seen = check(START.format(maker=0) + ARRIVE + state + "@!%p1 bra END;\n" + wait + "END:\nret;", 32)
    assert (seen.fault, seen.hazards) == (None, ())


def test_without_the_option_nothing_is_looked_for() -> None:
    assert check(TWO_WARPS.format(first=GO), races=False).hazards == ()
