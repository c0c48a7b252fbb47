"""Instructions of mixed formats: halves with singles, power-of-two scales, magnitudes of three."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from simulator_scalar import evaluate

BF16 = ml_dtypes.bfloat16
COUNT = 256


def normal(seed: int, dtype: type) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(COUNT).astype(dtype)


@pytest.mark.parametrize(("kind", "dtype"), [("f16", np.float16), ("bf16", BF16)])
def test_halves_with_singles(kind: str, dtype: type) -> None:
    a, b, c = normal(1, dtype), normal(2, dtype), normal(3, np.float32)
    wide_a, wide_b, wide_c = (x.astype(np.float64) for x in (a, b, c))
    # Sums and products of these magnitudes are exact in fp64, so that one rounding is left.
    np.testing.assert_array_equal(
        evaluate(f"add.rn.f32.{kind} d, a, b;", a, c, result=np.float32), (wide_a + wide_c).astype(np.float32)
    )
    np.testing.assert_array_equal(
        evaluate(f"sub.rn.f32.{kind} d, a, b;", a, c, result=np.float32), (wide_a - wide_c).astype(np.float32)
    )
    np.testing.assert_array_equal(
        evaluate(f"fma.rn.f32.{kind} d, a, b, c;", a, b, c, result=np.float32),
        (wide_a * wide_b + wide_c).astype(np.float32),
    )
    saturated = evaluate(f"add.rz.sat.f32.{kind} d, a, b;", a, c, result=np.float32)
    assert ((saturated >= 0) & (saturated <= 1)).all()
    up = evaluate(f"add.rp.f32.{kind} d, a, b;", a, c, result=np.float32)
    down = evaluate(f"add.rm.f32.{kind} d, a, b;", a, c, result=np.float32)
    assert (down.astype(np.float64) <= wide_a + wide_c).all()
    assert (up.astype(np.float64) >= wide_a + wide_c).all()


SCALES = np.array([1.0, 1.5, 2.0, 3.0, -4.0, 0.75, 2.0**127, 3e38, 2.0**-126, 1e-39, 0.0, np.inf, np.nan, 1e-45])


def exponents(value: float, up: bool, saturate: bool) -> int:
    if np.isnan(value):
        return 255
    if np.isinf(value):
        return 254 if saturate else 255
    if abs(value) <= 2.0**-127:
        return 0
    fraction, exponent = np.frexp(abs(value))
    found = max(int(exponent) - 1 + 127 + int(up and fraction != 0.5), 0)
    return min(found, 254) if saturate else found


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("saturate", [False, True])
def test_power_of_two_scales(up: bool, saturate: bool) -> None:
    high = np.resize(SCALES, COUNT).astype(np.float32)
    low = np.abs(normal(4, np.float32)) * 2.0**10
    mode = ("rp" if up else "rz") + (".satfinite" if saturate else "")
    got = evaluate(f"cvt.{mode}.ue8m0x2.f32 d, a, b;", high, low, result=np.uint16)
    for packed, first, second in zip(got.tolist(), high.tolist(), low.tolist(), strict=True):
        assert (packed >> 8, packed & 0xFF) == (exponents(first, up, saturate), exponents(second, up, saturate))
    pairs = np.stack([low.astype(BF16), high.astype(BF16)], axis=1).view(np.uint32).reshape(-1)
    got = evaluate(f"cvt.{mode}.ue8m0x2.bf16x2 d, a;", pairs, result=np.uint16)
    rounded = high.astype(BF16).astype(np.float64)
    assert [packed >> 8 for packed in got.tolist()] == [exponents(value, up, saturate) for value in rounded.tolist()]


def test_scales_become_powers_of_two() -> None:
    scales = np.arange(COUNT, dtype=np.uint16)
    got = evaluate("cvt.rn.bf16x2.ue8m0x2 d, a;", scales | 127 << 8, result=np.uint32)
    assert (got >> 16 == 0x3F80).all()
    values = (got & 0xFFFF).astype(np.uint16).view(BF16).astype(np.float64)
    np.testing.assert_array_equal(values[:-1], 2.0 ** (np.arange(255) - 127.0))
    assert np.isnan(values[-1])


def test_magnitudes_of_three() -> None:
    a, b, c = (normal(seed, np.float32) for seed in (5, 6, 7))
    stacked = np.abs(np.stack([a, b, c]))
    np.testing.assert_array_equal(evaluate("max.abs.f32 d, a, b, c;", a, b, c, result=np.float32), stacked.max(0))
    np.testing.assert_array_equal(evaluate("min.abs.f32 d, a, b, c;", a, b, c, result=np.float32), stacked.min(0))
    a[3] = np.nan
    assert np.isnan(evaluate("max.NaN.abs.f32 d, a, b, c;", a, b, c, result=np.float32)[3])


def test_halves_convert_without_a_rounding() -> None:
    a = normal(8, np.float16)
    got = evaluate("cvt.bf16.f16 d, a;", a, result=BF16)
    np.testing.assert_array_equal(got.astype(np.float32), a.astype(np.float32).astype(BF16).astype(np.float32))
