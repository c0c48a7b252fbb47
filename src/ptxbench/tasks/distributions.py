"""Named input distributions. Each is a function of a generator and a shape, and returns float32 values.

The caller rounds them to the argument's dtype. The last axis is the one that a matrix product sums over.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping

import numpy as np

from ptxbench.core import Task, UsageError
from ptxbench.tasks.arrays import Float32, Sizes, Tensor, numpy_dtype

Distribution = Callable[[np.random.Generator, tuple[int, ...]], Float32]

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


DISTRIBUTIONS: Mapping[str, Distribution] = {
    f.__name__: f for f in (normal, wide_range, spikes, equal_rows)
}


def draw_inputs(task: Task, sizes: Sizes, distribution: str, seed: int) -> dict[str, Tensor]:
    """Every input of a task in its dtype, with independent values for each (seed, distribution, sizes, argument).

    The stream is `numpy.random.SeedSequence` over all four, so equal calls give equal values. `UsageError` on a name
    that is not in `DISTRIBUTIONS`.
    """
    if distribution not in DISTRIBUTIONS:
        raise UsageError(f"unknown input distribution '{distribution}'; known are {', '.join(DISTRIBUTIONS)}")
    drawn: dict[str, Tensor] = {}
    for argument in task.inputs:
        words = (zlib.crc32(distribution.encode()), zlib.crc32(argument.name.encode()))
        words += tuple(sizes[name] for name in task.sizes)
        rng = np.random.default_rng(np.random.SeedSequence(entropy=seed, spawn_key=words))
        values = DISTRIBUTIONS[distribution](rng, argument.dims(dict(sizes)))
        drawn[argument.name] = values.astype(numpy_dtype(argument.dtype))
    return drawn
