"""Values that an H200 gave where one could expect others, mostly from the text of the PTX ISA: see tests/oracles."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from simulator_scalar import evaluate

Array = np.ndarray


def words(*values: int) -> Array:
    return np.array(values, np.uint32)


def longs(*values: int) -> Array:
    return np.array(values, np.uint64)


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_the_carry_of_a_subtraction_is_the_absence_of_a_borrow(dtype: type) -> None:
    t = f"u{8 * np.dtype(dtype).itemsize}"
    a, b = np.array([2, 1, 1, 0], dtype), np.array([1, 1, 2, 2**31], dtype)
    carry = evaluate(f"sub.cc.{t} d, a, b; addc.{t} d, 0, 0;", a, b, result=dtype)
    assert carry.tolist() == [1, 1, 0, 0]
    largest = int(np.iinfo(dtype).max)
    x = np.array([largest, largest, 0, 0], dtype)  # x + 1 carries where x is the largest
    after = evaluate(f"add.cc.{t} d, c, 1; subc.{t} d, a, b;", a, b, x, result=dtype)
    assert after.tolist() == [1, 0, largest - 1, largest - 2**31]
    twice = evaluate(f"add.cc.{t} d, c, 1; subc.cc.{t} d, a, b; addc.{t} d, 0, 0;", a, b, x, result=dtype)
    assert twice.tolist() == [1, 1, 0, 0]
    equal = evaluate(f"add.cc.{t} d, b, 0; subc.cc.{t} d, a, a; addc.{t} d, 0, 0;", a, b, result=dtype)
    assert equal.tolist() == [0, 0, 0, 0]


def test_fields_of_64_bits_have_start_and_length_of_32_bits() -> None:
    a = longs(0x186A146, 0x8000000000000001, 0x14B6E53CC8CE104, 0xB13313DE560B74, 0x65C04E0C40D87CA9)
    start, length = words(0x106, 0x80000001, 5, 0, 0x100), words(0x292D2D, 0x9F4E, 0x100, 0x2E8F319, 0xFF)
    unsigned = evaluate("bfe.u64 d, a, b, c;", a, start, length, result=np.uint64)
    assert unsigned.tolist() == [0, 0, 0xA5B729E646708, 0xB13313DE560B74, 0]
    signed = evaluate("bfe.s64 d, a, b, c;", a, start, length, result=np.uint64)
    assert signed.tolist() == [0, 2**64 - 1, 0xA5B729E646708, 0xB13313DE560B74, 0]


def test_fields_are_inserted_into_64_bits_likewise() -> None:
    a, b = longs(0x186A146, 0xBA59FB482DD, 0x2DBA26, 5), longs(0x100, 0x8000000000000001, 8, 0x60AEA60A454C819)
    start, length = words(0x292D2D, 5, 0x20, 0), words(0x3B8019C, 0x100, 0x34655B10, 0x80000000)
    found = evaluate("bfi.b64 d, a, b, c, x;", a, b, start, length, result=np.uint64)
    assert found.tolist() == [0x100, 0x174B3F6905BA1, 0x2DBA2600000008, 5]


def test_fields_of_32_bits_have_start_and_length_of_8_bits() -> None:
    a = words(0x12345678, 0x12345678)
    found = evaluate("bfe.u32 d, a, b, c;", a, words(0x104, 4), words(8, 0x108), result=np.uint32)
    assert found.tolist() == [0x67, 0x67]


@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_zeros_are_normal_numbers(kind: str, dtype: type) -> None:
    a = np.array([0.0, -0.0, 1.0, np.finfo(dtype).smallest_subnormal, np.inf, np.nan], dtype)
    found = evaluate(f"testp.normal.{kind} p, a; selp.u32 d, 1, 0, p;", a, result=np.uint32)
    assert found.tolist() == [1, 1, 1, 0, 0, 0]


def test_conversion_to_f16_does_not_flush() -> None:
    a = np.array([1e-40, -1e-40], np.float32)
    for mode, bits in (("rn", [0, 0x8000]), ("rz", [0, 0x8000]), ("rm", [0, 0x8001]), ("rp", [1, 0x8000])):
        assert evaluate(f"cvt.{mode}.ftz.f16.f32 d, a;", a, result=np.uint16).tolist() == bits
    assert evaluate("cvt.rp.ftz.sat.f16.f32 d, a;", a, result=np.uint16).tolist() == [1, 0]


def test_nan_as_tf32() -> None:
    a = words(0x7FC00000, 0x7FFFFFFF, 0xFFC00000, 0x7F800001, 0x7F800000, 0xFF800000)
    for mode in ("rn", "rz", "rn.relu", "rz.relu"):
        found = evaluate(f"cvt.{mode}.tf32.f32 d, a;", a, result=np.uint32)
        assert found.tolist() == [*[0x7FFFE000] * 4, 0x7F800000, 0 if "relu" in mode else 0xFF800000]
    away = evaluate("cvt.rna.tf32.f32 d, a;", a, result=np.uint32)
    assert away.tolist() == [0x7FC00000, 0x7FFFE000, 0xFFC00000, 0x7F800000, 0x7F800000, 0xFF800000]
    finite = evaluate("cvt.rna.satfinite.tf32.f32 d, a;", a, result=np.uint32)
    assert finite.tolist() == [0x7FBFE000, 0x7FFFC000, 0xFFBFE000, 0x7F7FE000, 0x7F7FE000, 0xFF7FE000]


def test_approximations_of_halves_round_toward_zero() -> None:
    a = np.array([0.0097198486328125, 5.9453125, 16.0, -14.5, np.inf, -np.inf, np.nan, 0.0], np.float16)
    found = evaluate("ex2.approx.f16 d, a;", a, result=np.uint16)
    assert found.tolist() == [0x3C06, 0x53B3, 0x7C00, 0x02D4, 0x7C00, 0, 0x7FFF, 0x3C00]
    wide = np.array([0.008544921875, 2.734375, -128.0, -np.inf, np.inf, 128.0, np.nan], ml_dtypes.bfloat16)
    found = evaluate("ex2.approx.ftz.bf16 d, a;", wide, result=np.uint16)
    assert found.tolist() == [0x3F80, 0x40D4, 0, 0, 0x7F80, 0x7F80, 0x7FFF]
    unit = np.array([0.5, -0.5, 1.0, -0.0, 100.0], np.float16)
    for dtype, kind in ((np.float16, "f16"), (ml_dtypes.bfloat16, "bf16")):
        found = evaluate(f"tanh.approx.{kind} d, a;", unit.astype(dtype), result=dtype).astype(np.float64)
        exact = np.tanh(unit.astype(np.float64))
        step = np.float64(ml_dtypes.finfo(dtype).eps)
        assert (np.abs(found) <= np.abs(exact)).all()
        assert (np.abs(found) > np.abs(exact) * (1 - step))[exact != 0].all()
        assert np.signbit(found).tolist() == np.signbit(exact).tolist()
