"""``cvt``, executed and compared with NumPy, ml_dtypes and exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations

import ml_dtypes
import numpy as np
import pytest
from simulator_scalar import Array, evaluate
from test_simulator_scalar_float import assert_same, rounded, sample_f32, sample_f64, sample_half
from test_simulator_scalar_integer import sample as sample_integer
from test_simulator_scalar_integer import signed

BF16 = ml_dtypes.bfloat16


@pytest.fixture(autouse=True)
def quiet() -> object:
    with np.errstate(all="ignore"):
        yield


def limits(kind: str) -> tuple[int, int]:
    bits = int(kind[1:])
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind[0] == "s" else (0, 2**bits - 1)


INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]


@pytest.mark.parametrize(("result", "source"), list(permutations(INTEGERS, 2)))
def test_integers(result: str, source: str) -> None:
    bits, width = int(source[1:]), int(result[1:])
    register = max(width, 16)
    a = sample_integer(bits, 3)
    values = [signed(v, bits) if source[0] == "s" else v for v in a.tolist()]
    got = evaluate(f"cvt.{result}.{source} d, a;", a, result=f"uint{register}").tolist()
    kept = [signed(v, width) if result[0] == "s" else v & (2**width - 1) for v in values]
    assert got == [v & (2**register - 1) for v in kept]
    low, high = limits(result)
    saturated = evaluate(f"cvt.sat.{result}.{source} d, a;", a, result=f"uint{register}").tolist()
    assert saturated == [max(low, min(high, v)) & (2**register - 1) for v in values]


def test_a_narrow_result_is_extended_to_its_register() -> None:
    a = np.array([0x80, 0x17F, 0xFFFFFFFF, 5] * 64, np.uint32)
    assert evaluate("cvt.s8.s32 d, a;", a, result=np.uint32)[:4].tolist() == [0xFFFFFF80, 0x7F, 0xFFFFFFFF, 5]
    assert evaluate("cvt.u8.u32 d, a;", a, result=np.uint32)[:4].tolist() == [0x80, 0x7F, 0xFF, 5]


@pytest.mark.parametrize("source", ["s32", "u32", "s64", "u64", "s8", "u16"])
@pytest.mark.parametrize(("result", "dtype", "digits", "lowest", "largest"), [
    ("f32", np.float32, 24, -149, 3.5e38), ("f64", np.float64, 53, -1074, 1e308), ("f16", np.float16, 11, -24, 65504.0),
    ("bf16", BF16, 8, -133, 3.4e38),
])  # fmt: skip
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integer_to_float(
    source: str, result: str, dtype: type, digits: int, lowest: int, largest: float, mode: str
) -> None:
    bits = int(source[1:])
    a = sample_integer(bits, 5)
    got = evaluate(f"cvt.{mode}.{result}.{source} d, a;", a, result=dtype)
    for value, seen in zip(a.tolist(), got.astype(np.float64).tolist(), strict=True):
        exact = signed(value, bits) if source[0] == "s" else value
        expected = float(rounded(Fraction(exact), mode, digits, lowest))
        if abs(expected) > largest:
            toward = mode == "rz" or (mode == "rm" and exact > 0) or (mode == "rp" and exact < 0)
            expected = math.copysign(largest if toward else math.inf, exact)
        assert seen == expected, (value, seen, expected)


@pytest.mark.parametrize("result", ["s32", "u32", "s64", "u64", "s16", "u8"])
@pytest.mark.parametrize(("source", "sample"), [
    ("f32", sample_f32(1)), ("f64", sample_f64(1)), ("f16", sample_half(np.float16, 1)), ("bf16", sample_half(BF16, 1)),
])  # fmt: skip
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_float_to_integer(source: str, sample: Array, result: str, mode: str) -> None:
    register = max(int(result[1:]), 16)
    got = evaluate(f"cvt.{mode}.{result}.{source} d, a;", sample, result=f"uint{register}").tolist()
    low, high = limits(result)
    function = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode]
    for value, seen in zip(sample.astype(np.float64).tolist(), got, strict=True):
        if math.isnan(value):
            expected = 0 if source != "f64" and result[1:] != "64" else 1 << (int(result[1:]) - 1)
            if result[0] == "s":
                expected = signed(expected, int(result[1:]))
        elif math.isinf(value):
            expected = high if value > 0 else low
        else:
            expected = max(low, min(high, function(Fraction(value))))
        assert seen == expected & (2**register - 1), (value, seen, expected)


FORMATS = {"f16": (np.float16, 11, -24), "bf16": (BF16, 8, -133), "f32": (np.float32, 24, -149)}


@pytest.mark.parametrize(("result", "source"), [
    ("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "f64"), ("bf16", "f64"), ("bf16", "f16"),
])  # fmt: skip
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_narrowing(result: str, source: str, mode: str) -> None:
    a = {"f32": sample_f32(1), "f64": sample_f64(1), "f16": sample_half(np.float16, 1)}[source]
    dtype, digits, lowest = FORMATS[result]
    largest = float(ml_dtypes.finfo(dtype).max)
    got = evaluate(f"cvt.{mode}.{result}.{source} d, a;", a, result=dtype).astype(np.float64)
    for value, seen in zip(a.astype(np.float64).tolist(), got.tolist(), strict=True):
        if not math.isfinite(value):
            assert math.isnan(seen) if math.isnan(value) else seen == value
            continue
        expected = float(rounded(Fraction(value), mode, digits, lowest))
        if abs(expected) > largest:
            toward = mode == "rz" or (mode == "rm" and value > 0) or (mode == "rp" and value < 0)
            expected = math.copysign(largest if toward else math.inf, value)
        assert seen == expected, (value, seen, expected)
        assert math.copysign(1, seen) == math.copysign(1, value)


def test_all_half_patterns_widen_exactly() -> None:
    for kind, dtype in (("f16", np.float16), ("bf16", BF16)):
        a = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(dtype)
        assert_same(evaluate(f"cvt.f32.{kind} d, a;", a, result=np.float32), a.astype(np.float32))
        assert_same(evaluate(f"cvt.f64.{kind} d, a;", a[:8192], result=np.float64), a[:8192].astype(np.float64))
        assert_same(evaluate(f"cvt.rn.{kind}.f32 d, a;", a.astype(np.float32), result=dtype), a)


def test_near_ties_of_halves_agree_with_numpy() -> None:
    random = np.random.default_rng(11)
    for kind, dtype, dropped in (("f16", np.float16, 13), ("bf16", BF16, 16)):
        base = random.integers(0, 2**32, 4096, dtype=np.uint32) & ~np.uint32((1 << dropped) - 1)
        a = (base + (1 << (dropped - 1)) + random.integers(-1, 2, 4096)).astype(np.uint32).view(np.float32)
        assert_same(evaluate(f"cvt.rn.{kind}.f32 d, a;", a, result=dtype), a.astype(dtype))


def test_rounding_to_integers_in_place() -> None:
    a, b = sample_f32(1), sample_f64(1)
    for mode, function in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        assert_same(evaluate(f"cvt.{mode}.f32.f32 d, a;", a, result=np.float32), function(a))
        assert_same(evaluate(f"cvt.{mode}.f64.f64 d, a;", b, result=np.float64), function(b))


def test_saturation_and_flushing() -> None:
    a = sample_f32(1)
    unit = np.where(np.isnan(a), 0, np.clip(a, 0, 1)).astype(np.float32)
    assert (evaluate("cvt.sat.f32.f32 d, a;", a, result=np.float32) == unit).all()
    tiny = np.where(np.abs(a) < 2.0**-126, np.copysign(np.float32(0), a), a)
    assert_same(evaluate("cvt.ftz.f64.f32 d, a;", a, result=np.float64), tiny.astype(np.float64))
    relu = np.where(np.isnan(a), np.nan, np.maximum(a, 0)).astype(BF16)
    assert_same(evaluate("cvt.rn.relu.bf16.f32 d, a;", a, result=BF16), relu)


def test_tf32() -> None:
    a = sample_f32(1)
    for mode in ("rna", "rn", "rz"):
        got = evaluate(f"cvt.{mode}.tf32.f32 d, a;", a, result=np.float32)
        assert (got.view(np.uint32)[~np.isnan(a)] & 0x1FFF == 0).all()
        for value, seen in zip(a.astype(np.float64).tolist(), got.astype(np.float64).tolist(), strict=True):
            if not math.isfinite(value) or abs(value) > 3.4e38:
                continue
            unit = Fraction(2) ** (max(math.frexp(value)[1], -125) - 11)
            quotient = Fraction(value) / unit
            whole = {
                "rn": round, "rz": math.trunc,
                "rna": lambda q: math.floor(abs(q) + Fraction(1, 2)) * (1 if q > 0 else -1)
            }[mode](quotient)  # fmt: skip
            assert seen == float(whole * unit), (mode, value, seen)


@pytest.mark.parametrize(("kind", "dtype"), [("f16", np.float16), ("bf16", BF16)])
def test_packed_halves(kind: str, dtype: type) -> None:
    a, b = sample_f32(1), sample_f32(2)
    got = evaluate(f"cvt.rn.{kind}x2.f32 d, a, b;", a, b, result=np.uint32)
    assert_same((got >> 16).astype(np.uint16).view(dtype), a.astype(dtype))
    assert_same((got & 0xFFFF).astype(np.uint16).view(dtype), b.astype(dtype))
    single = evaluate(f"cvt.rz.{kind}.f32 d, b;", a, b, result=dtype)
    packed = evaluate(f"cvt.rz.{kind}x2.f32 r0, a, b; mov.b32 {{d, h0}}, r0;", a, b, result=dtype)
    assert_same(packed, single)


@pytest.mark.parametrize(("kind", "dtype"), [("e4m3x2", ml_dtypes.float8_e4m3fn), ("e5m2x2", ml_dtypes.float8_e5m2)])
def test_packed_fp8(kind: str, dtype: type) -> None:
    largest = float(ml_dtypes.finfo(dtype).max)
    a, b = sample_f32(1), sample_f32(2)
    got = evaluate(f"cvt.rn.satfinite.{kind}.f32 d, a, b;", a, b, result=np.uint16)
    for seen, values in (((got >> 8).astype(np.uint8), a), ((got & 255).astype(np.uint8), b)):
        expected = np.clip(values, -largest, largest).astype(dtype).astype(np.float32)
        seen_values = seen.view(dtype).astype(np.float32)
        np.testing.assert_array_equal(seen_values, expected)
    patterns = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    wide = evaluate(f"cvt.rn.f16x2.{kind} d, a;", patterns, result=np.uint32)
    assert_same(
        (wide & 0xFFFF).astype(np.uint16).view(np.float16),
        (patterns & 255).astype(np.uint8).view(dtype).astype(np.float16),
    )
    again = evaluate(f"cvt.rn.satfinite.{kind}.f16x2 d, a;", wide, result=np.uint16)
    finite = np.isfinite(wide.view(np.float16).astype(np.float32)).reshape(-1, 2).all(axis=1)
    np.testing.assert_array_equal(again[finite], patterns[finite])


@pytest.mark.parametrize(("kind", "dtype", "bits", "shift"), [
    ("e2m1x2", ml_dtypes.float4_e2m1fn, 4, 4), ("e2m3x2", ml_dtypes.float6_e2m3fn, 6, 8),
    ("e3m2x2", ml_dtypes.float6_e3m2fn, 6, 8),
])  # fmt: skip
def test_packed_fp4_and_fp6(kind: str, dtype: type, bits: int, shift: int) -> None:
    a, b = sample_f32(3, tame=True), sample_f32(4, tame=True)
    largest = float(ml_dtypes.finfo(dtype).max)
    size, register = ("uint16", "") if shift == 8 else ("uint16", ".reg .b8 n; ")
    name = "n" if register else "d"
    after = "cvt.u16.u8 d, n;" if register else ""
    got = evaluate(f"{register}cvt.rn.satfinite.{kind}.f32 {name}, a, b; {after}", a, b, result=size)
    for field, values in ((got >> shift, a), (got & (2**shift - 1), b)):
        seen = field.astype(np.uint8).view(dtype).astype(np.float32)
        np.testing.assert_array_equal(seen, np.clip(values, -largest, largest).astype(dtype).astype(np.float32))
        assert (field < 2**bits).all()


def test_integer_packing() -> None:
    a, b, c = (sample_integer(32, seed) for seed in (1, 2, 3))
    x, y = a.view(np.int32).astype(np.int64), b.view(np.int32).astype(np.int64)
    got = evaluate("cvt.pack.sat.s16.s32 d, a, b;", a, b, result=np.uint32)
    expected = (np.clip(x, -32768, 32767) & 0xFFFF) << 16 | np.clip(y, -32768, 32767) & 0xFFFF
    np.testing.assert_array_equal(got, expected)
    got = evaluate("cvt.pack.sat.u8.s32.b32 d, a, b, c;", a, b, c, result=np.uint32)
    np.testing.assert_array_equal(
        got, ((np.clip(x, 0, 255) << 8 | np.clip(y, 0, 255)) | (c.astype(np.int64) << 16)) & 0xFFFFFFFF
    )


def stochastic(value: float, random: int, discarded: int, relu: bool, satfinite: bool, dtype: type) -> float:
    """Rounded by the carry out of random bits added to the first discarded bits of the magnitude."""
    info = ml_dtypes.finfo(dtype)
    if math.isnan(value) or (relu and math.copysign(1.0, value) < 0):
        return math.nan if math.isnan(value) else 0.0
    largest = float(info.max)
    magnitude = math.inf
    if not math.isinf(value):
        exponent = max(math.frexp(value)[1] - 1, int(info.minexp)) if value else int(info.minexp)
        unit = Fraction(2) ** (exponent - int(info.nmant))
        steps = math.floor(abs(Fraction(value)) / unit * 2**discarded) + random
        magnitude = (steps >> discarded) * unit
    clamped = float(magnitude) if magnitude <= largest else largest if satfinite else math.inf
    return math.copysign(clamped, value)


@pytest.mark.parametrize("flags", ["", ".relu", ".satfinite", ".relu.satfinite"])
@pytest.mark.parametrize(("kind", "dtype", "discarded"), [("f16x2", np.float16, 13), ("bf16x2", BF16, 16)])
def test_stochastic_rounding(kind: str, dtype: type, discarded: int, flags: str) -> None:
    high, low = sample_f32(31), sample_f32(32)
    random = np.random.default_rng(33).integers(0, 2**32, len(high), dtype=np.uint32)
    got = evaluate(f"cvt.rs{flags}.{kind}.f32 d, a, b, c;", high, low, random, result=np.uint32).view(dtype)
    mask = (1 << discarded) - 1
    chosen = "relu" in flags, "satfinite" in flags
    expected = [
        stochastic(float(value), bits & mask, discarded, *chosen, dtype)
        for a, b, r in zip(high, low, random.tolist(), strict=True)
        for value, bits in ((b, r), (a, r >> 16))
    ]
    assert_same(got, np.array(expected).astype(dtype))
