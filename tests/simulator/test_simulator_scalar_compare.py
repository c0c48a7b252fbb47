"""Comparisons, selections, moves and predicates, executed and compared with NumPy."""

from __future__ import annotations

import operator

import ml_dtypes
import numpy as np
import pytest
from simulator_scalar import Array, evaluate
from test_simulator_scalar_float import sample_f32, sample_f64, sample_half
from test_simulator_scalar_integer import sample as sample_integer

ORDER = {"lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge}
EQUALITY = {"eq": operator.eq, "ne": operator.ne}
UNSIGNED = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}
PREDICATE = "selp.u32 d, 1, 0, p;"


def compare(text: str, a: Array, b: Array, *more: Array) -> Array:
    return evaluate(f"{text} {PREDICATE}", a, b, *more, result=np.uint32).astype(bool)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_integers(bits: int) -> None:
    a, b = sample_integer(bits, 1), sample_integer(bits, 2)
    b[::5] = a[::5]
    for name, function in (ORDER | EQUALITY | UNSIGNED).items():
        np.testing.assert_array_equal(compare(f"setp.{name}.u{bits} p, a, b;", a, b), function(a, b))
    x, y = a.view(f"int{bits}"), b.view(f"int{bits}")
    for name, function in (ORDER | EQUALITY).items():
        np.testing.assert_array_equal(compare(f"setp.{name}.s{bits} p, a, b;", a, b), function(x, y))
    for name, function in EQUALITY.items():
        np.testing.assert_array_equal(compare(f"setp.{name}.b{bits} p, a, b;", a, b), function(a, b))


@pytest.mark.parametrize(("kind", "a", "b"), [
    ("f32", sample_f32(1), sample_f32(2)), ("f64", sample_f64(1), sample_f64(2)),
    ("f16", sample_half(np.float16, 1), sample_half(np.float16, 2)),
    ("bf16", sample_half(ml_dtypes.bfloat16, 1), sample_half(ml_dtypes.bfloat16, 2)),
])  # fmt: skip
def test_floats(kind: str, a: Array, b: Array) -> None:
    b = b.copy()
    b[::5] = a[::5]
    with np.errstate(invalid="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
    nan = np.isnan(x) | np.isnan(y)
    for name, function in (ORDER | EQUALITY).items():
        np.testing.assert_array_equal(compare(f"setp.{name}.{kind} p, a, b;", a, b), function(x, y) & ~nan)
        np.testing.assert_array_equal(compare(f"setp.{name}u.{kind} p, a, b;", a, b), function(x, y) | nan)
    np.testing.assert_array_equal(compare(f"setp.num.{kind} p, a, b;", a, b), ~nan)
    np.testing.assert_array_equal(compare(f"setp.nan.{kind} p, a, b;", a, b), nan)


def test_flushed_comparison() -> None:
    a, b = sample_f32(1), sample_f32(2)
    tiny = [np.where(np.abs(x) < 2.0**-126, 0, x) for x in (a, b)]
    np.testing.assert_array_equal(compare("setp.gt.ftz.f32 p, a, b;", a, b), tiny[0] > tiny[1])


@pytest.mark.parametrize(("boolean", "function"), [("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)])
def test_two_results_and_a_third_predicate(boolean: str, function: object) -> None:
    a, b, c = (sample_integer(32, seed) for seed in (1, 2, 3))
    third = c > 1000
    before = "setp.gt.u32 q, c, 1000; setp.le.u32 p, c, 1000;"
    both = "selp.u32 r0, 1, 0, p; selp.u32 r1, 2, 0, q; add.u32 d, r0, r1;"
    got = evaluate(f"{before} setp.lt.{boolean}.u32 p|q, a, b, !p; {both}", a, b, c, result=np.uint32)
    less = a < b
    np.testing.assert_array_equal(got & 1, function(less, third))  # type: ignore[operator]
    np.testing.assert_array_equal(got >> 1, function(~less, third))  # type: ignore[operator]
    sink = evaluate(f"{before} setp.lt.{boolean}.u32 _|p, a, b, q; {PREDICATE}", a, b, c, result=np.uint32)
    np.testing.assert_array_equal(sink, got >> 1)


def test_packed_halves_compare_separately() -> None:
    a, b = sample_half(np.float16, 1), sample_half(np.float16, 2)
    text = "mov.b32 r0, {a, b}; mov.b32 r1, {b, a}; setp.lt.f16x2 p|q, r0, r1;"
    text += " selp.u32 r2, 1, 0, p; selp.u32 r3, 2, 0, q; add.u32 d, r2, r3;"
    got = evaluate(text, a, b, result=np.uint32)
    np.testing.assert_array_equal(got, (a < b) + 2 * (b < a))


def test_set_and_select() -> None:
    a, b, c = sample_f32(1), sample_f32(2), sample_f32(3)
    less = a < b
    np.testing.assert_array_equal(
        evaluate("set.lt.u32.f32 d, a, b;", a, b, result=np.uint32), np.where(less, 0xFFFFFFFF, 0)
    )
    np.testing.assert_array_equal(evaluate("set.lt.f32.f32 d, a, b;", a, b, result=np.float32), less)
    selected = evaluate("setp.lt.f32 p, a, b; selp.f32 d, a, b, !p;", a, b, result=np.uint32)
    np.testing.assert_array_equal(selected, np.where(less, b.view(np.uint32), a.view(np.uint32)))
    by_float = evaluate("slct.u32.f32 d, a, b, c;", a, b, c, result=np.uint32)
    np.testing.assert_array_equal(by_float, np.where(c >= 0, a.view(np.uint32), b.view(np.uint32)))
    by_integer = evaluate("slct.u32.s32 d, a, b, c;", a, b, c, result=np.uint32)
    np.testing.assert_array_equal(by_integer, np.where(c.view(np.int32) >= 0, a.view(np.uint32), b.view(np.uint32)))


def test_predicate_logic() -> None:
    a = sample_integer(32, 1)
    x, y = a % 3 == 0, a % 2 == 0
    before = "rem.u32 r0, a, 3; setp.eq.u32 p, r0, 0; and.b32 r1, a, 1; setp.eq.u32 q, r1, 0;"
    for op, expected in (("and", x & ~y), ("or", x | ~y), ("xor", x ^ ~y)):
        np.testing.assert_array_equal(compare(f"{before} {op}.pred p, p, !q;", a, a), expected)
    np.testing.assert_array_equal(compare(f"{before} not.pred p, q;", a, a), ~y)
    np.testing.assert_array_equal(compare(f"{before} @q mov.pred p, 1; @!q mov.pred p, 0;", a, a), y)


def test_packing_and_unpacking() -> None:
    a, b = sample_integer(32, 1), sample_integer(32, 2)
    wide = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    np.testing.assert_array_equal(evaluate("mov.b64 d, {a, b};", a, b, result=np.uint64), wide)
    np.testing.assert_array_equal(evaluate("mov.b64 {r0, d}, a;", wide, result=np.uint32), b)
    np.testing.assert_array_equal(evaluate("mov.b64 {d, _}, a;", wide, result=np.uint32), a)
    np.testing.assert_array_equal(
        evaluate("mov.b64 {h0, h1, h2, d}, a;", wide, result=np.uint16), (b >> 16).astype(np.uint16)
    )
    swapped = evaluate("mov.b32 {h0, h1}, a; mov.b32 d, {h1, h0};", a, result=np.uint32)
    np.testing.assert_array_equal(swapped, a >> 16 | a << 16)
    in_place = evaluate("mov.b32 d, a; mov.b32 {h0, h1}, d; mov.b32 d, {h0, h0};", a, result=np.uint32)
    np.testing.assert_array_equal(in_place, (a & 0xFFFF) * 0x10001)
    through_128 = evaluate(
        "mov.b128 big, {a, b}; mov.b128 {w0, w1}, big; xor.b64 d, w0, w1;", wide, wide >> np.uint64(3), result=np.uint64
    )
    np.testing.assert_array_equal(through_128, wide ^ (wide >> np.uint64(3)))


def test_special_registers_and_constants() -> None:
    a = np.zeros(64, np.uint32)
    lanes = np.arange(64) % 32
    for text, expected in (
        ("mov.u32 d, %tid.x;", np.arange(64)), ("mov.u32 d, %laneid;", lanes),
        ("mov.u32 d, %warpid;", np.arange(64) // 32),
        ("mov.u32 d, %ntid.x;", np.full(64, 64)), ("mov.u32 d, %lanemask_lt;", (1 << lanes) - 1),
        ("mov.u32 d, WARP_SZ;", np.full(64, 32)), ("mov.u32 d, -3;", np.full(64, 2**32 - 3)),
    ):  # fmt: skip
        np.testing.assert_array_equal(evaluate(text, a, result=np.uint32), expected)
    first, second = evaluate("mov.u64 w0, %clock64; mov.u64 w1, %clock64; sub.u64 d, w1, w0;", a, result=np.uint64)[:2]
    assert first == second == 1


def test_sinks() -> None:
    a = sample_integer(32, 1)
    np.testing.assert_array_equal(
        evaluate("mov.u32 d, a; add.u32 d, d, 1; mov.b64 {_, _}, 5;", a, result=np.uint32), a + np.uint32(1)
    )


def test_packed_set() -> None:
    a, b, c = sample_half(np.float16, 1), sample_half(np.float16, 2), sample_integer(32, 3)[:1024]
    c = np.resize(c, 1024)
    before = "mov.b32 r0, {a, b}; mov.b32 r1, {b, a};"
    got = evaluate(f"{before} set.lt.f16x2.f16x2 d, r0, r1;", a, b, result=np.uint32)
    np.testing.assert_array_equal(got, np.where(a < b, 0x3C00, 0) + np.where(b < a, 0x3C000000, 0))
    third = f"{before} setp.gt.u32 p, c, 1000; set.lt.or.u32.f16x2 d, r0, r1, p;"
    got = evaluate(third, a, b, c, result=np.uint32)
    expected = np.where((a < b) | (c > 1000), 0xFFFF, 0) + np.where((b < a) | (c > 1000), 0xFFFF0000, 0)
    np.testing.assert_array_equal(got, expected)


def test_branch_tables() -> None:
    a = sample_integer(32, 1)
    text = """rem.u32 r0, a, 3;
    T: .branchtargets A, B, C;
    brx.idx r0, T;
    A: mov.u32 d, 7; bra E;
    B: mov.u32 d, a; bra E;
    C: add.u32 d, a, 1;
    E:"""
    expected = np.choose(a % 3, [np.full_like(a, 7), a, a + np.uint32(1)])
    np.testing.assert_array_equal(evaluate(text, a, result=np.uint32), expected)
