"""Operand tiles as they lie in shared memory, written from the layouts of TMA boxes and core matrices."""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np

DTYPES: Final = {
    "bf16": ml_dtypes.bfloat16, "f16": np.float16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip
SPAN: Final = {"none": 16, "32b": 32, "64b": 64, "128b": 128}


def random_matrix(dtype: str, rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Values that the type holds exactly; of integers the whole range."""
    if dtype in ("s8", "u8"):
        range_ = np.iinfo(DTYPES[dtype])
        return np.random.default_rng(seed).integers(range_.min, range_.max + 1, (rows, columns), DTYPES[dtype])
    values = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    if dtype == "tf32":
        return (values.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return values.astype(DTYPES[dtype])


def swizzle(image: np.ndarray, span: int) -> np.ndarray:
    """TMA's permutation of 16-byte chunks: address bits 4 to 6 are xored with bits 7 to 9, as far as the span."""
    at = np.arange(image.size)
    return image[at ^ ((at >> 3) & (span - 16))]


def rows_of_bytes(matrix: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(matrix).view(np.uint8).reshape(matrix.shape[0], -1)


def k_major(matrix: np.ndarray, mode: str) -> tuple[np.ndarray, int, int]:
    """A [rows, k] tile of one swizzle span (without swizzle, 32 bytes) of K: image, leading and stride byte offset."""
    data = rows_of_bytes(matrix)
    rows = data.shape[0]
    if mode == "none":  # 8 x 16-byte core matrices: all of the first 16 bytes of K, then the next
        cores = data.reshape(rows // 8, 8, 2, 16).transpose(2, 0, 1, 3)
        return cores.reshape(-1), rows * 16, 128
    padded = np.zeros((rows, SPAN[mode]), np.uint8)
    padded[:, : data.shape[1]] = data
    return swizzle(padded.reshape(-1), SPAN[mode]), 16, 8 * SPAN[mode]


def mn_major(matrix: np.ndarray, mode: str) -> tuple[np.ndarray, int, int]:
    """The same tile with M or N contiguous: boxes of one span of rows by all of K, one after another."""
    data = rows_of_bytes(matrix.T)  # [k][row bytes]
    depth, width = data.shape
    span = SPAN[mode]
    boxes = data.reshape(depth, width // span, span).transpose(1, 0, 2)
    if mode == "none":  # core matrices of 8 k by 16 bytes; leading steps over k, stride over rows
        return boxes.reshape(-1), 128, depth * 16
    return swizzle(boxes.reshape(-1), span), depth * span, 8 * span
