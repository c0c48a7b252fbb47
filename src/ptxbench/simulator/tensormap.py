"""The machine's encoding of tensor maps (``machine/tensor_map.hpp``)."""

from __future__ import annotations

import struct
from typing import Final

from ptxbench.core import DeviceError, TensorMap, UnsupportedError, box_complaints
from ptxbench.simulator.lower.spaces import ATOMIC_TYPES
from ptxbench.simulator.lower.tensormap import ELEMENTS

TENSOR_MAP_BYTES: Final = 128
_MAGIC: Final = 0x50414D54
_LAYOUT: Final = "<I5B5B2BQ5Q4Q5H3h3h"
_MODES: Final = {"tiled": 0, "im2col": 1, "im2col_w": 2, "im2col_w128": 3}
_SWIZZLES: Final = {"none": 0, "32b": 1, "64b": 2, "128b": 3}


def encode_tensor_map(tensor_map: TensorMap, base: int) -> bytes:
    """The 128 bytes that stand for a map whose tensor begins at device address ``base``.

    Raises `UnsupportedError` for interleaved maps, for a stride between elements of the innermost dimension of tiled
    maps, and for formats the simulator does not have; `DeviceError` for a box that the driver refuses.
    """
    if tensor_map.interleave != "none":
        raise UnsupportedError(f"tensor maps with interleave {tensor_map.interleave} are not supported")
    tiled = tensor_map.mode == "tiled"
    if tiled and tensor_map.element_strides[0] != 1:
        raise UnsupportedError(f"tensor maps with element strides {tensor_map.element_strides} are not supported")
    if tensor_map.dtype not in ELEMENTS or tensor_map.swizzle not in _SWIZZLES:
        raise UnsupportedError(f"tensor maps of {tensor_map.dtype} with swizzle {tensor_map.swizzle} are not supported")
    for complaint in box_complaints(tensor_map):
        raise DeviceError(f"the plan has a tensor map that the driver refuses: {complaint}")
    size, reduced, rounded = ELEMENTS[tensor_map.dtype]
    rank = len(tensor_map.dims)
    packed = struct.pack(
        _LAYOUT, _MAGIC, rank, size, _SWIZZLES[tensor_map.swizzle], tensor_map.oob_fill != "none",
        ATOMIC_TYPES[reduced], 1, *_padded(tensor_map.element_strides[1:], 4), _MODES[tensor_map.mode],
        rounded, base, *_padded(tensor_map.dims, 5), *_padded(tensor_map.strides[: rank - 1], 4),
        *_padded(tensor_map.box, 5), *_padded(tensor_map.lower_corner, 3), *_padded(tensor_map.upper_corner, 3),
    )  # fmt: skip
    return packed.ljust(TENSOR_MAP_BYTES, b"\0")


def _padded(values: tuple[int, ...], count: int) -> tuple[int, ...]:
    return values + (0,) * (count - len(values))
