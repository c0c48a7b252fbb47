"""How far the simulator may be from hardware: nothing, but for what the ISA documents as approximate.

Bounds are those of the PTX ISA's descriptions of the approximate instructions (``ex2.approx``: 2 ulp, and so on), with
room for an exact result on the simulator's side. Matrix products accumulate in an order, with a rounding and with guard
bits that the ISA leaves open; ``mma.sync`` into f16 agrees all the same. The pattern of a NaN is left open, too.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
from golden_probes import Result

Array = np.ndarray
_FLOATS: dict[str, type] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
_PACKED = {"f16x2": ("f16", 2), "bf16x2": ("bf16", 2), "f32x2": ("f32", 2)}
# By the beginning of the opcode: relative and absolute bound.
_APPROXIMATE: tuple[tuple[str, float, float], ...] = (
    ("div.approx", 2.0**-21, 0.0),
    ("div.full", 2.0**-21, 0.0),
    ("rcp.approx.ftz.f64", 2.0**-19, 0.0),
    ("rsqrt.approx.f64", 2.0**-19, 0.0),
    ("rsqrt.approx.ftz.f64", 2.0**-19, 0.0),
    ("rcp.approx", 2.0**-22, 0.0),
    ("sqrt.approx", 2.0**-21, 0.0),
    ("rsqrt.approx", 2.0**-21, 0.0),
    ("sin.approx", 0.0, 2.0**-20),
    ("cos.approx", 0.0, 2.0**-20),
    ("lg2.approx", 2.0**-21, 2.0**-21),
    ("ex2.approx.ftz.bf16", 2.0**-7, 0.0),
    ("ex2.approx.f16", 2.0**-9, 2.0**-23),
    ("ex2.approx", 2.0**-21, 0.0),
    ("tanh.approx.f32", 2.0**-10, 0.0),
    ("tanh.approx.f16", 0.0, 2.0**-9),
    ("tanh.approx.bf16", 0.0, 2.0**-7),
)
_TRIGONOMETRIC_RANGE = 2 * np.pi
_HALF_ACCUMULATORS = 2.0**-6
_EIGHT_BIT_PRODUCTS = 2.0**-5
_SINGLE_ACCUMULATORS = 2.0**-16


def agrees(result: Result, simulated: Array, measured: Array, first_source: Array | None) -> Array:
    """Which lanes agree. Rows are [LANES] of 64-bit patterns; ``first_source`` holds the first operand's patterns."""
    same = simulated == measured
    product = result.opcode.startswith(("mma", "wgmma"))
    kind, count = _PACKED.get(result.type, (result.type, 1))
    if result.opcode.startswith("wgmma") and result.type == "b32":  # those of mma.sync are equal
        kind, count = "f16", 2
    if kind not in _FLOATS:
        return same
    left, right = (_numbers(row, kind, count) for row in (simulated, measured))
    relative, absolute = _bounds(result, product)
    with np.errstate(all="ignore"):
        close = np.abs(left - right) <= relative * np.abs(right) + absolute
        close |= (left == right) | np.isnan(left) & np.isnan(right)  # infinities too
    if result.opcode.startswith(("sin.", "cos.")) and first_source is not None:
        close |= ~(np.abs(_numbers(first_source, "f32", 1)) <= _TRIGONOMETRIC_RANGE)
    return same | close.all(axis=-1)


def _bounds(result: Result, product: bool) -> tuple[float, float]:
    if product:
        if result.type == "f64":
            return 0.0, 0.0
        if result.type == "b32":
            return 0.0, _HALF_ACCUMULATORS
        eight_bits = result.opcode.startswith("wgmma") and any(name in result.opcode for name in (".e4m3", ".e5m2"))
        return 0.0, _EIGHT_BIT_PRODUCTS if eight_bits else _SINGLE_ACCUMULATORS
    for opcode, relative, absolute in _APPROXIMATE:
        if result.opcode.startswith(opcode):
            return relative, absolute
    return 0.0, 0.0


def _numbers(patterns: Array, kind: str, count: int) -> Array:
    """[lanes, count] values of packed patterns, as fp64."""
    dtype = np.dtype(_FLOATS[kind])
    narrow = patterns.astype(f"uint{8 * dtype.itemsize * count}")
    return narrow.view(dtype).reshape(len(patterns), count).astype(np.float64)
