"""C = A·Bᵀ in its variants.

A row says by the shapes of its arguments how operands lie: [M, K] or [K, M], [N, K] or [K, N], with a leading batch
axis L or without. An input ``bias`` [N] is added to every row; the option ``gelu`` applies x·Φ(x) to the sum, Φ being
the normal distribution function (the exact form, with erf).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ptxbench.core import Argument, Task
from ptxbench.tasks.arrays import Float32, Float64, Mistakes, Sizes, Tensor, Tensors, numpy_dtype, turned
from ptxbench.tasks.distributions import draw_inputs
from ptxbench.tasks.rounding import FP32_ROUNDOFF, summation_factor

SLICE = 16
"""Extent of one 16-bit matrix instruction along the axis that it sums over, the least that a kernel can lose."""


class Gemm:
    """The operation ``gemm``: inputs A, B and perhaps bias, output C; sizes M, N, K and perhaps L; option ``gelu``."""

    summed: Mapping[str, str] = {"C": "k"}

    def inputs(self, task: Task, sizes: Sizes, distribution: str, seed: int) -> dict[str, Tensor]:
        """All inputs from the distribution."""
        return draw_inputs(task, sizes, distribution, seed)

    def given(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Tensor]:
        """The inputs as they are."""
        return dict(inputs)

    def truth(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Float64]:
        """The product in float64: exact products, sums good to 2^-53; bias and GELU likewise."""
        a, b = (x.astype(np.float64) for x in _operands(task, inputs))
        result = product_scale * (a @ b) + _bias(inputs)
        return {"C": result * _normal_cdf(result) if _gelu(task) else result}

    def honest(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Tensor]:
        """Exact products of the operands, accumulated in fp32, epilogue in fp32, rounded once."""
        a, b = (x.astype(np.float32) for x in _operands(task, inputs))
        result: Float32 = np.float32(product_scale) * (a @ b) + _bias(inputs).astype(np.float32)
        if _gelu(task):
            result = result * _normal_cdf(result).astype(np.float32)
        return {"C": result.astype(numpy_dtype(task.outputs[0].dtype))}

    def noise(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Float64]:
        """`summation_factor` · Σ|a||b|.

        With GELU: that times its slope, joined with the error of 1 + erf in fp32, which cancels for negative values:
        an ulp of 1 (2^-23), times half of the value.
        """
        a, b = (np.abs(x.astype(np.float32)) for x in _operands(task, inputs))
        factor = abs(product_scale) * summation_factor(sizes["K"])
        noise = factor * (a @ b).astype(np.float64)
        if _gelu(task):
            x = self.truth(_without_gelu(task), sizes, inputs, product_scale)["C"]
            slope = _normal_cdf(x) + x * np.exp(-np.square(x) / 2) / math.sqrt(2 * math.pi)
            noise = np.hypot(noise * slope, FP32_ROUNDOFF * x)
        return {"C": noise}

    def blocks(self, task: Task) -> dict[str, tuple[int, ...]]:
        """128×128, the granule of the size rules."""
        return {"C": (1,) * (len(task.outputs[0].shape) - 2) + (128, 128)}

    def slices(self, task: Task, sizes: Sizes, inputs: Tensors) -> Iterator[tuple[int, int, dict[str, Float64]]]:
        """The products of 16 successive k; none behind a GELU."""
        if _gelu(task):
            return
        a, b = (x.astype(np.float32) for x in _operands(task, inputs))
        for start in range(0, sizes["K"], SLICE):
            stop = min(start + SLICE, sizes["K"])
            yield start, stop, {"C": (a[..., start:stop] @ b[..., start:stop, :]).astype(np.float64)}

    def mistakes(self, task: Task, sizes: Sizes, inputs: Tensors) -> Mistakes:
        """Operands taken in the other layout; bias or GELU left out."""
        wrong = {name: _other_layout(inputs[name]) for name in "AB"}
        lie = {a.name: f"is taken as {_axes(a, exchanged=True)} (it is {_axes(a)})" for a in task.inputs[:2]}
        yield f"A {lie['A']}", self.truth(task, sizes, {**inputs, "A": wrong["A"]})
        yield f"B {lie['B']}", self.truth(task, sizes, {**inputs, "B": wrong["B"]})
        yield f"A {lie['A']} and B {lie['B']}", self.truth(task, sizes, {**inputs, **wrong})
        if _gelu(task):
            yield "GELU is not applied", self.truth(_without_gelu(task), sizes, inputs)
        if "bias" in inputs:
            unbiased = {name: tensor for name, tensor in inputs.items() if name != "bias"}
            yield "the bias is not added", self.truth(task, sizes, unbiased)

    def flops(self, task: Task, sizes: Sizes) -> int:
        """2·M·N·K for each of L."""
        return 2 * sizes["M"] * sizes["N"] * sizes["K"] * sizes.get("L", 1)


def _operands(task: Task, inputs: Tensors) -> tuple[Tensor, Tensor]:
    """A as [..., M, K] and B as [..., K, N]."""
    shapes = {argument.name: argument.shape for argument in task.inputs}
    a, b = inputs["A"], inputs["B"]
    return (a if shapes["A"][-1] == "K" else turned(a)), (turned(b) if shapes["B"][-1] == "K" else b)


def _other_layout(tensor: Tensor) -> Tensor:
    """The values that a kernel reads when it takes a row-major matrix for a column-major one."""
    return turned(tensor.reshape(turned(tensor).shape))


def _axes(argument: Argument, *, exchanged: bool = False) -> str:
    *lead, rows, columns = argument.shape
    return f"[{', '.join((*lead, columns, rows) if exchanged else (*lead, rows, columns))}]"


def _bias(inputs: Tensors) -> Float64:
    return inputs["bias"].astype(np.float64) if "bias" in inputs else np.zeros(1)


def _gelu(task: Task) -> bool:
    return task.options.get("gelu", False)


def _without_gelu(task: Task) -> Task:
    return task.model_copy(update={"options": {**task.options, "gelu": False}})


def _normal_cdf(x: NDArray[np.floating]) -> Float64:
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return (1 + erf(x / math.sqrt(2))) / 2
