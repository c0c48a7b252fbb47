"""Tensor maps: from the driver API's numbers to readable records, and the rules that the encoder documents.

The rules are those of `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col` in the driver API's documentation (13.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxbench.core import Address, TensorMap
from ptxbench.record.addresses import Place
from ptxbench.record.recording import RawMap
from ptxbench.record.refusal import contract_error, launch_error

DTYPES = (
    "uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64", "bfloat16", "float32_ftz",
    "tfloat32", "tfloat32_ftz", "16u4_align8b", "16u4_align16b", "16u6_align16b",
)
INTERLEAVES = ("none", "16b", "32b")
SWIZZLES = ("none", "32b", "64b", "128b", "128b_atom_32b", "128b_atom_32b_flip_8b", "128b_atom_64b")
L2_PROMOTIONS = ("none", "l2_64b", "l2_128b", "l2_256b")
OOB_FILLS = ("none", "nan_request_zero_fma")

_BITS = dict(zip(DTYPES, (8, 16, 32, 32, 64, 64, 16, 32, 64, 16, 32, 32, 32, 4, 4, 6), strict=True))
_FLOATS = {"float16", "float32", "float64", "bfloat16", "float32_ftz", "tfloat32", "tfloat32_ftz"}
_PADDED = {"16u4_align16b", "16u6_align16b"}
_SPAN = {"none": 0, "32b": 32, "64b": 64}
_CORNERS = {3: (-(1 << 15), (1 << 15) - 1), 4: (-128, 127), 5: (-16, 15)}


def readable(raw: RawMap, base: Address) -> TensorMap:
    """The plan's record of a map that `check_map` accepted."""
    return TensorMap(
        mode=raw.mode, dtype=DTYPES[raw.dtype], base=base, dims=raw.dims, strides=raw.strides, box=raw.box,
        element_strides=raw.element_strides, interleave=INTERLEAVES[raw.interleave], swizzle=SWIZZLES[raw.swizzle],
        l2_promotion=L2_PROMOTIONS[raw.l2_promotion], oob_fill=OOB_FILLS[raw.oob_fill], lower_corner=raw.lower_corner,
        upper_corner=raw.upper_corner,
    )


def check_map(raw: RawMap, place: Place | None, number: int) -> None:
    """Raises `Refusal` if the encoder would refuse the map, or if it reaches beyond its buffer.

    ``place`` is where its base lies (None: in no buffer), ``number`` counts the launcher's maps from 0, for messages.
    """
    where = place.region.name or "an allocation" if place else "no buffer"
    name = f"The tensor map {number} (on {where}, dimensions {list(raw.dims)}, box {list(raw.box)})"
    for complaint in _complaints(raw, place):
        raise launch_error(f"{name} is invalid: {complaint}.", "Write the arguments so that they meet this rule.")
    if place is None:
        raise contract_error(
            f"{name} does not begin in a tensor argument, the workspace or an allocation.",
            "Write the map on a pointer argument or on memory from cudaMalloc.",
        )
    _check_bounds(raw, place, name)


def _complaints(raw: RawMap, place: Place | None) -> Iterator[str]:
    yield from _shape_complaints(raw)
    yield from _enumerator_complaints(raw)
    dtype, interleave, swizzle = DTYPES[raw.dtype], INTERLEAVES[raw.interleave], SWIZZLES[raw.swizzle]
    alignment = 32 if interleave == "32b" or dtype in _PADDED else 16
    if place is not None and (place.region.base + place.offset) % alignment:
        yield f"its address must be a multiple of {alignment} bytes"
    for axis, extent in enumerate(raw.dims):
        if not 1 <= extent <= 1 << 32:
            yield f"dimension {axis} is {extent}, and must be 1 to 2^32"
    for axis, stride in enumerate(raw.strides, start=1):
        if stride % alignment or stride >= 1 << 40:
            yield f"the stride of dimension {axis} is {stride} bytes, and must be a multiple of {alignment} below 2^40"
    for axis, stride in enumerate(raw.element_strides):
        if not 1 <= stride <= 8:
            yield f"element stride {axis} is {stride}, and must be 1 to 8"
    if interleave != "none" and len(raw.dims) < 3:
        yield "an interleaved map needs at least three dimensions"
    if interleave == "32b" and swizzle != "32b":
        yield "interleave 32B needs swizzle 32B"
    if OOB_FILLS[raw.oob_fill] != "none" and dtype not in _FLOATS:
        yield f"the fill with NaN needs a floating-point type, and the type is {dtype}"
    yield from _packed_complaints(raw, dtype, interleave, swizzle)
    yield from _box_complaints(raw)
    inner = raw.box[0] * _BITS[dtype] // 8
    if interleave == "none":
        if dtype not in _PADDED and inner % 16:
            yield f"the inner box is {inner} bytes, and must be a multiple of 16"
        span = _SPAN.get(swizzle, 128)
        if span and inner > span:
            yield f"the inner box is {inner} bytes, and swizzle {swizzle} allows {span}"


def _shape_complaints(raw: RawMap) -> Iterator[str]:
    rank = len(raw.dims)
    corners = rank - 2 if raw.mode == "im2col" else 0
    expected = (rank - 1, rank, rank if raw.mode == "tiled" else 2, corners, corners)
    given = (raw.strides, raw.element_strides, raw.box, raw.lower_corner, raw.upper_corner)
    if tuple(map(len, given)) != expected or corners < 0:
        yield "its arrays do not fit its rank"


def _enumerator_complaints(raw: RawMap) -> Iterator[str]:
    rows = (
        ("data type", raw.dtype, DTYPES),
        ("interleave", raw.interleave, INTERLEAVES),
        ("swizzle", raw.swizzle, SWIZZLES),
        ("L2 promotion", raw.l2_promotion, L2_PROMOTIONS),
        ("fill", raw.oob_fill, OOB_FILLS),
    )
    for what, value, names in rows:
        if value >= len(names):
            yield f"{value} is no {what}"


def _packed_complaints(raw: RawMap, dtype: str, interleave: str, swizzle: str) -> Iterator[str]:
    if dtype == "16u4_align8b" and raw.dims[0] % 2:
        yield "dimension 0 of packed 4-bit values must be even"
    if dtype in _PADDED:
        if raw.dims[0] % 128:
            yield "dimension 0 of padded packed values must be a multiple of 128"
        if raw.box[0] != 128:
            yield "the inner box of padded packed values must be 128"
        allowed = ("none", "128b", "128b_atom_32b", *(("128b_atom_64b",) if dtype == "16u6_align16b" else ()))
        if swizzle not in allowed:
            yield f"{dtype} does not support swizzle {swizzle}"
    if dtype == "16u6_align16b" and interleave != "none":
        yield "16u6_align16b needs interleave none"


def _box_complaints(raw: RawMap) -> Iterator[str]:
    limits = [256] * len(raw.box) if raw.mode == "tiled" else [256, 1024]
    for axis, (extent, limit) in enumerate(zip(raw.box, limits, strict=True)):
        if not 1 <= extent <= limit:
            yield f"box extent {axis} is {extent}, and must be 1 to {limit}"
    if raw.mode == "im2col":
        low, high = _CORNERS[len(raw.dims)]
        for corner in (*raw.lower_corner, *raw.upper_corner):
            if not low <= corner <= high:
                yield f"a corner offset is {corner}, and must be {low} to {high}"


def _check_bounds(raw: RawMap, place: Place, name: str) -> None:
    """Every element of the map must lie in its buffer."""
    if place.offset < 0:
        raise contract_error(
            f"{name} begins {-place.offset} bytes before its buffer.", "Write the map on the buffer's start."
        )
    end = place.offset + -(-raw.dims[0] * _BITS[DTYPES[raw.dtype]] // 8)
    widest, reach = 0, end
    for axis, (extent, stride) in enumerate(zip(raw.dims[1:], raw.strides, strict=True), start=1):
        end += (extent - 1) * stride
        if (extent - 1) * stride > reach:
            widest, reach = axis, (extent - 1) * stride
    if end > place.region.bytes:
        raise contract_error(
            f"{name} reaches to byte {end} of a buffer of {place.region.bytes} bytes; dimension {widest} "
            f"({raw.dims[widest]} elements) goes furthest.",
            "Write dimensions and strides from the sizes, innermost first, with strides in bytes.",
        )
