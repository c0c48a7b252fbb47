"""Tensor maps: the names of the driver API's enumerators, and the rules that its encoders document.

The rules are those of `cuTensorMapEncodeTiled`, `cuTensorMapEncodeIm2col` and `cuTensorMapEncodeIm2colWide` in the
driver API's documentation (13.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxbench.core.plan import TensorMap

DTYPES = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bfloat16", "float32_ftz",
    "tfloat32", "tfloat32_ftz", "16u4_align8b", "16u4_align16b", "16u6_align16b",
)
INTERLEAVES = ("none", "16b", "32b")
SWIZZLES = ("none", "32b", "64b", "128b", "128b_atom_32b", "128b_atom_32b_flip_8b", "128b_atom_64b")
L2_PROMOTIONS = ("none", "l2_64b", "l2_128b", "l2_256b")
OOB_FILLS = ("none", "nan_request_zero_fma")
MAX_RANK = 5

_BITS: dict[str, int] = dict(zip(DTYPES, (8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6), strict=True))
_FLOATS = {"float16", "float32", "float64", "bfloat16", "float32_ftz", "tfloat32", "tfloat32_ftz"}
_PADDED = {"16u4_align16b", "16u6_align16b"}
_SPAN = {"none": 0, "32b": 32, "64b": 64}
_WIDE = ("im2col_w", "im2col_w128")
_WIDE_CORNER = (-(1 << 15), (1 << 15) - 1)
_CORNERS = {3: _WIDE_CORNER, 4: (-128, 127), 5: (-16, 15)}
_WIDE_SWIZZLES = ("64b", "128b", "128b_atom_32b")


def map_complaints(tensor_map: TensorMap, address: int | None) -> Iterator[str]:
    """Which rules a map breaks, in phrases. ``address`` is where it begins, None where that is not known.

    Later phrases may be missing where an earlier one says that the arrays do not fit.
    """
    for complaint in form_complaints(tensor_map):
        yield complaint
        return
    dtype, interleave, swizzle = tensor_map.dtype, tensor_map.interleave, tensor_map.swizzle
    alignment = 32 if interleave == "32b" or dtype in _PADDED else 16
    if address is not None and address % alignment:
        yield f"its address must be a multiple of {alignment} bytes"
    for axis, extent in enumerate(tensor_map.dims):
        if not 1 <= extent <= 1 << 32:
            yield f"dimension {axis} is {extent}, and must be 1 to 2^32"
    for axis, stride in enumerate(tensor_map.strides, start=1):
        if stride % alignment or not 0 <= stride < 1 << 40:
            yield f"the stride of dimension {axis} is {stride} bytes, and must be a multiple of {alignment} below 2^40"
    for axis, stride in enumerate(tensor_map.element_strides):
        if not 1 <= stride <= 8:
            yield f"element stride {axis} is {stride}, and must be 1 to 8"
    if interleave != "none" and len(tensor_map.dims) < 3:
        yield "an interleaved map needs at least three dimensions"
    if interleave == "32b" and swizzle != "32b":
        yield "interleave 32B needs swizzle 32B"
    if tensor_map.oob_fill != "none" and dtype not in _FLOATS:
        yield f"the fill with NaN needs a floating-point type, and the type is {dtype}"
    yield from _packed_complaints(tensor_map)
    yield from box_complaints(tensor_map)
    inner = tensor_map.box[0] * _BITS[dtype] // 8
    if interleave == "none":
        if dtype not in _PADDED and inner % 16:
            yield f"the inner box is {inner} bytes, and must be a multiple of 16"
        span = _SPAN.get(swizzle, 128)
        if span and inner > span:
            yield f"the inner box is {inner} bytes, and swizzle {swizzle} allows {span}"


def form_complaints(tensor_map: TensorMap) -> Iterator[str]:
    """What keeps a map from being one at all: arrays of other lengths than its rank asks for, unknown names."""
    rank = len(tensor_map.dims)
    tiled = tensor_map.mode == "tiled"
    corners = 0 if tiled else 1 if tensor_map.mode in _WIDE else rank - 2
    expected = (rank - 1, rank, rank if tiled else 2, corners, corners)
    given = (
        tensor_map.strides, tensor_map.element_strides, tensor_map.box, tensor_map.lower_corner, tensor_map.upper_corner
    )  # fmt: skip
    if not (1 if tiled else 3) <= rank <= MAX_RANK or tuple(map(len, given)) != expected:
        yield "its arrays do not fit its rank"
    for what, name, known in (
        ("data type", tensor_map.dtype, DTYPES),
        ("interleave", tensor_map.interleave, INTERLEAVES),
        ("swizzle", tensor_map.swizzle, SWIZZLES),
        ("L2 promotion", tensor_map.l2_promotion, L2_PROMOTIONS),
        ("fill", tensor_map.oob_fill, OOB_FILLS),
    ):
        if name not in known:
            yield f"{name} is no {what}"


def box_complaints(tensor_map: TensorMap) -> Iterator[str]:
    """Which limits of a box, or of its bounding box, a map exceeds, in phrases."""
    limits = [256] * len(tensor_map.box) if tensor_map.mode == "tiled" else [256, 1024]
    for axis, (extent, limit) in enumerate(zip(tensor_map.box, limits, strict=True)):
        if not 1 <= extent <= limit:
            yield f"box extent {axis} is {extent}, and must be 1 to {limit}"
    if tensor_map.mode != "tiled":
        yield from _corner_complaints(tensor_map)


def map_reach(tensor_map: TensorMap) -> tuple[int, int]:
    """Bytes from a map's address to behind its last element, and the dimension that takes it furthest."""
    end = reach = -(-tensor_map.dims[0] * _BITS[tensor_map.dtype] // 8)
    widest = 0
    for axis, (extent, stride) in enumerate(zip(tensor_map.dims[1:], tensor_map.strides, strict=True), start=1):
        end += (extent - 1) * stride
        if (extent - 1) * stride > reach:
            widest, reach = axis, (extent - 1) * stride
    return end, widest


def _packed_complaints(tensor_map: TensorMap) -> Iterator[str]:
    dtype = tensor_map.dtype
    if dtype == "16u4_align8b" and tensor_map.dims[0] % 2:
        yield "dimension 0 of packed 4-bit values must be even"
    if dtype in _PADDED:
        if tensor_map.dims[0] % 128:
            yield "dimension 0 of padded packed values must be a multiple of 128"
        if tensor_map.box[0] != 128:
            yield "the inner box of padded packed values must be 128"
        allowed = ("none", "128b", "128b_atom_32b", *(("128b_atom_64b",) if dtype == "16u6_align16b" else ()))
        if tensor_map.swizzle not in allowed:
            yield f"{dtype} does not support swizzle {tensor_map.swizzle}"
    if dtype == "16u6_align16b" and tensor_map.interleave != "none":
        yield "16u6_align16b needs interleave none"


def _corner_complaints(tensor_map: TensorMap) -> Iterator[str]:
    wide = tensor_map.mode in _WIDE
    low, high = _WIDE_CORNER if wide else _CORNERS[len(tensor_map.dims)]
    for corner in (*tensor_map.lower_corner, *tensor_map.upper_corner):
        if not low <= corner <= high:
            yield f"a corner offset is {corner}, and must be {low} to {high}"
    corners = zip(tensor_map.dims[1:], tensor_map.lower_corner, tensor_map.upper_corner, strict=False)
    for extent, lower, upper in corners:
        if extent - 1 + upper < lower:
            yield f"the bounding box from {lower} to {extent - 1 + upper} has no pixels"
    if wide:
        if tensor_map.swizzle not in _WIDE_SWIZZLES:
            yield f"a map along W does not support swizzle {tensor_map.swizzle}"
        if tensor_map.interleave != "none":
            yield "a map along W needs interleave none"
