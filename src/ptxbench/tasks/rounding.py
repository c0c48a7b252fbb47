"""The grid of each element type, and the errors that rounding to it and summing in fp32 make."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ptxbench.core import Dtype
from ptxbench.tasks.arrays import Float64, numpy_dtype

FP32_ROUNDOFF = 2.0**-24

# Stored significand bits and smallest normal exponent (IEEE 754; bfloat16 has the exponent of binary32).
_GRID: Mapping[str, tuple[int, int]] = {"bf16": (7, -126), "f16": (10, -14), "f32": (23, -126)}


def ulp(values: Float64, dtype: Dtype) -> Float64:
    """The spacing of ``dtype`` at each value's binade, float64; at zero and among subnormals the subnormal spacing."""
    bits, smallest = _GRID[dtype]
    exponent = np.frexp(values)[1] - 1
    exponent = np.where(values == 0, smallest, np.maximum(exponent, smallest))
    return np.ldexp(1.0, exponent - bits)


def rounded(values: Float64, dtype: Dtype) -> Float64:
    """``values`` rounded once to ``dtype`` (nearest, ties to even), back in float64."""
    return values.astype(numpy_dtype(dtype)).astype(np.float64)


def roundoff(dtype: Dtype) -> float:
    """RMS relative error of rounding to ``dtype``, over values whose logarithms are spread evenly: 0.212 · 2^-bits.

    An error is uniform within half an ulp (RMS ulp/√12), and the mean of (1/x)² over a binade is 3/(8 ln 2).
    """
    return math.ldexp(math.sqrt(3 / (8 * math.log(2)) / 12), -_GRID[dtype][0])


def underflow(dtype: Dtype) -> float:
    """Below which a value that is computed in fp32 and rounded to ``dtype`` may become zero."""
    bits, smallest = _GRID[dtype]
    return max(math.ldexp(1.0, smallest - bits), 2.0**-126)


def summation_factor(depth: int) -> float:
    """RMS error of a sum of ``depth`` products in fp32, in units of the sum of magnitudes: max(√K, K/32) · 2^-24.

    √K: the probabilistic bound on a sum of K terms in any order (Higham and Mary, "A new approach to probabilistic
    rounding error analysis", 2019), confidence parameter 1. K/32: the bias of tensor cores, which truncate: half an
    ulp (2^-24 of the partial sum) per step of 16, with partial sums of half of the sum of magnitudes on average.

    Equal products are their worst case, for every step then loses the same bits: up to 4.7 times this factor (K up to
    8192, products of bf16), which is within the bound on the largest error of an element.
    """
    return max(math.sqrt(depth), depth / 32) * FP32_ROUNDOFF
