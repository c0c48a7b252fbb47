"""Fresh inputs whose truth is known: exact rearrangements of a base set.

Every axis of a task's tensors may be rearranged by a permutation of its positions, and may change the sign of what
stands at some of them. All tensors that share an axis share its rearrangement. A rearrangement is *exact* if the true
outputs of the rearranged inputs are the rearranged true outputs, whatever the values:

GEMM, C = A·Bᵀ
    M, N, L: any permutation; signs of M and N too (a row of A changes its sign, and so does that row of C), unless a
    bias or a GELU follows. K: signs, which every product has twice.

Attention, forward and backward
    heads (batch and head together): any permutation.
    d, the columns of Q, K, dQ, dK: signs. Logits are sums over d of products that have the sign twice; dQ = dS·K and
    dK = dSᵀ·Q take it over.
    v, the columns of V, O, dO, dV: signs. Weights do not depend on V; O = P·V takes the sign over; dP = dO·Vᵀ and
    delta have it twice; dV = Pᵀ·dO takes it over.
    q, k, the queries and keys: any permutation, K with V and Q with O, dO and LSE, but not under a causal mask.

A sum over a rearranged axis (keys, queries) has other partial sums: truth in fp64 and honest kernels in fp32 differ by
rounding only. Permutations keep the blocks in which errors are judged: blocks change places, and within each the
positions are exchanged by an exclusive-or with one multiple of 8. So a block of the output holds the elements of one
block of the truth, with that block's yardstick; aligned groups of 8 stay together, so that copies are wide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxbench.core import Argument, Task
from ptxbench.tasks import OPERATIONS

Table = NDArray[np.uint32]

SIGN = np.uint32(1 << 31)
_GROUP = 8
_MATRICES = ("B", "H", "L")
"""Sizes that number whole matrices."""

_ATTENTION: Mapping[str, tuple[str, ...]] = {
    "Q": ("q", "d"), "K": ("k", "d"), "V": ("k", "v"), "O": ("q", "v"), "dO": ("q", "v"), "LSE": ("q",),
    "dQ": ("q", "d"), "dK": ("k", "d"), "dV": ("k", "v"),
}


@dataclass(frozen=True)
class Layout:
    """A tensor as [groups, rows, columns], with the names of its axes (empty for an axis of extent 1 that is none)."""

    axes: tuple[str, str, str]
    extents: tuple[int, int, int]
    blocks: tuple[int, int, int]


def layout(task: Task, argument: Argument, sizes: Mapping[str, int]) -> Layout:
    """How a tensor of the task lies. ``blocks`` are the extents of judged blocks, of inputs too."""
    outer = [size for size in argument.shape if size in _MATRICES]
    inner = [size for size in argument.shape if size not in _MATRICES]
    names = list(inner) if task.operation == "gemm" else list(_ATTENTION[argument.name])
    extents = [sizes[size] for size in inner]
    if len(inner) == 1:
        # A vector per matrix: of queries it is a column; a bias is a row, which every matrix shares.
        column = task.operation != "gemm"
        names, extents = ([*names, ""], [*extents, 1]) if column else (["", *names], [1, *extents])
    blocks = _blocks(task)
    first, second = names
    return Layout(
        ("matrices" if outer else "", first, second),
        (math.prod(sizes[size] for size in outer), extents[0], extents[1]),
        (1, blocks.get(first, extents[0]), blocks.get(second, extents[1])),
    )


def _blocks(task: Task) -> dict[str, int]:
    """The extent of judged blocks along each axis of an output."""
    found: dict[str, int] = {}
    for argument in task.outputs:
        block = OPERATIONS[task.operation].blocks(task)[argument.name]
        inner = [size for size in argument.shape if size not in _MATRICES]
        names = inner if task.operation == "gemm" else _ATTENTION[argument.name]
        found.update(zip(names, block[-len(inner) :], strict=True))
    return found


def tables(task: Task, sizes: Mapping[str, int], seed: int, sample: int) -> dict[str, Table]:
    """The rearrangement number ``sample`` of every axis, drawn from ``seed``: for each position its source's position,
    and in the top bit whether the sign changes. Sample 0 leaves everything as it is.
    """
    rng = np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=(sample,)))
    permuted, signed = _free(task)
    found: dict[str, Table] = {"": np.zeros(1, np.uint32)}
    for argument in task.arguments:
        lies = layout(task, argument, sizes)
        for axis, extent, block in zip(lies.axes, lies.extents, lies.blocks, strict=True):
            if axis not in found:
                found[axis] = _table(rng, extent, block, axis in permuted and sample > 0, axis in signed and sample > 0)
    return found


def _free(task: Task) -> tuple[set[str], set[str]]:
    """(axes that may be permuted, axes that may change signs)."""
    if task.operation == "gemm":
        odd = not task.options.get("gelu", False) and all(argument.name != "bias" for argument in task.inputs)
        return {"matrices", "M", "N"}, {"K", "M", "N"} if odd else {"K"}
    causal = task.options.get("causal", False)
    return {"matrices"} if causal else {"matrices", "q", "k"}, {"d", "v"}


def _table(rng: np.random.Generator, extent: int, block: int, permute: bool, signs: bool) -> Table:
    positions = np.arange(extent, dtype=np.uint32)
    if permute:
        whole = extent // block
        inside = np.arange(block, dtype=np.uint32)
        if block % (2 * _GROUP) == 0 and block & (block - 1) == 0:
            inside ^= np.uint32(_GROUP * rng.integers(block // _GROUP))
        order = rng.permutation(whole).astype(np.uint32)
        positions[: whole * block] = (order[:, None] * np.uint32(block) + inside).ravel()
    if signs:
        positions |= rng.integers(0, 2, extent, dtype=np.uint32) * SIGN
    return positions


def sources(table: Table) -> NDArray[np.int64]:
    """The source position of each position."""
    return (table & ~SIGN).astype(np.int64)


def signs(table: Table) -> NDArray[np.float64]:
    """-1 where the sign changes, else 1."""
    return np.where(table & SIGN, -1.0, 1.0)
