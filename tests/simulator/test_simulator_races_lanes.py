"""Data that lanes of one warp exchange through shared memory, with and without something that brings them together."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import THREAD_ADDRESS, kernel

from ptxbench.core import Hazard, Observation, RunOptions
from ptxbench.simulator import load

WORDS = """
.shared .align 128 .b8 words[256];
.shared .align 8 .b64 bar;
mov.u32 %r2, words;
shl.b32 %r3, %r1, 2;
add.u32 %r4, %r2, %r3;
xor.b32 %r5, %r3, 4;
add.u32 %r5, %r2, %r5;
setp.eq.u32 %p1, %r1, 0;
mov.u32 %r20, bar;
"""
# A lane reads what its neighbour wrote.
NEIGHBOURS = "st.shared.u32 [%r4], %r1;\n{sync}\nld.shared.u32 %r10, [%r5];\nst.global.u32 [%rd21], %r10;\nret;"
# A lane overwrites what its neighbour read.
OVERWRITE = """
st.shared.u32 [%r4], %r1;
bar.warp.sync -1;
ld.shared.u32 %r10, [%r5];
{sync}
st.shared.u32 [%r4], 77;
st.global.u32 [%rd21], %r10;
ret;"""
# Lane 0 lets a bulk copy read what all lanes wrote.
COPY = """
st.shared.u32 [%r4], %r1;
fence.proxy.async;
{sync}
@!%p1 bra END;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 128;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
END:
ret;"""
# Lane 0 initialises an mbarrier that the others arrive on.
INIT = """
@%p1 mbarrier.init.shared.b64 [%r20], 32;
{sync}
mbarrier.arrive.shared.b64 _, [%r20];
RETRY:
mbarrier.try_wait.parity.shared.b64 %p2, [%r20], 0;
@!%p2 bra RETRY;
ret;"""
# A lane reads what its neighbour has copied and waited for, or overwrites it.
COPIED = """
cp.async.ca.shared.global [%r4], [%rd21], 4;
cp.async.commit_group;
cp.async.wait_group 0;
{sync}
ld.shared.u32 %r10, [%r5];
st.global.u32 [%rd21], %r10;
ret;"""
OVER_COPY = COPIED.replace("ld.shared.u32 %r10, [%r5];\nst.global.u32 [%rd21], %r10;", "st.shared.u32 [%r5], 7;")
BODIES = (NEIGHBOURS, OVERWRITE, COPY, INIT, COPIED, OVER_COPY)
NAMES = ("read", "overwrite", "copy", "mbarrier", "copied", "over a copy")
MEETINGS = ("bar.warp.sync -1;", "bar.sync 0;", "shfl.sync.idx.b32 %r11, %r1, 0, 31, -1;")


def check(body: str, *, races: bool = True) -> tuple[Observation, np.ndarray]:
    out = np.zeros(32, np.uint32)
    program = load(kernel(THREAD_ADDRESS + WORDS + body), ["k"])
    return run(program, Launch("k", ["out"]), RunOptions(races=races), out=out), out


def only(seen: Observation) -> Hazard:
    assert seen.fault is None
    (hazard,) = seen.hazards
    return hazard


@pytest.mark.parametrize("body", BODIES, ids=NAMES)
@pytest.mark.parametrize("sync", MEETINGS)
def test_lanes_that_meet_are_silent(body: str, sync: str) -> None:
    seen, _ = check(body.format(sync=sync))
    assert (seen.fault, seen.hazards) == (None, ())


@pytest.mark.parametrize(("body", "what"), [
    (NEIGHBOURS, "ld.shared.u32 reads shared byte 4 in lane 0 of CTA (0,0,0) warp 0"),
    (OVERWRITE, "st.shared.u32 writes shared byte 0 in lane 0 of CTA (0,0,0) warp 0"),
    (COPY, "cp.async.bulk.global.shared::cta.bulk_group reads shared byte 4 in lane 0"),
    (INIT, "mbarrier.arrive.shared.b64 reads shared byte 256 in lane 1"),
    (COPIED, "ld.shared.u32 reads shared byte 4 in lane 0"),
    (OVER_COPY, "st.shared.u32 writes shared byte 4 in lane 0"),
], ids=NAMES)  # fmt: skip
def test_lanes_that_do_not_meet_are_found(body: str, what: str) -> None:
    hazard = only(check(body.format(sync=""))[0])
    assert (hazard.severity, hazard.kind) == ("rule", "lane_race")
    assert hazard.message.startswith(what)
    assert "bar.warp.sync" in hazard.advice


@pytest.mark.parametrize("body", BODIES, ids=NAMES)
def test_an_election_orders_nothing(body: str) -> None:
    assert only(check(body.format(sync="elect.sync _|%p5, -1;"))[0]).kind == "lane_race"


def test_the_other_lane_and_its_instruction_are_named() -> None:
    message = only(check(NEIGHBOURS.format(sync=""))[0]).message
    assert "nothing brings it together with lane 1, which wrote it before: st.shared.u32 (PTX line " in message


def test_without_the_option_nothing_is_looked_for() -> None:
    seen, out = check(NEIGHBOURS.format(sync=""), races=False)
    assert seen.hazards == ()
    np.testing.assert_array_equal(out, np.arange(32) ^ 1)


def test_a_lane_may_read_back_its_own_bytes() -> None:
    body = "st.shared.u32 [%r4], %r1;\nld.shared.u32 %r10, [%r4];\nst.shared.u32 [%r4], %r10;\nret;"
    assert check(body)[0].hazards == ()


def test_lanes_may_write_neighbouring_halves_of_a_word() -> None:
    body = """
shl.b32 %r6, %r1, 1;
add.u32 %r6, %r2, %r6;
cvt.u16.u32 %h1, %r1;
st.shared.u16 [%r6], %h1;
ld.shared.u16 %h2, [%r6];
ret;"""
    assert check(body)[0].hazards == ()


def test_lanes_may_write_one_value_together() -> None:
    assert check("st.shared.u32 [%r2], 5;\nst.shared.u32 [%r2], 5;\nret;")[0].hazards == ()


def test_an_acquiring_wait_brings_lanes_together() -> None:
    body = """
@%p1 mbarrier.init.shared.b64 [%r20], 32;
bar.warp.sync -1;
st.shared.u32 [%r4], %r1;
mbarrier.arrive.shared.b64 _, [%r20];
RETRY:
mbarrier.try_wait.parity.shared.b64 %p2, [%r20], 0;
@!%p2 bra RETRY;
ld.shared.u32 %r10, [%r5];
ret;"""
    assert check(body)[0].hazards == ()


def test_a_copy_is_named_as_the_write() -> None:
    message = only(check(COPIED.format(sync=""))[0]).message
    assert "together with lane 1, which wrote it before: cp.async.ca.shared.global (PTX line " in message


def test_a_meeting_ahead_of_the_wait_is_too_early() -> None:
    body = COPIED.format(sync="").replace("cp.async.wait_group 0;", "bar.warp.sync -1;\ncp.async.wait_group 0;")
    assert only(check(body)[0]).kind == "lane_race"


def test_a_lane_may_read_what_it_has_copied() -> None:
    assert check(COPIED.format(sync="").replace("[%r5]", "[%r4]"))[0].hazards == ()


def test_what_is_pending_yet_is_noted_at_its_own_wait() -> None:
    """The neighbour's bytes were waited for before the lanes met, and the wait for other bytes comes after."""
    other = "add.u32 %r6, %r4, 128;\ncp.async.ca.shared.global [%r6], [%rd21], 4;\ncp.async.commit_group;\n"
    body = COPIED.format(sync=other + "bar.warp.sync -1;\ncp.async.wait_group 0;")
    assert check(body)[0].hazards == ()


def test_an_mbarrier_brings_lanes_together_that_copy() -> None:
    body = """
@%p1 mbarrier.init.shared.b64 [%r20], 32;
bar.warp.sync -1;
cp.async.ca.shared.global [%r4], [%rd21], 4;
cp.async.mbarrier.arrive.noinc.shared.b64 [%r20];
RETRY:
mbarrier.try_wait.parity.shared.b64 %p2, [%r20], 0;
@!%p2 bra RETRY;
ld.shared.u32 %r10, [%r5];
cp.async.wait_all;
ret;"""
    assert check(body)[0].hazards == ()
