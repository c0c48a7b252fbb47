"""Array types and the rounding grid of each element type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxbench.core import Dtype

Sizes = Mapping[str, int]
Tensor = NDArray[Any]
Tensors = Mapping[str, Tensor]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

NUMPY_DTYPES: Mapping[str, np.dtype[Any]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
}

# Stored significand bits and smallest normal exponent (IEEE 754; bfloat16 has the exponent of binary32).
_GRID: Mapping[str, tuple[int, int]] = {"bf16": (7, -126), "f16": (10, -14), "f32": (23, -126)}


def numpy_dtype(dtype: Dtype) -> np.dtype[Any]:
    """The NumPy dtype (from `ml_dtypes` for bfloat16) of a task's element type."""
    return NUMPY_DTYPES[dtype]


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
