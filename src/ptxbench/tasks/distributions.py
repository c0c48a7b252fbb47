"""Named input distributions: which values each argument of a task is filled with.

Values come from functions of a generator and a shape, as float32; they are then rounded to the argument's dtype. The
last axis is the one that a matrix product sums over.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import numpy as np

from ptxbench.core import Task, UsageError
from ptxbench.tasks.arrays import Float32, Sizes, Tensor, numpy_dtype

Values = Callable[[np.random.Generator, tuple[int, ...]], Float32]

_SPIKE_SHARE = 1 / 8
_ZERO_ROW_SHARE = 1 / 32


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
    """Standard normal values."""
    return rng.standard_normal(shape, dtype=np.float32)


def wide_range(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
    """Normal values times powers of two: 2^-4..2^4 per element and 2^-12..2^12 per row."""
    per_element = rng.integers(-4, 5, shape, dtype=np.int32)
    per_row = rng.integers(-12, 13, (*shape[:-1], 1), dtype=np.int32)
    return np.ldexp(normal(rng, shape), per_element + per_row)


def spikes(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
    """Exact zeros with one normal value in eight, one of 64 of them a hundred times as large; some rows all zero."""
    pick = rng.random(shape, dtype=np.float32)
    values = np.where(pick < _SPIKE_SHARE, normal(rng, shape), np.float32(0))
    values = np.where(pick < _SPIKE_SHARE / 64, np.float32(100) * values, values)
    zero_rows = rng.random((*shape[:-1], 1)) < _ZERO_ROW_SHARE
    return np.where(zero_rows, np.float32(0), values)


def equal_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
    """Every row holds one normal value throughout."""
    return np.broadcast_to(normal(rng, (*shape[:-1], 1)), shape)


def grown_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
    """Normal values, each row times one of 1, 2, 4 ... 32.

    As queries they make softmax rows from nearly even to nearly one-hot, with logits beyond 88, where e^x overflows.
    """
    return np.ldexp(normal(rng, shape), rng.integers(0, 6, (*shape[:-1], 1), dtype=np.int32))


def repeated_row(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
    """One row of normal values in all rows of a matrix. As keys they make the logits of each query equal."""
    return np.broadcast_to(normal(rng, (*shape[:-2], 1, shape[-1])), shape)


class Distribution(NamedTuple):
    """``values`` for every argument but those that ``apart`` names."""

    values: Values
    apart: Mapping[str, Values] = {}


# Logits of attention must stay so small that fp32 resolves them, hence normal Q and K beside a wide range of V and dO.
DISTRIBUTIONS: Mapping[str, Distribution] = {
    "normal": Distribution(normal),
    "wide_range": Distribution(wide_range, {"Q": normal, "K": normal}),
    "spikes": Distribution(spikes),
    "equal_rows": Distribution(equal_rows),
    "large_logits": Distribution(normal, {"Q": grown_rows}),
    "equal_logits": Distribution(normal, {"K": repeated_row}),
}


def draw_inputs(
    task: Task, sizes: Sizes, distribution: str, seed: int, *, without: Collection[str] = ()
) -> dict[str, Tensor]:
    """Inputs of a task in their dtypes, with independent values for each (seed, distribution, sizes, argument).

    ``without`` names inputs that are not drawn. The stream is `numpy.random.SeedSequence` over all four, so equal calls
    give equal values. `UsageError` on a name that is not in `DISTRIBUTIONS`.
    """
    if distribution not in DISTRIBUTIONS:
        raise UsageError(f"unknown input distribution '{distribution}'; known are {', '.join(DISTRIBUTIONS)}")
    values, apart = DISTRIBUTIONS[distribution]
    drawn: dict[str, Tensor] = {}
    for argument in (a for a in task.inputs if a.name not in without):
        words = (zlib.crc32(distribution.encode()), zlib.crc32(argument.name.encode()))
        words += tuple(sizes[name] for name in task.sizes)
        rng = np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=words))
        floats = apart.get(argument.name, values)(rng, argument.dims(dict(sizes)))
        drawn[argument.name] = floats.astype(numpy_dtype(argument.dtype))
    return drawn
