"""Floating-point instructions, executed and compared with NumPy, ml_dtypes and exact rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from simulator_scalar import Array, evaluate

COUNT = 1024
F32_EDGES = [
    0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF,
    0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x33800000, 0x4B000000, 0x4F000000, 0xCF000000, 0x3F000000,
    0x40490FDB,
]  # fmt: skip


def sample_f32(seed: int, *, tame: bool = False) -> Array:
    """A third edge cases, a third any pattern, a third of usual size; ``tame`` leaves the last kind only."""
    random = np.random.default_rng(seed)
    usual = (random.standard_normal(COUNT) * 4).astype(np.float32)
    if tame:
        return usual
    patterns = random.integers(0, 2**32, COUNT, dtype=np.uint32)
    edges = random.choice(np.array(F32_EDGES, np.uint32), COUNT)
    return np.choose(np.arange(COUNT) % 3, [edges, patterns, usual.view(np.uint32)]).astype(np.uint32).view(np.float32)


def sample_f64(seed: int) -> Array:
    random = np.random.default_rng(seed)
    patterns = random.integers(0, 2**64, COUNT, dtype=np.uint64).view(np.float64)
    with np.errstate(invalid="ignore"):
        near_f32 = sample_f32(seed).astype(np.float64) * (1 + 2.0**-40)
    return np.where(np.arange(COUNT) % 2, patterns, near_f32)


def sample_half(dtype: type, seed: int) -> Array:
    return np.random.default_rng(seed).integers(0, 2**16, COUNT, dtype=np.uint16).view(dtype)


def assert_same(got: Array, expected: Array) -> None:
    """Equal bits; any NaN equals any NaN."""
    unsigned = {2: np.uint16, 4: np.uint32, 8: np.uint64}[got.dtype.itemsize]
    both_nan = np.isnan(got.astype(np.float64)) & np.isnan(expected.astype(np.float64))
    wrong = np.flatnonzero((got.view(unsigned) != expected.view(unsigned)) & ~both_nan)
    assert not len(wrong), f"{len(wrong)} wrong, first at {wrong[0]}: {got[wrong[0]]!r} for {expected[wrong[0]]!r}"


def flush(values: Array) -> Array:
    return np.where(np.abs(values) < 2.0**-126, np.copysign(np.float32(0), values), values)


@pytest.fixture(autouse=True)
def quiet() -> object:
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize(
    ("kind", "dtype", "sample"), [("f32", np.float32, sample_f32), ("f64", np.float64, sample_f64)]
)
def test_arithmetic_to_nearest(kind: str, dtype: type, sample: Callable[[int], Array]) -> None:
    a, b = sample(1), sample(2)
    for op, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        assert_same(evaluate(f"{op}.{kind} d, a, b;", a, b, result=dtype), function(a, b))
    assert_same(evaluate(f"div.rn.{kind} d, a, b;", a, b, result=dtype), a / b)
    assert_same(evaluate(f"sqrt.rn.{kind} d, a;", a, result=dtype), np.sqrt(a))
    assert_same(evaluate(f"rcp.rn.{kind} d, a;", a, result=dtype), dtype(1) / a)
    assert_same(evaluate(f"abs.{kind} d, a;", a, result=dtype), np.abs(a))
    assert_same(evaluate(f"neg.{kind} d, a;", a, result=dtype), -a)
    assert_same(evaluate(f"copysign.{kind} d, a, b;", a, b, result=dtype), np.copysign(b, a))


def test_flush_and_saturate() -> None:
    a, b = sample_f32(1), sample_f32(2)
    assert_same(evaluate("mul.ftz.f32 d, a, b;", a, b, result=np.float32), flush(flush(a) * flush(b)))
    assert_same(evaluate("add.ftz.f32 d, a, b;", a, b, result=np.float32), flush(flush(a) + flush(b)))
    saturated = np.where(np.isnan(a + b), 0, np.clip(a + b, 0, 1)).astype(np.float32)
    assert (evaluate("add.sat.f32 d, a, b;", a, b, result=np.float32) == saturated).all()


def rounded(value: Fraction, mode: str, digits: int, lowest: int) -> Fraction:
    """A rational rounded to a binary format without overflow: ``digits`` of significand, least unit ``2**lowest``."""
    if value == 0:
        return value
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if abs(value) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - digits + 1, lowest)
    quotient = value / unit
    whole = {"rn": round, "rz": math.trunc, "rm": math.floor, "rp": math.ceil}[mode](quotient)
    return whole * unit


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_directed_rounding_is_exact(mode: str) -> None:
    a, b, c = (sample_f32(seed, tame=True) for seed in (3, 4, 5))
    exact = [tuple(Fraction(float(x)) for x in row) for row in zip(a, b, c, strict=True)]
    for text, function in (
        (f"add.{mode}.f32 d, a, b;", lambda x, y, z: x + y),
        (f"mul.{mode}.f32 d, a, b;", lambda x, y, z: x * y),
        (f"fma.{mode}.f32 d, a, b, c;", lambda x, y, z: x * y + z),
        (f"div.{mode}.f32 d, a, b;", lambda x, y, z: x / y),
        (f"rcp.{mode}.f32 d, b;", lambda x, y, z: 1 / y),
    ):
        got = evaluate(text, a, b, c, result=np.float32)
        expected = [float(rounded(function(*row), mode, 24, -149)) for row in exact]
        assert got.tolist() == expected, text


def test_fused_products() -> None:
    a, b, c = (sample_f32(seed, tame=True) for seed in (3, 4, 5))
    wide = [x.astype(np.float64) for x in (a, b, c)]
    exact = [
        float(rounded(Fraction(x) * Fraction(y) + Fraction(z), "rn", 53, -1074)) for x, y, z in zip(*wide, strict=True)
    ]
    assert evaluate("fma.rn.f64 d, a, b, c;", *wide, result=np.float64).tolist() == exact
    packed = evaluate(
        "mov.b64 w0, {a, b}; mov.b64 w1, {b, c}; mov.b64 w2, {c, a}; fma.rn.f32x2 w3, w0, w1, w2; mov.b64 {r0, d}, w3;",
        a, b, c, result=np.float32,
    )  # fmt: skip
    assert_same(packed, evaluate("fma.rn.f32 d, b, c, a;", a, b, c, result=np.float32))


def test_extremes() -> None:
    a, b, c = sample_f32(1), sample_f32(2), sample_f32(3)
    zero_order = np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.fmin(a, b))
    assert_same(evaluate("min.f32 d, a, b;", a, b, result=np.float32), zero_order)
    nan_wins = np.where(np.isnan(a) | np.isnan(b), np.float32(np.nan), zero_order)
    assert_same(evaluate("min.NaN.f32 d, a, b;", a, b, result=np.float32), nan_wins)
    larger = np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.fmax(a, b))
    assert_same(evaluate("max.f32 d, a, b;", a, b, result=np.float32), larger)
    three = np.where((larger == 0) & (c == 0), np.where(np.signbit(larger), c, larger), np.fmax(larger, c))
    assert_same(evaluate("max.f32 d, a, b, c;", a, b, c, result=np.float32), three)
    magnitude = np.fmax(np.abs(a), np.abs(b))
    signs = np.where(np.signbit(a) ^ np.signbit(b), np.float32(-1), np.float32(1))
    assert_same(evaluate("max.xorsign.abs.f32 d, a, b;", a, b, result=np.float32), np.copysign(magnitude, signs))
    x, y = sample_f64(1), sample_f64(2)
    got = evaluate("max.f64 d, a, b;", x, y, result=np.float64)
    assert_same(np.abs(got), np.abs(np.fmax(x, y)))


@pytest.mark.parametrize(
    ("op", "function", "ulps"),
    [
        ("ex2.approx", np.exp2, 1), ("lg2.approx", np.log2, 1), ("sin.approx", np.sin, 1), ("cos.approx", np.cos, 1),
        ("tanh.approx", np.tanh, 1), ("rsqrt.approx", lambda x: 1 / np.sqrt(x), 1), ("rcp.approx", lambda x: 1 / x, 1),
        ("sqrt.approx", np.sqrt, 1),
    ],
)  # fmt: skip
def test_approximations(op: str, function: Callable[[Array], Array], ulps: int) -> None:
    a = np.concatenate([sample_f32(1), sample_f32(2, tame=True)])
    got = evaluate(f"{op}.f32 d, a;", a, result=np.float32)
    expected = function(a.astype(np.float64)).astype(np.float32)
    finite = np.isfinite(expected)
    assert_same(got[~finite], expected[~finite])
    assert (np.abs(got[finite] - expected[finite]) <= ulps * np.spacing(np.abs(expected[finite]))).all()


def test_exponentials_of_integers_are_exact() -> None:
    a = np.arange(-160, 352).astype(np.float32)
    assert_same(
        evaluate("ex2.approx.f32 d, a;", a, result=np.float32), np.exp2(a.astype(np.float64)).astype(np.float32)
    )
    assert_same(
        evaluate("ex2.approx.ftz.f32 d, a;", a, result=np.float32),
        flush(np.exp2(a.astype(np.float64)).astype(np.float32)),
    )


@pytest.mark.parametrize(("kind", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_halves(kind: str, dtype: type) -> None:
    a, b = sample_half(dtype, 1), sample_half(dtype, 2)
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    for op, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply)):
        expected = function(wide_a, wide_b).astype(dtype)
        assert_same(evaluate(f"{op}.rn.{kind} d, a, b;", a, b, result=dtype), expected)
        packed = evaluate(
            f"mov.b32 r0, {{a, b}}; mov.b32 r1, {{b, a}}; {op}.{kind}x2 r2, r1, r0; mov.b32 {{h0, d}}, r2;",
            a,
            b,
            result=dtype,
        )
        assert_same(packed, expected)
    assert_same(evaluate(f"neg.{kind} d, a;", a, result=dtype), (-wide_a).astype(dtype))
    assert_same(evaluate(f"abs.{kind} d, a;", a, result=dtype), np.abs(wide_a).astype(dtype))
    zeros = (wide_a == 0) & (wide_b == 0)
    larger = np.where(zeros, np.where(np.signbit(wide_a), wide_b, wide_a), np.fmax(wide_a, wide_b)).astype(dtype)
    assert_same(evaluate(f"max.{kind} d, a, b;", a, b, result=dtype), larger)
    nan_wins = np.where(np.isnan(wide_a) | np.isnan(wide_b), np.nan, larger.astype(np.float32)).astype(dtype)
    assert_same(evaluate(f"max.NaN.{kind} d, a, b;", a, b, result=dtype), nan_wins)


@pytest.mark.parametrize(("kind", "dtype", "digits", "lowest", "largest"), [
    ("f16", np.float16, 11, -24, 65504.0),
    ("bf16", ml_dtypes.bfloat16, 8, -133, float(ml_dtypes.finfo("bfloat16").max)),
])  # fmt: skip
def test_fused_halves_round_once(kind: str, dtype: type, digits: int, lowest: int, largest: float) -> None:
    a, b, c = (sample_half(dtype, seed) for seed in (1, 2, 3))
    # Products far below and sums at the midpoint between neighbours are where rounding twice goes wrong.
    a[:256], b[:256], c[:256] = a[:256] * dtype(2**-7), dtype(2**-9), dtype(1 + 2.0 ** (1 - digits))
    got = evaluate(f"fma.rn.{kind} d, a, b, c;", a, b, c, result=dtype)
    for row in range(COUNT):
        x, y, z = (float(array[row]) for array in (a, b, c))
        if not all(map(math.isfinite, (x, y, z))):
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        expected = float(rounded(exact, "rn", digits, lowest))
        if abs(expected) > largest:
            expected = math.copysign(math.inf, expected)
        assert float(got[row]) == expected, (x, y, z)
    relu = evaluate(f"fma.rn.relu.{kind} d, a, b, c;", a, b, c, result=dtype).astype(np.float32)
    assert_same(
        relu,
        np.where(np.isnan(got.astype(np.float32)), np.nan, np.maximum(got.astype(np.float32), 0)).astype(np.float32),
    )


def test_properties_of_floats() -> None:
    a = sample_f32(1)
    subnormal = (np.abs(a) < 2.0**-126) & (a != 0)
    for name, expected in (
        ("finite", np.isfinite(a)), ("infinite", np.isinf(a)), ("number", ~np.isnan(a)), ("notanumber", np.isnan(a)),
        ("subnormal", subnormal), ("normal", np.isfinite(a) & ~subnormal),
    ):  # fmt: skip
        got = evaluate(f"testp.{name}.f32 p, a; selp.u32 d, 1, 0, p;", a, result=np.uint32)
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", ["rcp", "rsqrt"])
def test_gross_approximations_in_double_precision(name: str) -> None:
    a = sample_f64(9)
    got = evaluate(f"{name}.approx.ftz.f64 d, a;", a, result=np.float64, target="sm_90a")
    bits = a.view(np.uint64) & ~np.uint64(0xFFFFFFFF)  # the lower words of operand and result do not count
    kept = bits.view(np.float64)
    kept = np.where(np.abs(kept) < 2.0**-1022, np.copysign(0.0, kept), kept)
    exact = 1 / kept if name == "rcp" else 1 / np.sqrt(kept)
    flushed = np.where(np.abs(exact) < 2.0**-1022, np.copysign(0.0, exact), exact)
    assert not (got.view(np.uint64) & np.uint64(0xFFFFFFFF)).any()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(flushed))
    np.testing.assert_allclose(got, flushed, rtol=2.0**-20)
    np.testing.assert_array_equal(np.signbit(got)[~np.isnan(got)], np.signbit(flushed)[~np.isnan(got)])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_a_factor_from_outside_of_a_tensor_makes_zero(dtype: str, relu: str) -> None:
    kind = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]
    a, b, c = (sample_half(kind, seed) for seed in (1, 2, 3))
    for operand, first in ((a, 0), (b, 1), (c, 2)):
        operand.view(np.uint16)[first::9] = 0x7FF7  # what a tensor copy fills with
        operand.view(np.uint16)[first + 3 :: 9] = 0xFFF7
    outside = np.any([operand.view(np.uint16) & 0x7FFF == 0x7FF7 for operand in (a, b)], axis=0)
    got = evaluate(f"fma.rn.oob{relu}.{dtype} d, a, b, c;", a, b, c, result=kind, target="sm_90a")
    plain = evaluate(f"fma.rn{relu}.{dtype} d, a, b, c;", a, b, c, result=kind, target="sm_90a")
    assert (got.view(np.uint16)[outside] == 0).all()
    assert_same(got[~outside], plain[~outside])
    pairs = [operand.view(np.uint32) for operand in (a, b, c)]
    packed = evaluate(f"fma.rn.oob{relu}.{dtype}x2 d, a, b, c;", *pairs, result=np.uint32, target="sm_90a")
    assert_same(packed.view(kind), got)
