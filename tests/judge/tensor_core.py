"""How the tensor cores of Hopper sum, to the bit.

Khattak and Mikaitis, "Accurate models of NVIDIA tensor cores", 2025. `tests/tasks/test_tasks_rounding.py` compares it
with what an H200 computed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

STEP = 16
"""Products of 16-bit operands that are added at once."""

ALIGNED_BITS, RESULT_BITS = 25, 23
_ZERO = -10_000  # the exponent of zero, below all others


def add_products(start: Float64, a: Float64, b: Float64) -> Float64:
    """start + Σ a·b over the last axis, which has at most `STEP` elements; all finite, ``start`` of shape a.shape[:-1].

    Addends are aligned to the largest exponent (of a product that of its factors together), cut to 25 bits behind the
    point, and added; the sum is cut to the 23 bits of fp32.
    """
    products = _exponent(a) + _exponent(b)
    largest = np.maximum(_exponent(start), products.max(axis=-1))
    largest = np.where(largest < _ZERO // 2, 0, largest)
    total = _cut(start, largest) + _cut(a * b, largest[..., None]).sum(axis=-1)
    return _cut(total, _exponent(total), RESULT_BITS)


def _cut(values: Float64, exponent: NDArray[np.int_], bits: int = ALIGNED_BITS) -> Float64:
    return np.ldexp(np.trunc(np.ldexp(values, bits - exponent)), exponent - bits)


def _exponent(values: Float64) -> NDArray[np.int_]:
    return np.where(values == 0, _ZERO, np.frexp(values)[1] - 1)
