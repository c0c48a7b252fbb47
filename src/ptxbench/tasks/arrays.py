"""Array types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
Mask = NDArray[np.bool_]
Mistakes = Iterator[tuple[str, Mapping[str, Tensor]]]
"""Mistakes in words, each with the outputs that it leads to."""

NUMPY_DTYPES: Mapping[str, np.dtype[Any]] = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
}


def numpy_dtype(dtype: Dtype) -> np.dtype[Any]:
    """The NumPy dtype (from `ml_dtypes` for bfloat16) of a task's element type."""
    return NUMPY_DTYPES[dtype]


def turned(matrix: Tensor) -> Tensor:
    """The transposition of the last two axes."""
    return np.swapaxes(matrix, -1, -2)
