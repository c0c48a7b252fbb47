"""Fused attention in Triton, forward and backward. Q, K, V, O and their gradients are [heads, length, depth]."""

# ruff: noqa: N803 - compile-time arguments are in capitals, as in Triton's own language.
from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def forward(
    q, k, v, o, lse, length, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr, SPECIALISED: tl.constexpr,
):  # fmt: skip
    """One block of queries per program, by tensor copies. ``lse`` is the natural logarithm of the sums."""
    head = tl.program_id(1) * length
    first = tl.program_id(0) * BM
    rows = first + tl.arange(0, BM)
    queries = q.load([head + first, 0])
    largest = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    accumulator = tl.zeros((BM, D), tl.float32)
    end = first + BM if CAUSAL else length
    for start in tl.range(0, end, BN, warp_specialize=SPECIALISED):
        scores = tl.dot(queries, k.load([head + start, 0]).T) * (scale * LOG2E)
        if CAUSAL:
            scores = tl.where(rows[:, None] >= (start + tl.arange(0, BN))[None, :], scores, float("-inf"))
        above = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - above[:, None])
        shrink = tl.exp2(largest - above)
        total = total * shrink + tl.sum(weights, 1)
        accumulator = tl.dot(weights.to(v.dtype), v.load([head + start, 0]), accumulator * shrink[:, None])
        largest = above
    o.store([head + first, 0], (accumulator / total[:, None]).to(o.dtype))
    tl.store(lse + head + rows, (largest + tl.log2(total)) / LOG2E)


@triton.jit
def forward_pointers(
    q, k, v, o, lse, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """The same through plain pointers; blocks of keys behind the diagonal are masked, not skipped."""
    base = tl.program_id(1) * length * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    depth = tl.arange(0, D)
    queries = tl.load(q + base + rows[:, None] * D + depth[None, :])
    largest = tl.full((BM,), -1e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    accumulator = tl.zeros((BM, D), tl.float32)
    for start in range(0, length, BN):
        columns = start + tl.arange(0, BN)
        keys = tl.load(k + base + columns[None, :] * D + depth[:, None])
        values = tl.load(v + base + columns[:, None] * D + depth[None, :])
        scores = tl.dot(queries, keys) * scale
        if CAUSAL:
            scores = tl.where(rows[:, None] >= columns[None, :], scores, -1e30)
        above = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - above[:, None])
        shrink = tl.exp(largest - above)
        total = total * shrink + tl.sum(weights, 1)
        accumulator = accumulator * shrink[:, None] + tl.dot(weights.to(values.dtype), values)
        largest = above
    where = o + base + rows[:, None] * D + depth[None, :]
    tl.store(where, (accumulator / total[:, None]).to(o.dtype.element_ty))
    tl.store(lse + tl.program_id(1) * length + rows, largest + tl.log(total))


@triton.jit
def backward(
    q, k, v, do, lse, delta, dq, dk, dv, length, scale,
    BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """One block of keys per program: dK and dV stay there, dQ (fp32, zero at first) is summed by atomics.

    ``delta`` holds the row sums of O·dO.
    """
    head = tl.program_id(1) * length
    base = head * D
    first = tl.program_id(0) * BN
    columns = first + tl.arange(0, BN)
    depth = tl.arange(0, D)
    tile = base + columns[:, None] * D + depth[None, :]
    keys = tl.load(k + tile)
    values = tl.load(v + tile)
    keys_gradient = tl.zeros((BN, D), tl.float32)
    values_gradient = tl.zeros((BN, D), tl.float32)
    begin = first // BM * BM if CAUSAL else 0
    for start in range(begin, length, BM):
        rows = start + tl.arange(0, BM)
        block = base + rows[:, None] * D + depth[None, :]
        queries = tl.load(q + block)
        gradient = tl.load(do + block)
        weights = tl.exp(tl.dot(keys, queries.T) * scale - tl.load(lse + head + rows)[None, :])
        if CAUSAL:
            weights = tl.where(rows[None, :] >= columns[:, None], weights, 0.0)
        values_gradient = tl.dot(weights.to(gradient.dtype), gradient, values_gradient)
        products = tl.dot(values, gradient.T)
        change = (weights * (products - tl.load(delta + head + rows)[None, :])).to(queries.dtype)
        keys_gradient = tl.dot(change, queries, keys_gradient)
        tl.atomic_add(dq + block, tl.dot(change.T, keys) * scale)
    tl.store(dk + tile, (keys_gradient * scale).to(dk.dtype.element_ty))
    tl.store(dv + tile, values_gradient.to(dv.dtype.element_ty))
