"""What an oracle kernel must give: the truth in fp64, and how far from it each element may be.

Bounds are derived, from the precision of the operands and of the sums; none is fitted to a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from oracles_run import Array, Launch
from silicon_compare import largest_ratio

from ptxbench.judge import MAX_FACTOR
from ptxbench.judge.yardstick import block_max, error_scale, expand_blocks
from ptxbench.tasks import Problem, max_denominator, rounded, summation_factor, ulp

_SPREAD = 3 * 3**0.5
"""The largest of an honest kernel's errors, over their RMS: three times half an ulp over ulp/√12, as for the judge."""

_EIGHT_BIT_SUMS = 2.0**-12
"""Error of one step of 32 products of 8-bit floats on Hopper, over the sum of magnitudes: addends are aligned to the
largest with 13 fraction bits and truncated (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.3.2).
"""
_SINGLE_OPERANDS = {"tf32": 2.0**-9, "tf32x3": 2.0**-19, "ieee": 0.0}
"""Relative error of a product of two fp32 operands: both lose 13 of 23 fraction bits, or with three products few."""


@dataclass(frozen=True)
class Expected:
    """One output: ``truth`` and ``allowed``, the largest error of each element, in its shape, fp64."""

    truth: Array
    allowed: Array

    def ratio(self, found: Array) -> float:
        """The largest error of ``found`` over what is allowed; at most 1 where it agrees, infinite for NaN."""
        return largest_ratio(found.astype(np.float64) - self.truth, self.allowed)


@dataclass(frozen=True)
class Oracle:
    """A launch with what each of its outputs must be."""

    launch: Launch
    expected: dict[str, Expected]


def product(a: Array, b: Array, out: Array, precision: str) -> Expected:
    """C = A·B for A [M, K] and B [K, N], summed in fp32 (8-bit floats: with fewer bits), rounded to ``out``'s type.

    ``precision`` is how fp32 operands are multiplied.
    """
    left, right = a.astype(np.float64), b.astype(np.float64)
    truth = left @ right
    if a.dtype.kind == "i":
        return Expected(truth, np.zeros_like(truth))
    magnitudes, depth = np.abs(left) @ np.abs(right), a.shape[1]
    noise = _SPREAD * summation_factor(depth) * magnitudes
    if a.dtype.itemsize == 1:
        noise += depth / 32 * _EIGHT_BIT_SUMS * magnitudes
    if a.dtype == np.float32:
        noise += _SINGLE_OPERANDS[precision] * magnitudes
    return Expected(truth, noise + ulp(truth, "f16" if out.dtype == np.float16 else "f32") / 2)


def of_problem(problem: Problem, name: str, out: Array) -> Expected:
    """What the judge allows of output ``name`` of a task, in the shape of ``out``; it may have a wider type."""
    truth = problem.truth[name]
    dtype = "f32" if out.dtype == np.float32 else problem.output_dtype(name)
    scale = error_scale(truth, problem.noise[name], dtype)
    honest, rounding = (
        np.abs(values.astype(np.float64) - truth) / scale
        for values in (problem.honest[name], rounded(truth, problem.output_dtype(name)))
    )
    block = problem.operation.blocks(problem.task)[name]
    bound = max_denominator(block_max(honest, block), block_max(rounding, block))
    allowed = MAX_FACTOR * scale * expand_blocks(bound, block, truth.shape)
    return Expected(truth.reshape(out.shape), allowed.reshape(out.shape))
