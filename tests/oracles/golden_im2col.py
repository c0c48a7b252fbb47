"""The probes of tensor copies in the im2col modes: one copy after another, each on a tensor map of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from golden_inputs import LANES

from ptxbench.core import Address, TensorMap

_BYTES = 8 * LANES
"""Of a copy, which is one row of the output."""

_ELEMENT = 2
_TENSOR = "in_tensor"


@dataclass(frozen=True)
class Copy:
    """One copy. Dimensions are C, W, ..., N; ``offsets`` is empty for a store, which starts on a zeroed row."""

    dims: tuple[int, ...]
    channels: int
    lower: tuple[int, ...]
    upper: tuple[int, ...]
    at: tuple[int, ...]
    offsets: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    swizzle: str = "none"
    fill: str = "none"
    reduce: bool = False

    @property
    def opcode(self) -> str:
        """The instruction."""
        rank = len(self.dims)
        if self.offsets:
            return f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        operation = "cp.reduce.async" if self.reduce else "cp.async"
        middle = "add.im2col_no_offs" if self.reduce else "im2col_no_offs"
        return f"{operation}.bulk.tensor.{rank}d.global.shared::cta.{middle}.bulk_group"

    @property
    def operands(self) -> tuple[str, ...]:
        """What makes a row of the results its own."""
        fields = (self.dims, (self.channels,), self.lower, self.upper, self.at, self.offsets, self.steps)
        return (*(",".join(map(str, values)) or "-" for values in fields), self.swizzle, self.fill)

    def map(self, row: int) -> TensorMap:
        """The tensor map: of the input for a load, of row ``row`` of the output for a store."""
        strides = tuple(_ELEMENT * prod(self.dims[: axis + 1]) for axis in range(len(self.dims) - 1))
        base = Address(buffer=_TENSOR) if self.offsets else Address(buffer="out", offset=row * _BYTES)
        return TensorMap(
            mode="im2col", dtype="float16", base=base, dims=self.dims, strides=strides,
            box=(self.channels, _BYTES // _ELEMENT // self.channels), lower_corner=self.lower, upper_corner=self.upper,
            element_strides=self.steps or (1,) * len(self.dims), interleave="none", swizzle=self.swizzle,
            l2_promotion="none", oob_fill=self.fill,
        )  # fmt: skip


_LINE, _IMAGE, _VOLUME = (32, 23, 5), (32, 9, 7, 4), (16, 5, 4, 3, 3)
_STORED, _STORED_LINE = (16, 4, 4, 2), (16, 16, 2)
COPIES = (
    Copy(_IMAGE, 16, (0, 0), (0, 0), (0, 0, 0, 0), (0, 0)),
    Copy(_IMAGE, 16, (-1, -1), (-1, -1), (8, 7, 5, 2), (0, 0)),
    Copy(_IMAGE, 16, (0, 0), (-2, -2), (0, 3, 4, 0), (2, 2)),
    Copy(_IMAGE, 16, (-2, 1), (1, -3), (0, 4, 2, 1), (3, 0)),
    Copy(_IMAGE, 16, (-2, 1), (1, -3), (0, 4, 2, 1), (0, 3)),
    Copy(_IMAGE, 16, (-1, -1), (-1, -1), (0, 3, 2, 1), (1, 1), (1, 2, 3, 1)),
    Copy(_IMAGE, 16, (0, 0), (0, 0), (0, 0, 0, 3), (0, 0), fill="nan_request_zero_fma"),
    Copy(_IMAGE, 16, (0, 0), (0, 0), (24, 8, 6, 3), (0, 0), fill="nan_request_zero_fma"),
    Copy(_IMAGE, 32, (-1, 0), (0, 0), (0, 6, 1, 2), (1, 0), swizzle="64b"),
    Copy(_IMAGE, 16, (0, 0), (0, 0), (0, 2, 1, 0), (0, 0), swizzle="32b"),
    Copy(_IMAGE, 16, (0, 0), (0, 0), (0, 2, 1, 0), (0, 0), swizzle="128b"),
    Copy(_LINE, 16, (-3,), (2,), (0, 20, 1), (1,)),
    Copy(_LINE, 8, (0,), (-1,), (8, 2, 0), (0,), (1, 4, 1)),
    Copy(_VOLUME, 8, (-1, 0, -1), (0, -1, 1), (0, 2, 1, 0, 0), (1, 0, 2)),
    Copy(_VOLUME, 16, (0, 0, 0), (-1, -1, -1), (0, 3, 2, 1, 0), (1, 1, 1), (1, 2, 1, 2, 1)),
    Copy(_STORED, 16, (0, 0), (0, 0), (0, 0, 0, 0)),
    Copy(_STORED, 16, (0, 0), (0, 0), (0, 2, 1, 0)),
    Copy(_STORED, 16, (1, 0), (-1, -2), (0, 2, 1, 0)),
    Copy(_STORED, 8, (0, 0), (0, 0), (8, 1, 0, 1), steps=(1, 2, 2, 1)),
    Copy(_STORED, 16, (0, 1), (0, -1), (0, 2, 1, 0), reduce=True),
    Copy(_STORED_LINE, 16, (0,), (-3,), (0, 5, 0)),
)
# What the ISA leaves open or forbids: a stride along N, and a base outside the bounding box.
EDGES = (
    Copy(_IMAGE, 16, (-1, -1), (-1, -1), (0, 4, 2, 1), (1, 0), (1, 2, 2, 2)),
    Copy(_IMAGE, 16, (0, 0), (0, 0), (-8, 0, 0, -1), (0, 0)),
    Copy(_IMAGE, 16, (0, 0), (-2, -2), (0, 8, 0, 0), (0, 0)),
    Copy(_IMAGE, 16, (0, 0), (-2, -2), (0, 0, 6, 0), (0, 0)),
    Copy(_IMAGE, 16, (2, 2), (0, 0), (0, 0, 0, 0), (0, 0)),
    Copy(_IMAGE, 16, (2, 2), (0, 0), (0, 1, 3, 1), (255, 1)),
    Copy(_STORED, 16, (1, 1), (-1, -2), (0, 0, 0, 0)),
)


def tensor() -> np.ndarray:
    """The input tensor's elements, all different in any 1024 bytes."""
    largest = max(prod(copy.dims) for copy in (*COPIES, *EDGES))
    return (np.arange(largest) % 2039 + 1).astype(np.float16)


def module(name: str, target: str, copies: Sequence[Copy]) -> str:
    """The kernel: parameters are the tensor, the maps in order, then the output."""
    maps = ", ".join(f".param .align 64 .b8 m{number}[128]" for number in range(len(copies)))
    body = "\n".join(_body(copies))
    return f""".version 9.0
.target {target}
.address_size 64
.shared .align 1024 .b8 tile[{_BYTES}];
.shared .align 8 .b64 barrier;
.visible .entry {name}(.param .u64 tensor, {maps}, .param .u64 result) .maxntid {LANES} .minnctapersm 1 {{
.reg .u32 thread, to, object, at; .reg .u64 out, source, place, map, value; .reg .pred lead, done; .reg .b16 o0, o1, o2;
ld.param.u64 out, [result]; ld.param.u64 source, [tensor];
mov.u32 thread, %tid.x; mov.u32 to, tile; mov.u32 object, barrier; mad.lo.u32 at, thread, 8, to;
setp.eq.u32 lead, thread, 0;
@lead mbarrier.init.shared.b64 [object], 1;
bar.sync 0;
{body}
ret;
}}
"""


def _body(copies: Sequence[Copy]) -> Iterator[str]:
    loads = 0
    for number, copy in enumerate(copies):
        if copy.offsets:
            yield _load(number, copy, loads % 2)
            loads += 1
        else:
            yield _store(number, copy)


def _load(number: int, copy: Copy, phase: int) -> str:
    moves = " ".join(f"mov.b16 o{axis}, {offset};" for axis, offset in enumerate(copy.offsets))
    offsets = ", ".join(f"o{axis}" for axis in range(len(copy.offsets)))
    coordinates = ", ".join(map(str, copy.at))
    return f"""
mov.b64 map, m{number}; cvta.param.u64 map, map; {moves}
@lead mbarrier.arrive.expect_tx.shared.b64 _, [object], {_BYTES};
@lead {copy.opcode} [to], [map, {{{coordinates}}}], [object], {{{offsets}}};
WAIT{number}: mbarrier.try_wait.parity.shared.b64 done, [object], {phase};
@!done bra WAIT{number};
ld.shared.b64 value, [at];
mad.wide.u32 place, thread, 8, out; st.global.b64 [place+{number * _BYTES}], value;
fence.proxy.async; bar.sync 0;"""


def _store(number: int, copy: Copy) -> str:
    coordinates = ", ".join(map(str, copy.at))
    return f"""
mov.b64 map, m{number}; cvta.param.u64 map, map;
mad.wide.u32 place, thread, 8, source; ld.global.b64 value, [place]; st.shared.b64 [at], value;
fence.proxy.async; bar.sync 0;
@lead {copy.opcode} [map, {{{coordinates}}}], [to];
@lead cp.async.bulk.commit_group;
@lead cp.async.bulk.wait_group 0;
bar.sync 0;"""
