"""Device buffers of a check: drawn inputs, poisoned outputs, and the comparison of two results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from ptxbench.core import Buffer, LaunchPlan

_FLOATS: dict[str, DTypeLike] = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32, "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
_POISON = 0xA5
_SEED = 20240229  # one check of a file is like another
_TOLERANCE = 0.02
"""Root-mean-square difference, relative to the result's, that another order of sums may make at most: a few units of
the least precise type are 2^-3, but errors of single elements average out.
"""


@dataclass(frozen=True)
class Contents:
    """A buffer's element type by its short name, and its bytes if they are given rather than drawn."""

    element: str
    data: bytes | None = None


def make_buffers(plan: LaunchPlan, contents: Mapping[str, Contents]) -> dict[str, np.ndarray]:
    """Bytes of every input, output and workspace buffer of ``plan``.

    Inputs of floating-point types are standard normal, other inputs are zero, so that they are harmless as indices.
    """
    return {
        buffer.name: _bytes_of(buffer, contents.get(buffer.name), index)
        for index, buffer in enumerate(plan.buffers)
        if buffer.role in ("input", "output", "workspace")
    }


def _bytes_of(buffer: Buffer, contents: Contents | None, index: int) -> np.ndarray:
    made = np.full(buffer.bytes, _POISON, np.uint8)
    if contents is None or buffer.role != "input":
        return made
    if contents.data is not None:
        return np.frombuffer(bytearray(contents.data), np.uint8)
    made[:] = 0
    if contents.element in _FLOATS:
        dtype = np.dtype(_FLOATS[contents.element])
        values = np.random.default_rng((_SEED, index)).standard_normal(buffer.bytes // dtype.itemsize, np.float32)
        drawn = values.astype(dtype).view(np.uint8)
        made[: drawn.size] = drawn
    return made


def compare(first: np.ndarray, second: np.ndarray, element: str) -> str:
    """How two results differ, in a phrase; empty if they do not, or no more than sums may."""
    if np.array_equal(first, second):
        return ""
    if element not in _FLOATS:
        return f"{int(np.count_nonzero(first != second))} bytes differ"
    dtype = np.dtype(_FLOATS[element])
    whole = first.size // dtype.itemsize * dtype.itemsize
    with np.errstate(invalid="ignore"):  # signalling NaNs become quiet ones
        a, b = (part[:whole].view(dtype).astype(np.float64) for part in (first, second))
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return f"{int(np.count_nonzero(np.isfinite(a) != np.isfinite(b)))} elements are finite in one only"
    difference = np.sqrt(np.mean((a[finite] - b[finite]) ** 2)) if finite.any() else 0.0
    size = np.sqrt(np.mean(a[finite] ** 2)) if finite.any() else 0.0
    if difference <= _TOLERANCE * size:
        return ""
    return f"a difference of {difference / size if size else np.inf:.3g} times its root mean square"
