"""C[M,N] = A[M,K] · B[N,K]ᵀ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from ptxbench.core import Task
from ptxbench.tasks.arrays import Float64, Sizes, Tensor, Tensors, numpy_dtype
from ptxbench.tasks.distributions import draw_inputs

FP32_ROUNDOFF = 2.0**-24
SLICE = 16
"""K extent of one 16-bit matrix instruction, the least that a kernel can lose."""


def summation_factor(depth: int) -> float:
    """RMS error of a sum of ``depth`` products in fp32, in units of the sum of magnitudes: max(√K, K/32) · 2^-24.

    √K: the probabilistic bound on a sum of K terms in any order (Higham and Mary, "A new approach to probabilistic
    rounding error analysis", 2019), confidence parameter 1. K/32: the bias of tensor cores, which truncate: half an
    ulp (2^-24 of the partial sum) per step of 16, with partial sums of half of the sum of magnitudes on average.
    """
    return max(math.sqrt(depth), depth / 32) * FP32_ROUNDOFF


class Gemm:
    """The operation ``gemm``: inputs A and B, output C; sizes M, N, K."""

    summed: Mapping[str, str] = {"C": "k"}

    def inputs(self, task: Task, sizes: Sizes, distribution: str, seed: int) -> dict[str, Tensor]:
        """A and B from the distribution."""
        return draw_inputs(task, sizes, distribution, seed)

    def given(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Tensor]:
        """A and B as they are."""
        return dict(inputs)

    def truth(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Float64]:
        """The product in float64: exact products, sums good to 2^-53."""
        a, b = (inputs[name].astype(np.float64) for name in ("A", "B"))
        return {"C": product_scale * (a @ b.T)}

    def honest(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Tensor]:
        """Exact products of the operands, accumulated in fp32, rounded once."""
        a, b = (inputs[name].astype(np.float32) for name in ("A", "B"))
        product = np.float32(product_scale) * (a @ b.T)
        return {"C": product.astype(numpy_dtype(task.outputs[0].dtype))}

    def noise(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Float64]:
        """`summation_factor` · Σ|a||b|."""
        a, b = (np.abs(inputs[name].astype(np.float32)) for name in ("A", "B"))
        factor = abs(product_scale) * summation_factor(sizes["K"])
        return {"C": factor * (a @ b.T).astype(np.float64)}

    def blocks(self, task: Task) -> dict[str, tuple[int, ...]]:
        """128×128, the granule of the size rules."""
        return {"C": (128, 128)}

    def slices(self, task: Task, sizes: Sizes, inputs: Tensors) -> Iterator[tuple[int, int, dict[str, Float64]]]:
        """The products of 16 successive k."""
        a, b = (inputs[name].astype(np.float32) for name in ("A", "B"))
        for start in range(0, sizes["K"], SLICE):
            stop = min(start + SLICE, sizes["K"])
            yield start, stop, {"C": (a[:, start:stop] @ b[:, start:stop].T).astype(np.float64)}

    def flops(self, task: Task, sizes: Sizes) -> int:
        """2·M·N·K."""
        return 2 * sizes["M"] * sizes["N"] * sizes["K"]
