"""The earned tolerance: errors in units of what an honest kernel must make, per element and per block.

Each element has a scale: the RMS error that rounding to the output dtype makes at its magnitude (ulp/√12), joined with
the operation's derived noise (fp32 summation; rounding of intermediate operands). Errors divided by it are about 1
(RMS) for an honest kernel, whatever the range of the values, so that small rows count as much as large ones. In each
block the denominator is the largest of three: the honest algorithm's own error, the error of rounding the truth, and 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ptxbench.core import Dtype
from ptxbench.tasks import Float64, Problem, Tensor, max_denominator, rms_denominator, rounded, ulp

RMS_FACTOR = 1.5
"""Bound on the RMS error in units of the yardstick, overall and in every block.

Measured with emulated kernels (tests/judge), worst 128x128 block. GEMM: every honest order of the sums stays within
1.01; the mildest cheats are outputs truncated instead of rounded (1.9), partial sums of split-K rounded to bf16 (4.4)
and a bf16 accumulator (8.5 at K = 1024); fp8 operands and a lost slice of 16 are beyond 90. Attention: every honest
order and rounding stays within 1.1; the mildest cheats on normal inputs at S = 256 are bf16 accumulators of O (1.7), of
the gradients (2.1 in dV) and of the scores (3.1); fp8 in any operand is beyond 9.
"""

MAX_FACTOR = 3.0
"""Bound on the largest error of an element, in units of the largest that the honest algorithm makes in the same block.

An honest element is within half an ulp (√3 scales) where rounding dominates, which makes 1; the rest is room for noise.
Measured at most 1.05 for honest orders of the sums, 1.6 in attention (dS from rounded weights). One element off by 5 %
is at 13 or more.
"""


@dataclass(frozen=True)
class Measurement:
    """Errors of one output against the yardstick. Block arrays have one entry per block, in the output's axis order.

    ``ratio`` is each element's error over its block's denominator for the maximum; infinite where not finite.
    """

    rms: float
    rms_blocks: Float64
    max_blocks: Float64
    ratio: Float64

    @property
    def ok(self) -> bool:
        """Whether the output is within the tolerance, overall and in every block."""
        return (
            self.rms <= RMS_FACTOR
            and float(self.rms_blocks.max()) <= RMS_FACTOR
            and float(self.max_blocks.max()) <= MAX_FACTOR
        )


def error_scale(truth: Float64, noise: Float64, dtype: Dtype) -> Float64:
    """The derived RMS error per element of an honest kernel: rounding (ulp/√12) and noise, added in squares."""
    return np.hypot(ulp(truth, dtype) / math.sqrt(12.0), noise)


def measure(problem: Problem, name: str, output: Tensor) -> Measurement:
    """The errors of output ``name`` (its shape and dtype as in the task's row) against the problem's truth."""
    dtype = problem.output_dtype(name)
    block = problem.operation.blocks(problem.task)[name]
    truth = problem.truth[name]
    scale = error_scale(truth, problem.noise[name], dtype)

    def relative(values: Tensor) -> Float64:
        error = np.abs(values.astype(np.float64) - truth) / scale
        return np.where(np.isfinite(error), error, np.inf)

    error, honest, rounding = (relative(v) for v in (output, problem.honest[name], rounded(truth, dtype)))
    rms_bound = rms_denominator(_block_rms(honest, block), _block_rms(rounding, block))
    max_bound = max_denominator(block_max(honest, block), block_max(rounding, block))
    overall = float(rms_denominator(_rms(honest), _rms(rounding)))
    ratio = error / expand_blocks(max_bound, block, truth.shape)
    return Measurement(
        rms=float(_rms(error)) / overall,
        rms_blocks=_block_rms(error, block) / rms_bound,
        max_blocks=block_max(ratio, block),
        ratio=ratio,
    )


def block_sum(values: Float64, block: tuple[int, ...]) -> Float64:
    """Sums over blocks; blocks at the far edges may be smaller."""
    for axis, extent in enumerate(block):
        values = np.add.reduceat(values, range(0, values.shape[axis], extent), axis=axis)
    return values


def block_max(values: Float64, block: tuple[int, ...]) -> Float64:
    """Maxima over blocks; blocks at the far edges may be smaller."""
    for axis, extent in enumerate(block):
        values = np.maximum.reduceat(values, range(0, values.shape[axis], extent), axis=axis)
    return values


def expand_blocks(values: Float64, block: tuple[int, ...], shape: tuple[int, ...]) -> Float64:
    """Each block's value at each of its elements."""
    for axis, extent in enumerate(block):
        values = np.repeat(values, extent, axis=axis)
    return values[tuple(slice(0, n) for n in shape)]


def _block_rms(values: Float64, block: tuple[int, ...]) -> Float64:
    return np.sqrt(block_sum(np.square(values), block) / block_sum(np.ones_like(values), block))


def _rms(values: Float64) -> Float64:
    return np.sqrt(np.mean(np.square(values)))
