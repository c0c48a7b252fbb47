"""What output buffers hold before a run, so that an element that was never written is recognised."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.tasks import Problem, Tensor, numpy_dtype

# Bits of the stored significand and exponent bias of the dtypes that outputs may have, by item size and name.
_LAYOUT: dict[str, tuple[int, int]] = {"bfloat16": (7, 127), "float16": (10, 15), "float32": (23, 127)}


def poison(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
    """Finite values of either sign and magnitude 1 to 16 that differ from element to element.

    They look like results (no NaN, no zeros), so that a kernel cannot tell poisoned outputs from others, and depend on
    the position only. ``dtype`` is bfloat16, float16 or float32.
    """
    significand, bias = _LAYOUT[dtype.name]
    bits = 8 * dtype.itemsize
    words = _hash(int(np.prod(shape)))
    sign = (words & 1) << (bits - 1)
    exponent = (bias + ((words >> 1) & 3)) << significand
    pattern = sign | exponent | (words >> 8) & ((1 << significand) - 1)
    return pattern.astype(f"u{dtype.itemsize}").view(dtype).reshape(shape)


def poisoned_outputs(problem: Problem) -> dict[str, Tensor]:
    """Fresh output tensors of a problem, by name, filled with poison."""
    outputs = problem.task.outputs
    return {a.name: poison(a.dims(problem.sizes), numpy_dtype(a.dtype)).copy() for a in outputs}


def unwritten(output: Tensor) -> NDArray[np.bool_]:
    """Where ``output`` still holds exactly what `poison` puts there."""
    word = f"u{output.dtype.itemsize}"
    return np.ascontiguousarray(output).view(word) == poison(output.shape, output.dtype).view(word)


def _hash(count: int) -> NDArray[np.uint64]:
    """One well-mixed word per index (the finaliser of SplitMix64 without its last step)."""
    words = (np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    return (words ^ (words >> np.uint64(27))) >> np.uint64(16)
