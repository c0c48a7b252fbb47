"""Matrix products in Triton: pointers, tensor descriptors, persistent loops, warp specialisation, block scales."""

# ruff: noqa: N803 - compile-time arguments are in capitals, as in Triton's own language.
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def pointers(
    a, b, c, m, n, k, am, ak, bk, bn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """C = A·B through plain pointers; strides choose the layouts of A and B."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    accumulator = tl.zeros((BM, BN), ACC)
    for start in range(0, k, BK):
        inside = start + depth < k
        left = tl.load(a + rows[:, None] * am + (start + depth)[None, :] * ak, inside[None, :], 0.0)
        right = tl.load(b + (start + depth)[:, None] * bk + columns[None, :] * bn, inside[:, None], 0.0)
        accumulator = tl.dot(left, right, accumulator, input_precision=PRECISION, out_dtype=ACC)
    where = c + rows[:, None] * n + columns[None, :]
    tl.store(where, accumulator.to(c.dtype.element_ty), (rows < m)[:, None] & (columns < n)[None, :])


@triton.jit
def descriptors(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TRANSPOSED: tl.constexpr):
    """One tile of C = A·B (or A·Bᵀ) per program, moved by tensor copies."""
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    accumulator = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        left = a.load([row, start])
        right = b.load([column, start]).T if TRANSPOSED else b.load([start, column])
        accumulator = tl.dot(left, right, accumulator)
    c.store([row, column], accumulator.to(c.dtype))


@triton.jit
def persistent(
    a, b, c, m, n, k, programs,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FLATTEN: tl.constexpr, SPECIALISED: tl.constexpr,
):  # fmt: skip
    """C = A·Bᵀ; each program takes tiles in turn, and may split loads, products and stores over warps."""
    across = tl.cdiv(n, BN)
    tiles = tl.cdiv(m, BM) * across
    for tile in tl.range(tl.program_id(0), tiles, programs, flatten=FLATTEN, warp_specialize=SPECIALISED):
        row = tile // across * BM
        column = tile % across * BN
        accumulator = tl.zeros((BM, BN), tl.float32)
        for start in range(0, k, BK):
            accumulator = tl.dot(a.load([row, start]), b.load([column, start]).T, accumulator)
        c.store([row, column], accumulator.to(c.dtype))


@triton.jit
def specialised(a, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A·Bᵀ, one tile per program; the loop over K is split over warps."""
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    accumulator = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, k, BK, warp_specialize=True):
        accumulator = tl.dot(a.load([row, start]), b.load([column, start]).T, accumulator)
    c.store([row, column], accumulator.to(c.dtype))


@triton.jit
def device_descriptors(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A·Bᵀ with tensor maps that the kernel makes itself."""
    left = tl.make_tensor_descriptor(a, [m, k], [k, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [n, k], [k, 1], [BN, BK])
    out = tl.make_tensor_descriptor(c, [m, n], [n, 1], [BM, BN])
    row = tl.program_id(0) * BM
    column = tl.program_id(1) * BN
    accumulator = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        accumulator = tl.dot(left.load([row, start]), right.load([column, start]).T, accumulator)
    out.store([row, column], accumulator.to(c.dtype.element_ty))


@triton.jit
def scaled(
    a, sa, b, sb, c, k,
    FORMAT_A: tl.constexpr, FORMAT_B: tl.constexpr, PA: tl.constexpr, PB: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, N: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """C = (A·scale)·(B·scale)ᵀ with a scale for each group of elements along K; ``PA`` elements of A to a byte."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    groups = tl.arange(0, BK // GROUP)
    bytes_a = tl.arange(0, BK // PA)
    bytes_b = tl.arange(0, BK // PB)
    accumulator = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        left = tl.load(a + rows[:, None] * (k // PA) + start // PA + bytes_a[None, :])
        right = tl.load(b + columns[None, :] * (k // PB) + start // PB + bytes_b[:, None])
        scale_a = tl.load(sa + rows[:, None] * (k // GROUP) + start // GROUP + groups[None, :])
        scale_b = tl.load(sb + columns[:, None] * (k // GROUP) + start // GROUP + groups[None, :])
        accumulator = tl.dot_scaled(left, scale_a, FORMAT_A, right, scale_b, FORMAT_B, accumulator)
    tl.store(c + rows[:, None] * N + columns[None, :], accumulator)


@triton.jit
def gathered(a, rows, b, c, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """C = A[rows]·Bᵀ: each row of A is named, and scattered back to where it came from; for sm_100 only."""
    chosen = tl.load(rows + tl.program_id(0) * BM + tl.arange(0, BM))
    column = tl.program_id(1) * BN
    accumulator = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        accumulator = tl.dot(a.gather(chosen, start), b.load([column, start]).T, accumulator)
    c.scatter(accumulator.to(c.dtype), chosen, column)
