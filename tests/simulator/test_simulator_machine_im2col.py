"""Tensor copies in the im2col modes against the rules of the PTX ISA, written out in NumPy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Literal

import numpy as np
import pytest
from simulator_launch import Launch, load, run
from simulator_tiles import SPAN, rows_of_bytes, swizzle

from ptxbench.core import Address, Observation, RunOptions, Schedule, TensorMap, UnsupportedError

Array = np.ndarray
_MOST_BYTES = 65536


@dataclass(frozen=True)
class Column:
    """One copy: the tensor's dimensions (C, W, ..., N), the map's fields in the same order, and the operands."""

    dims: tuple[int, ...]
    box: tuple[int, int]
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    at: tuple[int, ...]
    offsets: tuple[int, ...]
    steps: tuple[int, ...] = ()
    swizzle: str = "none"
    fill: str = "none"
    mode: Literal["im2col", "im2col_w", "im2col_w128"] = "im2col"

    @property
    def pixels(self) -> int:
        return 128 if self.mode == "im2col_w128" else self.box[1]

    @property
    def bytes(self) -> int:
        return 2 * self.box[0] * self.pixels

    @property
    def pitch(self) -> int:
        """Bytes from one pixel to the next in shared memory."""
        return 2 * self.box[0] if self.swizzle == "none" else SPAN[self.swizzle]

    def map(self, buffer: str) -> TensorMap:
        strides = tuple(2 * prod(self.dims[: axis + 1]) for axis in range(len(self.dims) - 1))
        return TensorMap(
            mode=self.mode, dtype="float16", base=Address(buffer=buffer), dims=self.dims, strides=strides, box=self.box,
            element_strides=self.steps or (1,) * len(self.dims), interleave="none", swizzle=self.swizzle,
            l2_promotion="none", oob_fill=self.fill, lower_corner=self.lower, upper_corner=self.upper,
        )  # fmt: skip

    def places(self) -> list[tuple[int, ...]]:
        """Where every pixel of the column lies, (W, ..., N), offsets included."""
        steps = self.steps or (1,) * len(self.dims)
        spatial = 1 if self.mode != "im2col" else len(self.dims) - 2
        at, found = list(self.at[1:]), []
        moved = (*self.offsets, *(0,) * len(at))
        for _ in range(self.pixels):
            found.append(tuple(index + offset for index, offset in zip(at, moved, strict=False)))
            for axis in range(spatial):
                at[axis] += steps[1 + axis]
                if at[axis] <= self.dims[1 + axis] - 1 + self.upper[axis]:
                    break
                at[axis] = self.lower[axis]
            else:
                at[-1] += steps[-1]
        return found

    def expected(self, tensor: Array) -> Array:
        """[pixels, channels] of the column; ``tensor`` is [N, ..., W, C]."""
        out = np.full((self.pixels, self.box[0]), np.nan if self.fill != "none" else 0, np.float16)
        for row, place in zip(out, self.places(), strict=True):
            if all(0 <= index < extent for index, extent in zip(place, self.dims[1:], strict=True)):
                for channel in range(self.box[0]):
                    if 0 <= self.at[0] + channel < self.dims[0]:
                        row[channel] = tensor[(*reversed(place), self.at[0] + channel)]
        return out


IMAGES = Column((16, 9, 7, 4), (8, 64), (-1, -1), (-1, -1), (8, 4, 2, 1), (0, 0))
CASES = {
    "padded": IMAGES,
    "offsets": replace(IMAGES, lower=(0, 0), upper=(-2, -2), at=(0, 3, 4, 0), offsets=(2, 2)),
    "corners that differ": replace(IMAGES, lower=(-2, 1), upper=(1, -2), offsets=(3, 0)),
    "strides": replace(IMAGES, at=(8, 5, 3, 0), offsets=(1, 1), steps=(1, 2, 3, 1)),
    "every second image": replace(
        IMAGES, dims=(16, 9, 7, 6), lower=(0, 0), upper=(-5, -4), at=(8, 3, 2, 1), steps=(1, 1, 1, 2)
    ),
    "beyond the batch": replace(IMAGES, at=(0, 0, 0, 3)),
    "nan": replace(IMAGES, at=(8, 0, 0, 3), fill="nan_request_zero_fma"),
    "swizzle": replace(IMAGES, dims=(64, 9, 7, 4), box=(64, 32), swizzle="128b"),
    "narrow swizzle": replace(IMAGES, box=(8, 48), swizzle="32b"),
    "one dimension": Column((16, 40, 3), (16, 50), (-3,), (2,), (0, 20, 1), (1,)),
    "three dimensions": Column((8, 5, 4, 3, 2), (8, 100), (-1, 0, -1), (0, -1, 1), (0, 2, 1, 0, 0), (1, 0, 2)),
    "many pixels": replace(IMAGES, box=(8, 1024), at=(0, 0, 0, 0)),
}
WIDE = Column((32, 7, 5, 40), (32, 100), (-1,), (-1,), (0, 3, 2, 1), (2,), swizzle="64b", mode="im2col_w")
WIDE_CASES = {
    "w": WIDE,
    "w strided": replace(WIDE, steps=(1, 2, 1, 1)),
    "w left of the box": replace(WIDE, at=(0, -1, 2, 1), lower=(0,)),
    "w128": replace(WIDE, mode="im2col_w128"),
}


def loading(column: Column) -> str:
    rank, mode = len(column.dims), column.mode.replace("_w128", "::w::128").replace("_w", "::w")
    moved = column.offsets if column.mode == "im2col" else (0, *column.offsets)
    registers = "\n".join(f"mov.b16 %h{number}, {value};" for number, value in enumerate(moved))
    names = ", ".join(f"%h{number}" for number in range(len(moved)))
    tile = column.pitch * column.pixels
    return _kernel(f"""
{_each("CLEARED", "st.shared.b16 [%r6], 0;", tile)}
fence.proxy.async;
bar.sync 0;
{registers}
@lead mbarrier.arrive.expect_tx.shared.b64 _, [%r5], {column.bytes};
@lead cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes
    [%r4], [%rd1, {{{", ".join(map(str, column.at))}}}], [%r5], {{{names}}};
WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0;
@!%p2 bra WAIT;
{_each("COPIED", "ld.shared.b16 %h20, [%r6]; st.global.b16 [%rd6], %h20;", tile)}
""", "sm_90a" if column.mode == "im2col" else "sm_100a")  # fmt: skip


def storing(column: Column, operation: str) -> str:
    coordinates = ", ".join(map(str, column.at))
    return _kernel(f"""
{_each("FILLED", "ld.global.b16 %h20, [%rd6]; st.shared.b16 [%r6], %h20;", column.bytes)}
fence.proxy.async;
bar.sync 0;
@lead {operation} [%rd1, {{{coordinates}}}], [%r4];
@lead cp.async.bulk.commit_group;
@lead cp.async.bulk.wait_group 0;
""", "sm_90a")  # fmt: skip


def _each(done: str, move: str, count: int) -> str:
    """``move`` for every 16-bit element: %r6 its place in shared memory, %rd6 in the second buffer."""
    return f"""
mov.u32 %r7, %r1;
NOT_{done}: setp.ge.u32 %p3, %r7, {count // 2};
@%p3 bra {done};
mad.lo.u32 %r6, %r7, 2, %r4;
mul.wide.u32 %rd6, %r7, 2;
add.u64 %rd6, %rd6, %rd2;
{move}
add.u32 %r7, %r7, 128;
bra NOT_{done};
{done}:
"""


def _kernel(body: str, target: str) -> str:
    return f""".version 9.0
.target {target}
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 p)
{{
.reg .pred %p<8>, lead; .reg .b16 %h<32>; .reg .b32 %r<16>; .reg .b64 %rd<16>;
.shared .align 1024 .b8 tile[{_MOST_BYTES}];
.shared .align 8 .b64 bar;
mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1; ld.param.u64 %rd2, [p];
mov.u32 %r1, %tid.x; mov.u32 %r4, tile; mov.u32 %r5, bar;
setp.eq.u32 lead, %r1, 0;
@lead mbarrier.init.shared.b64 [%r5], 1;
bar.sync 0;
{body}
ret;
}}
"""


def tensor_of(column: Column) -> Array:
    values = np.arange(prod(column.dims)) % 2039 + 1
    return values.astype(np.float16).reshape(tuple(reversed(column.dims)))


def in_shared_memory(rows: Array, column: Column) -> Array:
    """[pixels, channels] as they lie there, with zeros between rows that are narrower than the swizzle's span."""
    image = np.zeros((column.pixels, column.pitch), np.uint8)
    image[:, : rows.shape[1] * 2] = rows_of_bytes(rows)
    return swizzle(image.reshape(-1), SPAN[column.swizzle]).view(np.float16)


def run_on(text: str, column: Column, map_buffer: str, **buffers: Array) -> Observation:
    other = next(name for name in buffers if name != map_buffer)
    launch = Launch("k", [column.map(map_buffer), other], block=(128, 1, 1))
    return run(load(text, ["k"]), launch, RunOptions(schedule=Schedule(copies="late")), **buffers)


@pytest.mark.parametrize("column", [*CASES.values(), *WIDE_CASES.values()], ids=[*CASES, *WIDE_CASES])
def test_a_column_is_loaded(column: Column) -> None:
    tensor, out = tensor_of(column), np.zeros(column.pixels * column.pitch // 2, np.float16)
    seen = run_on(loading(column), column, "in_tensor", in_tensor=tensor, out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    np.testing.assert_array_equal(out, in_shared_memory(column.expected(tensor), column))
    (moved,) = [site.bytes for site in seen.counts if site.opcode.startswith("cp.async.bulk.tensor")]
    assert moved == column.bytes


STORED = Column((16, 6, 5, 3), (16, 40), (0, 0), (0, 0), (0, 2, 1, 0), (0, 0))


@pytest.mark.parametrize("column", [
    STORED, replace(STORED, lower=(1, 0), upper=(-2, -1), at=(8, 3, 2, 1)), replace(STORED, steps=(1, 2, 1, 1)),
], ids=["whole", "inner box", "strides"])  # fmt: skip
@pytest.mark.parametrize("reduce", [False, True])
def test_a_column_is_stored(column: Column, reduce: bool) -> None:
    rank = len(column.dims)
    operation = f"cp.async.bulk.tensor.{rank}d.global.shared::cta.im2col_no_offs.bulk_group"
    if reduce:
        operation = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add.im2col_no_offs.bulk_group"
    values = (np.arange(column.pixels * column.box[0]) % 63 + 1).astype(np.float16)
    before = (np.arange(prod(column.dims)) % 31).astype(np.float16).reshape(tuple(reversed(column.dims)))
    seen = run_on(storing(column, operation), column, "tensor", in_values=values, tensor=(after := before.copy()))
    assert (seen.fault, seen.hazards) == (None, ())
    expected = before.copy()
    for row, place in zip(values.reshape(column.pixels, -1), column.places(), strict=True):
        if all(0 <= index < extent for index, extent in zip(place, column.dims[1:], strict=True)):
            kept = expected[tuple(reversed(place))]
            width = min(column.box[0], column.dims[0] - column.at[0])
            kept[column.at[0] :][:width] = row[:width] + (kept[column.at[0] :][:width] if reduce else 0)
    np.testing.assert_array_equal(after, expected)


def fault_of(text: str, column: Column) -> str:
    out = np.zeros(column.pixels * column.box[0], np.float16)
    seen = run_on(text, column, "in_tensor", in_tensor=tensor_of(column), out=out)
    assert seen.fault is not None
    return seen.fault.message


def test_the_modes_of_map_and_instruction_agree() -> None:
    wide = replace(WIDE, dims=IMAGES.dims, box=IMAGES.box)
    made = "made by cuTensorMapEncodeIm2colWide in mode W, the mode of the instruction needs cuTensorMapEncodeIm2col"
    assert made in fault_of(loading(IMAGES), wide)
    tile = loading(IMAGES).replace(".im2col.", ".tile.").replace("], {%h0, %h1};", "];")
    assert "needs cuTensorMapEncodeTiled" in fault_of(tile, IMAGES)


def test_a_store_stays_in_the_tensor() -> None:
    operation = "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group"
    column = replace(STORED, lower=(-1, 0))
    values, tensor = np.zeros(column.pixels * 16, np.float16), tensor_of(column)
    seen = run_on(storing(column, operation), column, "tensor", in_values=values, tensor=tensor)
    assert seen.fault is not None
    assert "its corners are -1 and 0 along dimension 1" in seen.fault.message


@pytest.mark.parametrize(("at", "dimension", "box"), [
    ((0, -2, 2, 1), 1, "-1 to 7"), ((0, 8, 2, 1), 1, "-1 to 7"), ((0, 4, -3, 1), 2, "-2 to 5"),
    ((0, 4, 6, 1), 2, "-2 to 5"),
])  # fmt: skip
def test_a_column_begins_in_the_bounding_box(at: tuple[int, ...], dimension: int, box: str) -> None:
    column = replace(IMAGES, lower=(-1, -2), at=at)
    message = fault_of(loading(column), column)
    assert message.startswith("Illegal instruction")
    assert f"coordinate {at[dimension]} along dimension {dimension} is outside the bounding box" in message
    assert box in message
    inside = replace(column, at=tuple(np.clip(at, (0, -1, -2, 0), (0, 7, 5, 1)).tolist()))
    out = np.zeros(inside.pixels * inside.box[0], np.float16)
    assert run_on(loading(inside), inside, "in_tensor", in_tensor=tensor_of(inside), out=out).fault is None


def test_a_halo_is_refused_by_name() -> None:
    column = replace(WIDE, offsets=(1,))
    with pytest.raises(UnsupportedError, match=r"im2col::w.* halo of 2 pixels is not supported"):
        fault_of(loading(column).replace("mov.b16 %h0, 0;", "mov.b16 %h0, 2;"), column)


@pytest.mark.parametrize(("corner", "offset"), list(product([-(2**15), 2**15 - 1], [0, 2**16 - 1])))
def test_extreme_corners_and_offsets_stay_in_bounds(corner: int, offset: int) -> None:
    column = Column((16, 40, 3), (16, 1024), (corner,), (corner,), (0, corner, -(2**31)), (offset,))
    tensor, out = tensor_of(column), np.ones(column.pixels * 16, np.float16)
    seen = run_on(loading(column), column, "in_tensor", in_tensor=tensor, out=out)
    assert seen.fault is None
    assert not out.any()


@pytest.mark.parametrize(("text", "reason"), [
    ("cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
     " [%r4], [%rd1, {0, 0}], [%r5], {%h0};", "needs .3d"),
    ("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
     " [%r4], [%rd1, {0, 0, 0, 0}], [%r5], {%h0};", "takes a vector of 2, not 1"),
])  # fmt: skip
def test_what_does_not_exist_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        load(_kernel(text, "sm_90a"), ["k"])


