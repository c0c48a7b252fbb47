"""The probes of tensor copies: im2col columns, swizzled boxes with narrow rows, fills, conversions and reductions.

Copies run one after another, each on a tensor map of its own. Shared memory holds a mark before every load, so that a
row of results shows where the copy wrote and where it did not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Literal

import numpy as np
from golden_inputs import LANES, of_class
from golden_writer import ROW_BYTES

from ptxbench.core import Address, TensorMap

_WINDOW = 4
"""Rows of shared memory: the largest tile, 32 rows of 128 bytes."""

_MARK = 0xABCDABCDABCDABCD
_SIGN = 0x80000000
_FLOAT_SIZES = {
    "float16": 2, "bfloat16": 2, "float32": 4, "float32_ftz": 4, "tfloat32": 4, "tfloat32_ftz": 4, "float64": 8,
}  # fmt: skip
_SIZES = {**_FLOAT_SIZES, "uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8}
_SPANS = {"32b": 32, "64b": 64, "128b": 128}

Reduction = Literal["add", "min", "max", "inc", "dec", "and", "or", "xor"]


@dataclass(frozen=True)
class Copy:
    """One copy. Dimensions are C, W, ..., N in the im2col mode, which has corners; its box is channels and pixels.

    A load reads the buffer ``tensor``; a store or a reduction takes its elements to a row of the results, which holds
    zeros, or with ``onto`` the buffer's first row from its end.
    """

    dims: tuple[int, ...]
    box: tuple[int, ...]
    at: tuple[int, ...]
    offsets: tuple[int, ...] = ()
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    dtype: str = "float16"
    swizzle: str = "none"
    fill: str = "none"
    operation: Literal["load", "store"] | Reduction = "load"
    tensor: str = "in_tensor"
    onto: bool = False

    @property
    def opcode(self) -> str:
        """The instruction."""
        rank, tiled = len(self.dims), not self.lower
        if self.operation == "load":
            mode = "tile" if tiled else "im2col"
            return f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes"
        mode = "tile" if tiled else "im2col_no_offs"
        if self.operation != "store":
            return f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{self.operation}.{mode}.bulk_group"
        return f"cp.async.bulk.tensor.{rank}d.global.shared::cta.{mode}.bulk_group"

    @property
    def operands(self) -> tuple[str, ...]:
        """What makes a row of the results its own."""
        fields = (self.dims, self.box, self.at, self.offsets, self.lower, self.upper, self.steps)
        texts = (",".join(map(str, values)) or "-" for values in fields)
        return (*texts, self.dtype, self.swizzle, self.fill, self.tensor, *(["onto"] if self.onto else []))

    @property
    def elements(self) -> int:
        """Bytes of the box's elements."""
        steps = self.steps if self.steps and not self.lower else (1,) * len(self.box)
        extents = (-(-extent // step) for extent, step in zip(self.box, steps, strict=True))
        return _SIZES[self.dtype] * prod(extents)

    @property
    def window(self) -> int:
        """Rows of shared memory that the tile takes."""
        width = _SIZES[self.dtype] * self.box[0]
        return -(-self.elements // width * _SPANS.get(self.swizzle, width) // ROW_BYTES)

    @property
    def rows(self) -> int:
        """Rows of results: those of the tile in shared memory that a load fills, one for a store."""
        return self.window if self.operation == "load" else 1

    def map(self, row: int) -> TensorMap:
        """The tensor map: of the input for a load, of row ``row`` of the output for a store."""
        strides = tuple(_SIZES[self.dtype] * prod(self.dims[: axis + 1]) for axis in range(len(self.dims) - 1))
        load = self.operation == "load"
        return TensorMap(
            mode="im2col" if self.lower else "tiled", dtype=self.dtype,
            base=Address(buffer=self.tensor) if load else Address(buffer="out", offset=row * ROW_BYTES),
            dims=self.dims, strides=strides, box=self.box, lower_corner=self.lower, upper_corner=self.upper,
            element_strides=self.steps or (1,) * len(self.dims), interleave="none", swizzle=self.swizzle,
            l2_promotion="none", oob_fill=self.fill,
        )  # fmt: skip


def _column(
    dims: tuple[int, ...], channels: int, lower: tuple[int, ...], upper: tuple[int, ...], at: tuple[int, ...],
    offsets: tuple[int, ...] = (), steps: tuple[int, ...] = (), swizzle: str = "none", fill: str = "none",
) -> Copy:  # fmt: skip
    """1024 bytes of pixels; stored where there are no offsets."""
    box = (channels, ROW_BYTES // _SIZES["float16"] // channels)
    operation = "load" if offsets else "store"
    return Copy(dims, box, at, offsets, lower, upper, steps, swizzle=swizzle, fill=fill, operation=operation)


_NAN = "nan_request_zero_fma"
_LINE, _IMAGE, _VOLUME = (32, 23, 5), (32, 9, 7, 4), (16, 5, 4, 3, 3)
_STORED, _STORED_LINE = (16, 4, 4, 2), (16, 16, 2)
_IM2COL = (
    _column(_IMAGE, 16, (0, 0), (0, 0), (0, 0, 0, 0), (0, 0)),
    _column(_IMAGE, 16, (-1, -1), (-1, -1), (8, 7, 5, 2), (0, 0)),
    _column(_IMAGE, 16, (0, 0), (-2, -2), (0, 3, 4, 0), (2, 2)),
    _column(_IMAGE, 16, (-2, 1), (1, -3), (0, 4, 2, 1), (3, 0)),
    _column(_IMAGE, 16, (-2, 1), (1, -3), (0, 4, 2, 1), (0, 3)),
    _column(_IMAGE, 16, (-1, -1), (-1, -1), (0, 3, 2, 1), (1, 1), (1, 2, 3, 1)),
    _column(_IMAGE, 16, (0, 0), (0, 0), (0, 0, 0, 3), (0, 0), fill=_NAN),
    _column(_IMAGE, 16, (0, 0), (0, 0), (24, 8, 6, 3), (0, 0), fill=_NAN),
    _column(_IMAGE, 32, (-1, 0), (0, 0), (0, 6, 1, 2), (1, 0), swizzle="64b"),
    _column(_IMAGE, 16, (0, 0), (0, 0), (0, 2, 1, 0), (0, 0), swizzle="32b"),
    _column(_IMAGE, 16, (0, 0), (0, 0), (0, 2, 1, 0), (0, 0), swizzle="128b"),
    _column(_LINE, 16, (-3,), (2,), (0, 20, 1), (1,)),
    _column(_LINE, 8, (0,), (-1,), (8, 2, 0), (0,), (1, 4, 1)),
    _column(_VOLUME, 8, (-1, 0, -1), (0, -1, 1), (0, 2, 1, 0, 0), (1, 0, 2)),
    _column(_VOLUME, 16, (0, 0, 0), (-1, -1, -1), (0, 3, 2, 1, 0), (1, 1, 1), (1, 2, 1, 2, 1)),
    _column(_STORED, 16, (0, 0), (0, 0), (0, 0, 0, 0)),
    _column(_STORED, 16, (0, 0), (0, 0), (0, 2, 1, 0)),
    _column(_STORED, 16, (1, 0), (-1, -2), (0, 2, 1, 0)),
    _column(_STORED, 8, (0, 0), (0, 0), (8, 1, 0, 1), steps=(1, 2, 2, 1)),
    replace(_column(_STORED, 16, (0, 1), (0, -1), (0, 2, 1, 0)), operation="add"),
    _column(_STORED_LINE, 16, (0,), (-3,), (0, 5, 0)),
    # What the ISA leaves open: a stride along N, coordinates outside the tensor along C and N.
    _column(_IMAGE, 16, (-1, -1), (-1, -1), (0, 4, 2, 1), (1, 0), (1, 2, 2, 2)),
    _column(_IMAGE, 16, (0, 0), (0, 0), (-8, 0, 0, -1), (0, 0)),
)
_TILES = (
    *(
        Copy((64, 32), (width // _SIZES["float16"], 32), (0, 0), swizzle=swizzle)
        for swizzle, span in _SPANS.items() for width in (16, 32, 64, 128) if width <= span
    ),
    Copy((512,), (16,), (24,), swizzle="128b"),
    Copy((64, 32), (16, 32), (8, 3), steps=(1, 2), swizzle="64b"),
    Copy((64, 8, 4), (8, 4, 3), (16, 5, 2), swizzle="64b", fill=_NAN),
    Copy((64, 8, 4), (16, 4, 3), (56, -1, 2), swizzle="128b", fill=_NAN),
    Copy((16, 32), (16, 32), (0, 0), swizzle="128b", operation="store"),
    Copy((16, 32), (8, 32), (8, 4), swizzle="64b", operation="store"),
    Copy((16, 32), (16, 32), (0, 3), swizzle="64b", operation="add"),
)  # fmt: skip
_FLOATS = ("float32", "float32_ftz", "tfloat32", "tfloat32_ftz")
_SPECIAL_BOX = (32, 8)
_ELEMENTS = (
    *(
        Copy((64, 32), (32 // size, 32), (64 - 16 // size, 0), dtype=dtype, fill=_NAN)
        for dtype, size in _FLOAT_SIZES.items()
    ),
    *(Copy(_SPECIAL_BOX, _SPECIAL_BOX, (0, 0), dtype=dtype, tensor="in_special") for dtype in _FLOATS),
    *(
        Copy(_SPECIAL_BOX, _SPECIAL_BOX, (0, 0), dtype=dtype, tensor="in_special", operation="store")
        for dtype in _FLOATS
    ),
)
_SUMS = tuple(
    Copy((32, 4), (32, 4), (0, 0), dtype=dtype, tensor="in_special", operation="add") for dtype in _FLOATS
)  # fmt: skip
_CLASSES = {
    "uint32": "b32", "int32": "b32", "uint64": "b64", "int64": "b64", "float16": "f16", "bfloat16": "bf16",
    "float32": "f32", "float32_ftz": "f32", "tfloat32": "f32", "tfloat32_ftz": "f32", "float64": "f64",
}  # fmt: skip
_BITWISE: tuple[Reduction, ...] = ("and", "or", "xor")
_ORDERED: tuple[Reduction, ...] = ("min", "max")
# An H200 takes the others for illegal instructions.
_LEGAL: dict[str, tuple[Reduction, ...]] = {
    "uint32": ("add", *_ORDERED, "inc", "dec", *_BITWISE), "int32": ("add", *_ORDERED, *_BITWISE),
    "uint64": ("add", *_ORDERED, *_BITWISE), "int64": _ORDERED, "float16": ("add", *_ORDERED),
    "bfloat16": ("add", *_ORDERED), "float32": ("add",), "float32_ftz": ("add",), "tfloat32": ("add",),
    "tfloat32_ftz": ("add",), "float64": ("add",),
}  # fmt: skip


def _reduction(dtype: str, operation: Reduction) -> Copy:
    """1024 bytes, onto others."""
    box = (128 // _SIZES[dtype], 8)
    tensor = f"in_{_CLASSES[dtype]}"
    return Copy(box, box, (0, 0), dtype=dtype, operation=operation, tensor=tensor, onto=True)


_REDUCTIONS = tuple(_reduction(dtype, operation) for dtype, operations in _LEGAL.items() for operation in operations)
_ILLEGAL = {
    f"tensor_{operation}_of_{dtype}": _reduction(dtype, operation)
    for dtype, legal in _LEGAL.items() for operation in _LEGAL["uint32"] if operation not in legal
}  # fmt: skip
# What begins behind the tensor, and what begins a multiple of 16 bytes into a row.
_STORE = Copy((16, 32), (16, 32), (0, 0), operation="store")
_LINE_STORE = Copy((512,), (256,), (0,), operation="store")
_WIDE_STORE = Copy((32, 16), (16, 16), (0, 0), operation="store")
_BORDERS = (
    *(replace(_STORE, at=at) for at in ((8, 0), (0, 100), (1 << 20, 0))),
    *(replace(_LINE_STORE, at=(at,)) for at in (0, 256, 304)),
    replace(_WIDE_STORE, at=(8, 0)),
    replace(_WIDE_STORE, at=(8, 0), operation="add"),
    Copy((16, 16), (8, 16), (4, 0), dtype="float32", operation="store"),
    Copy((64, 32), (16, 32), (-8, -3)),
    _column(_STORED, 16, (0, 0), (0, 0), (0, 0, 0, 5)),
)
# An H200 takes each of the following for an illegal instruction: stores before the tensor, boxes at no multiple of 16
# bytes, and bases of im2col copies outside the bounding box by one.
_BEFORE = {
    "inner": replace(_STORE, at=(-8, 0)), "outer": replace(_STORE, at=(0, -40)),
    "line": replace(_LINE_STORE, at=(-8,)), "volume": Copy((16, 8, 4), (16, 8, 4), (0, 0, -1), operation="store"),
    "middle": Copy((16, 8, 4), (16, 8, 4), (0, -1, 0), operation="store"),
    "sum": replace(_STORE, at=(-8, 0), operation="add"),
    "column_c": _column(_STORED, 16, (0, 0), (0, 0), (-8, 0, 0, 0)),
    "column_n": _column(_STORED, 16, (0, 0), (0, 0), (0, 0, 0, -1)),
    "column_sum": replace(_column(_STORED, 16, (0, 1), (0, -1), (0, 2, 1, -1)), operation="add"),
}
_UNALIGNED = {
    "load": Copy((32, 16), (16, 16), (3, 0)), "load_of_line": Copy((512,), (64,), (100,)),
    "load_of_column": _column(_IMAGE, 16, (0, 0), (0, 0), (4, 0, 0, 0), (0, 0)),
    "store": replace(_WIDE_STORE, at=(4, 0)), "store_of_line": replace(_LINE_STORE, at=(100,)),
    "store_of_f32": Copy((16, 16), (8, 16), (2, 0), dtype="float32", operation="store"),
    "swizzled_store": replace(_WIDE_STORE, at=(4, 0), swizzle="32b"),
    "sum": replace(_WIDE_STORE, at=(4, 0), operation="add"),
}
_OUTSIDE = {
    "above": _column(_LINE, 16, (0,), (-2,), (0, 21, 0), (0,)),
    "below": _column(_LINE, 16, (1,), (0,), (0, 0, 0), (1,)),
    "above_h": _column(_IMAGE, 16, (0, 0), (-2, -2), (0, 0, 5, 0), (0, 0)),
    "below_h": _column(_IMAGE, 16, (0, 1), (0, 0), (0, 3, 0, 1), (2, 3)),
    "above_d": _column(_VOLUME, 8, (0, 0, 0), (0, 0, -1), (0, 0, 0, 2, 0), (0, 0, 0)),
    "store": _column(_STORED, 16, (0, 0), (-1, 0), (0, 3, 0, 0)),
}
GROUPS: dict[str, Sequence[Copy]] = {
    "im2col": _IM2COL,
    "tensor_tiles": _TILES,
    "tensor_elements": _ELEMENTS,
    "tensor_sums": _SUMS,
    "tensor_reductions": _REDUCTIONS,
    "tensor_borders": _BORDERS,
    **{f"im2col_outside_{name}": (copy,) for name, copy in _OUTSIDE.items()},
    **{f"tensor_before_{name}": (copy,) for name, copy in _BEFORE.items()},
    **{f"tensor_unaligned_{name}": (copy,) for name, copy in _UNALIGNED.items()},
    **{name: (copy,) for name, copy in _ILLEGAL.items()},
}
"""The copies of each probe."""


def tensors(copies: Sequence[Copy]) -> dict[str, np.ndarray]:
    """The input buffers that copies name, of at least a window."""
    made = {"in_tensor": _tensor, "in_special": _special}
    made |= {f"in_{cls}": partial(of_class, cls) for cls in _CLASSES.values()}
    return {name: made[name]() for name in made if any(copy.tensor == name for copy in copies)}


def _tensor() -> np.ndarray:
    """fp16 elements, all different in any 1024 bytes."""
    used = [copy for copies in GROUPS.values() for copy in copies if copy.tensor == "in_tensor"]
    largest = max(_SIZES[copy.dtype] * prod(copy.dims) for copy in used)
    return (np.arange(largest // 2) % 2039 + 1).astype(np.float16)


def _special() -> np.ndarray:
    """fp32 patterns: 128 finite ones, then infinities and NaNs; subnormals and ties of tf32 are among them."""
    edges = [
        0, 1, 0xFFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x7FEFFF, 0x7FF000, 0x7FFFFF, 0x800000, 0x800FFF, 0x801000,
        0x3F800FFF, 0x3F801000, 0x3F801001, 0x3F802FFF, 0x3F803000, 0x3F803001, 0x3FFFF000, 0x7F7FEFFF, 0x7F7FF000,
        0x7F7FFFFF,
    ]  # fmt: skip
    nans = [0x7F800000, 0x7F800001, 0x7F800FFF, 0x7F801000, 0x7FA00000, 0x7FC00000, 0x7FFFFFFF, 0x7FF77FF7]
    values = np.random.default_rng(6).integers(0, 0x7F800000, _WINDOW * ROW_BYTES // 4, dtype=np.uint32)
    values[1::2] ^= _SIGN
    for first, chosen in ((0, edges), (128, nans)):
        both = np.array([*chosen, *(value ^ _SIGN for value in chosen)], np.uint32)
        values[first : first + len(both)] = both
    return values


def module(name: str, target: str, copies: Sequence[Copy]) -> str:
    """The kernel: parameters are the tensors, the maps in order, then the output.

    Behind the rows of the copies is one with twice the number of the thread, and one more if the mbarrier of the copy
    of that number had counted exactly the bytes of the elements of its box.
    """
    names = list(tensors(copies))
    parameters = [f".param .u64 p_{tensor}" for tensor in names]
    parameters += [f".param .align 64 .b8 m{number}[128]" for number in range(len(copies))]
    loads = [number for number, copy in enumerate(copies) if copy.operation == "load"]
    inits = " ".join(f"@lead mbarrier.init.shared.b64 [object+{8 * number}], 1;" for number in loads)
    bases = " ".join(f".reg .u64 {tensor}; ld.param.u64 {tensor}, [p_{tensor}];" for tensor in names)
    body = "\n".join(_body(copies))
    return f""".version 9.0
.target {target}
.address_size 64
.shared .align 1024 .b8 tile[{_WINDOW * ROW_BYTES}];
.shared .align 8 .b64 barriers[{len(copies)}];
.visible .entry {name}({", ".join(parameters)}, .param .u64 result) .maxntid {LANES} .minnctapersm 1 {{
.reg .u32 thread, to, object, at, last; .reg .u64 out, source, map, value; .reg .pred lead, done; .reg .b16 o0, o1, o2;
{bases}
ld.param.u64 out, [result]; mov.u32 thread, %tid.x; mad.wide.u32 out, thread, 8, out;
mov.u32 to, tile; mov.u32 object, barriers; mad.lo.u32 at, thread, 8, to; shl.b32 last, thread, 1;
setp.eq.u32 lead, thread, 0;
{inits}
{body}
cvt.u64.u32 value, last; st.global.b64 [out+{sum(copy.rows for copy in copies) * ROW_BYTES}], value;
ret;
}}
"""


def _body(copies: Sequence[Copy]) -> Iterator[str]:
    row = 0
    for number, copy in enumerate(copies):
        yield f"mov.b64 map, m{number}; cvta.param.u64 map, map;"
        yield _load(number, copy, row) if copy.operation == "load" else _store(copy, row)
        row += copy.rows


def _load(number: int, copy: Copy, row: int) -> str:
    moves = " ".join(f"mov.b16 o{axis}, {offset};" for axis, offset in enumerate(copy.offsets))
    offsets = ", {" + ", ".join(f"o{axis}" for axis in range(len(copy.offsets))) + "}" if copy.offsets else ""
    marks = " ".join(f"st.shared.b64 [at+{place * ROW_BYTES}], {_MARK};" for place in range(_WINDOW))
    results = " ".join(
        f"ld.shared.b64 value, [at+{place * ROW_BYTES}]; st.global.b64 [out+{(row + place) * ROW_BYTES}], value;"
        for place in range(copy.rows)
    )
    barrier = f"[object+{8 * number}]"
    return f"""{moves} {marks}
fence.proxy.async; bar.sync 0;
@lead mbarrier.expect_tx.relaxed.cta.shared::cta.b64 {barrier}, {copy.elements};
@lead {copy.opcode} [to], [map, {_vector(copy.at)}], {barrier}{offsets};
{" ".join(["nanosleep.u32 100000;"] * 10)}
@lead mbarrier.arrive.shared.b64 _, {barrier};
bar.sync 0;
mbarrier.test_wait.parity.shared.b64 done, {barrier}, 0;
setp.eq.and.u32 done, thread, {number}, done; @done add.u32 last, last, 1;
{results}
bar.sync 0;"""


def _store(copy: Copy, row: int) -> str:
    values = " ".join(
        f"ld.global.b64 value, [source+{place * ROW_BYTES}]; st.shared.b64 [at+{place * ROW_BYTES}], value;"
        for place in range(copy.window)
    )
    if copy.onto:
        values += (
            f" mad.wide.s32 source, thread, -8, {copy.tensor}; ld.global.b64 value, [source+{ROW_BYTES - 8}]; "
            f"st.global.b64 [out+{row * ROW_BYTES}], value;"
        )
    return f"""mad.wide.u32 source, thread, 8, {copy.tensor}; {values}
fence.proxy.async; bar.sync 0;
@lead {copy.opcode} [map, {_vector(copy.at)}], [to];
@lead cp.async.bulk.commit_group;
@lead cp.async.bulk.wait_group 0;
bar.sync 0;"""


def _vector(values: Sequence[int]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"
