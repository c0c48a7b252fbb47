"""Inputs of the probe kernels: bit patterns by class, the same on every machine."""

from __future__ import annotations

import ml_dtypes
import numpy as np

LANES = 128
SLOTS = 4
"""Each operand position of an instruction reads values of its own."""

MATRIX_SLOTS = 128
"""Registers of a matrix operand that differ."""

Array = np.ndarray
_FLOATS: dict[str, type] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
_SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 127.5, -128.5, 65504.0, 1e-7, 6e-8, -6e-8, 1e-40, np.inf, -np.inf,
    np.nan,
)  # fmt: skip
_MATRIX: dict[str, type] = {
    **_FLOATS, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "tf32": np.float32,
}  # fmt: skip
_INTEGERS = (0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256)


def integers(bits: int, seed: int) -> Array:
    """[SLOTS, LANES] patterns of ``bits``: edges, small numbers, and random ones of every magnitude."""
    rng = np.random.default_rng((1, bits, seed))
    top = 1 << (bits - 1)
    edges = [*(value for value in _INTEGERS if value < 2 * top), top, top - 1, top + 1, 2 * top - 1, 2 * top - 2]
    values = rng.integers(0, 2 * top - 1, (SLOTS, LANES), dtype=np.uint64, endpoint=True)
    values >>= rng.integers(0, bits, (SLOTS, LANES), dtype=np.uint64)
    chosen = rng.random((SLOTS, LANES)) < 0.5
    values[chosen] = np.array(edges, np.uint64)[rng.integers(0, len(edges), int(chosen.sum()))]
    return values.astype(f"uint{bits}")


def floats(name: str, count: int = 1) -> Array:
    """[SLOTS, LANES] patterns of ``count`` packed numbers: special values, and random ones of many magnitudes."""
    dtype = _FLOATS[name]
    rng = np.random.default_rng((2, *name.encode(), count))
    shape = (SLOTS, LANES, count)
    span = 12 if name == "f16" else 30
    with np.errstate(all="ignore"):
        values = rng.standard_normal(shape) * np.exp2(rng.integers(-span, span, shape))
        near = rng.random(shape) < 0.4
        values[near] = rng.standard_normal(int(near.sum())) * 4
        chosen = rng.random(shape) < 0.25
        values[chosen] = np.array(_SPECIAL)[rng.integers(0, len(_SPECIAL), int(chosen.sum()))]
        return _packed(values.astype(dtype))


def matrix(name: str, integral: bool = False) -> Array:
    """[MATRIX_SLOTS, LANES] 32-bit (``f64``: 64-bit) patterns of ordinary matrix elements of a type."""
    rng = np.random.default_rng((3, *name.encode()))
    if integral or name in ("s8", "u8", "s32"):
        if name == "s32":
            return rng.integers(-(2**20), 2**20, (MATRIX_SLOTS, LANES)).astype(np.int32).view(np.uint32)
        return rng.integers(0, 2**32, (MATRIX_SLOTS, LANES), dtype=np.uint32)
    dtype = np.dtype(_MATRIX[name])
    count = max(1, 4 // dtype.itemsize)
    return _packed(rng.standard_normal((MATRIX_SLOTS, LANES, count)).astype(dtype))


def _packed(values: Array) -> Array:
    """The numbers along the last axis in one pattern, first lowest."""
    size = values.dtype.itemsize * values.shape[-1]
    return np.ascontiguousarray(values).view(f"uint{8 * size}").reshape(values.shape[:-1])


def narrow(bits: int) -> Array:
    """[SLOTS, LANES] patterns of packed 8-bit and smaller floats: any bits at all."""
    rng = np.random.default_rng((4, bits))
    return rng.integers(0, 2**bits, (SLOTS, LANES), dtype=np.uint64).astype(f"uint{bits}")


def outside(name: str) -> Array:
    """[SLOTS, LANES] patterns of a half type, alone or packed in pairs: ordinary numbers and NaNs of every kind.

    Among them is the one that tensor copies write for what lies outside a tensor, 0x7ff7.
    """
    kind, _, pair = name.partition("x")
    quiet = 0x7E00 if kind == "f16" else 0x7FC0
    nans = [0x7FF7, 0x7FF7, 0xFFF7, 0x7FFF, 0xFFFF, quiet, quiet - 1, 0x7FF6, 0x7FE7]
    rng = np.random.default_rng((5, *name.encode()))
    values = floats(kind, 2 if pair else 1)
    words = values.view(np.uint16).reshape(*values.shape, -1).copy()
    chosen = rng.random(words.shape) < 0.4
    words[chosen] = np.array(nans, np.uint16)[rng.integers(0, len(nans), int(chosen.sum()))]
    return _packed(words)


def subnormals(name: str) -> Array:
    """[SLOTS, LANES] patterns of a type, alone or packed in pairs: zeros, subnormals, the smallest normals."""
    kind, _, pair = name.partition("x")
    dtype = np.dtype(_FLOATS[kind])
    bits = 8 * dtype.itemsize
    smallest = int(np.array(ml_dtypes.finfo(dtype).smallest_normal, dtype).view(f"uint{bits}"))
    rng = np.random.default_rng((6, *name.encode()))
    shape = (SLOTS, LANES, 2 if pair else 1)
    patterns = rng.integers(0, 3 * smallest, shape, dtype=np.uint64)
    patterns[rng.random(shape) < 0.2] = 0
    patterns |= rng.integers(0, 2, shape, dtype=np.uint64) << np.uint64(bits - 1)
    return _packed(patterns.astype(f"uint{bits}"))


def of_class(name: str) -> Array:
    """The array of a class, which is an operand type, or ``m_<type>`` for the registers of a matrix."""
    if name.startswith("m_"):
        return matrix(name[2:])
    if name.startswith("sub_"):
        return subnormals(name[4:])
    if name.startswith("oob_"):
        return outside(name[4:])
    if name in _FLOATS:
        return floats(name)
    if name in ("f16x2", "bf16x2", "f32x2"):
        return floats(name[:-2], 2)
    if name in ("e4m3x2", "e5m2x2"):
        return narrow(16)
    return integers(int(name[1:]), 0)
