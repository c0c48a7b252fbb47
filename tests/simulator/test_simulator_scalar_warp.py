"""Exchange between lanes, executed by one warp and compared with the definitions in the PTX manual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from simulator_launch import Launch, load, run

LANES = np.arange(32)


def execute(body: str, values: np.ndarray, count: int = 32) -> np.ndarray:
    """What ``body`` leaves in ``d`` of each lane, given its value in ``a``; ``p``, ``q`` and ``lane`` may be used."""
    text = f""".version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 target)
{{
.reg .pred p, q; .reg .b32 a, d, lane, r<4>; .reg .b64 address, offset, w;
mov.u32 lane, %tid.x; mul.wide.u32 offset, lane, 4;
ld.param.u64 address, [source]; add.s64 address, address, offset; ld.global.u32 a, [address];
mov.u32 d, 0xdddddddd;
{body}
ld.param.u64 address, [target]; add.s64 address, address, offset; st.global.u32 [address], d;
ret;
}}"""
    out = np.zeros(32, np.uint32)
    seen = run(
        load(text, ["k"]), Launch("k", ["in_a", "out"], block=(count, 1, 1)), in_a=values.astype(np.uint32), out=out
    )
    assert seen.fault is None, seen.fault
    return out


VALUES = np.random.default_rng(5).integers(0, 2**32, 32, dtype=np.uint32)


def shuffled(lane: int, mode: str, b: int, c: int) -> tuple[int, bool]:
    segment, clamp = c >> 8 & 31, c & 31
    highest = lane & segment | clamp & ~segment & 31
    source = {
        "up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": lane & segment | b & ~segment & 31,
    }[mode]  # fmt: skip
    valid = source >= highest if mode == "up" else source <= highest
    return (source if valid else lane), valid


@pytest.mark.parametrize(("mode", "clamp"), [("up", 0), ("down", 31), ("bfly", 31), ("idx", 31)])
@pytest.mark.parametrize("width", [32, 8])
@pytest.mark.parametrize("b", [0, 1, 5, 16, 31])
def test_shuffles(mode: str, clamp: int, width: int, b: int) -> None:
    c = clamp if width == 32 else clamp & (width - 1) | (32 - width) << 8
    text = f"shfl.sync.{mode}.b32 d|p, a, {b}, {c}, -1; selp.u32 r0, 1, 0, p; xor.b32 d, d, r0;"
    rows = [shuffled(lane, mode, b, c) for lane in LANES]
    np.testing.assert_array_equal(execute(text, VALUES), [VALUES[source] ^ valid for source, valid in rows])


@pytest.mark.parametrize("destination", ["d", "a"])
def test_a_matrix_is_transposed_within_the_warp(destination: str) -> None:
    """Row r of an 8x8 matrix of 16-bit elements is in lanes 4r to 4r+3, two elements a lane (PTX ISA, movmatrix)."""
    text = f"movmatrix.sync.aligned.m8n8.trans.b16 {destination}, a; mov.b32 d, {destination};"
    expected = np.ascontiguousarray(VALUES.view(np.uint16).reshape(8, 8).T).view(np.uint32).reshape(32)
    np.testing.assert_array_equal(execute(text, VALUES), expected)


def test_a_shuffle_may_write_its_own_source() -> None:
    np.testing.assert_array_equal(
        execute("mov.u32 d, a; shfl.sync.bfly.b32 d, d, 1, 31, -1;", VALUES), VALUES[LANES ^ 1]
    )


def test_shuffles_of_half_a_warp_in_divergent_code() -> None:
    body = """setp.lt.u32 p, lane, 16;
    @p bra LOW;
    shfl.sync.bfly.b32 d, a, 1, 31, 0xffff0000;
    bra DONE;
    LOW: shfl.sync.bfly.b32 d, a, 2, 31, 0x0000ffff;
    DONE:"""
    np.testing.assert_array_equal(execute(body, VALUES), VALUES[np.where(LANES < 16, LANES ^ 2, LANES ^ 1)])


def test_participants_meet_from_both_sides_of_a_branch() -> None:
    body = """setp.lt.u32 p, lane, 7;
    @p bra LOW;
    add.u32 a, a, 1;
    LOW: vote.sync.ballot.b32 d, p, -1;"""
    np.testing.assert_array_equal(execute(body, VALUES), np.full(32, 0x7F))


def test_exited_lanes_do_not_take_part() -> None:
    body = "setp.ge.u32 p, lane, 8; @p ret; setp.eq.u32 q, 0, 0; vote.sync.ballot.b32 d, q, -1;"
    np.testing.assert_array_equal(execute(body, VALUES)[:8], np.full(8, 0xFF))


@pytest.mark.parametrize(("bits", "all_", "any_", "uni"), [
    (0, 0, 0, 1), (0xFFFFFFFF, 1, 1, 1), (0x10, 0, 1, 0),
])  # fmt: skip
def test_votes(bits: int, all_: int, any_: int, uni: int) -> None:
    values = np.array([bits >> lane & 1 for lane in LANES])
    for mode, expected in (("all", all_), ("any", any_), ("uni", uni)):
        body = f"setp.eq.u32 p, a, 1; vote.sync.{mode}.pred q, p, -1; selp.u32 d, 1, 0, q;"
        np.testing.assert_array_equal(execute(body, values), np.full(32, expected))
    np.testing.assert_array_equal(
        execute("setp.eq.u32 p, a, 1; vote.sync.ballot.b32 d, !p, -1;", values), np.full(32, bits ^ 0xFFFFFFFF)
    )


def test_matches() -> None:
    values = LANES % 5
    expected = [sum(1 << other for other in LANES if values[other] == values[lane]) for lane in LANES]
    np.testing.assert_array_equal(execute("match.any.sync.b32 d, a, -1;", values), expected)
    wide = "cvt.u64.u32 w, a; shl.b64 w, w, 32; match.any.sync.b64 d, w, -1;"
    np.testing.assert_array_equal(execute(wide, values), expected)
    same = "match.all.sync.b32 d|p, a, -1; @!p mov.u32 d, 7;"
    np.testing.assert_array_equal(execute(same, np.full(32, 9)), np.full(32, 0xFFFFFFFF))
    np.testing.assert_array_equal(execute(same, values), np.full(32, 7))


@pytest.mark.parametrize(("name", "function"), [
    ("add.u32", lambda v: v.sum(dtype=np.uint32)), ("min.u32", np.min), ("max.u32", np.max),
    ("min.s32", lambda v: v.view(np.int32).min().view(np.uint32)),
    ("max.s32", lambda v: v.view(np.int32).max().view(np.uint32)),
    ("and.b32", np.bitwise_and.reduce), ("or.b32", np.bitwise_or.reduce), ("xor.b32", np.bitwise_xor.reduce),
])  # fmt: skip
def test_reductions(name: str, function: Callable[[np.ndarray], np.uint32]) -> None:
    np.testing.assert_array_equal(execute(f"redux.sync.{name} d, a, -1;", VALUES), np.full(32, function(VALUES)))
    upper = execute(f"setp.ge.u32 p, lane, 16; @p redux.sync.{name} d, a, 0xffff0000;", VALUES)
    np.testing.assert_array_equal(upper[16:], np.full(16, function(VALUES[16:])))


def test_float_reductions() -> None:
    values = np.random.default_rng(2).standard_normal(32).astype(np.float32)
    for name, expected in (("min", values.min()), ("max", values.max()), ("min.abs", np.abs(values).min())):
        got = execute(f"redux.sync.{name}.f32 d, a, -1;", values.view(np.uint32)).view(np.float32)
        np.testing.assert_array_equal(got, np.full(32, expected))
    values[3] = np.nan
    got = execute("redux.sync.max.f32 d, a, -1;", values.view(np.uint32)).view(np.float32)
    np.testing.assert_array_equal(got, np.full(32, np.nanmax(values)))
    assert np.isnan(execute("redux.sync.max.NaN.f32 d, a, -1;", values.view(np.uint32)).view(np.float32)).all()


def test_elect_and_activemask() -> None:
    body = "elect.sync d|p, -1; @p add.u32 d, d, 100;"
    np.testing.assert_array_equal(execute(body, VALUES), np.where(LANES == 0, 100, 0))
    body = "setp.ge.u32 q, lane, 20; @q elect.sync d|p, 0xfff00000; @q selp.u32 d, 5, d, p;"
    np.testing.assert_array_equal(execute(body, VALUES)[20:], [5, *[20] * 11])
    np.testing.assert_array_equal(
        execute("setp.ge.u32 q, lane, 24; @q activemask.b32 d;", VALUES)[24:], np.full(8, 0xFF000000)
    )
    np.testing.assert_array_equal(execute("activemask.b32 d;", VALUES, count=12)[:12], np.full(12, 0xFFF))


def test_a_lane_outside_its_own_mask_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="illegal_instruction"):
        execute("shfl.sync.idx.b32 d, a, 0, 31, 1;", VALUES)
