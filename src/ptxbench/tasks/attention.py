"""Softmax attention: O = softmax(Q·Kᵀ/√D)·V with LSE, and its derivative.

Derived errors (``noise``) follow from these facts about an honest kernel. It must round the weights P, and in the
backward pass dS, to the operands' dtype before they are multiplied: an independent relative error of `roundoff` each.
Its logits carry the fp32 error of a sum of D products, a relative error of the weights; weights too small for fp32
become zero. It may take O as given, rounded, for the row sums delta = Σ dO∘O. The fp32 error of the sums over keys or
queries is dominated by the first (S·2^-24 against 2^-9) and left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from ptxbench.core import Task
from ptxbench.tasks.arrays import Float32, Float64, Mask, Mistakes, Sizes, Tensor, Tensors, numpy_dtype, turned
from ptxbench.tasks.distributions import draw_inputs
from ptxbench.tasks.gemm import SLICE
from ptxbench.tasks.mistakes import backward_mistakes, forward_mistakes
from ptxbench.tasks.rounding import FP32_ROUNDOFF, roundoff, summation_factor, underflow
from ptxbench.tasks.softmax import exact_softmax, logit_noise, logits, visible_keys

EXP_ERROR = 2.0**-13
"""Relative error of an exponential that is needed in 16 bits only: the best cubic for 2^x on [0, 1) has 1e-4."""

ROWS = 128
"""Rows in the block in which errors are judged: the granule of the size rules."""


class AttentionForward:
    """The operation ``attention_forward``: inputs Q, K, V, outputs O and LSE (natural logarithm); option ``causal``."""

    summed: Mapping[str, str] = {}

    def inputs(self, task: Task, sizes: Sizes, distribution: str, seed: int) -> dict[str, Tensor]:
        """Q, K and V from the distribution."""
        return draw_inputs(task, sizes, distribution, seed)

    def given(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Tensor]:
        """Q, K and V as they are."""
        return dict(inputs)

    def truth(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Float64]:
        """O = f·P·V with P = softmax(f·Q·Kᵀ/√D), f the scale; and LSE."""
        q, k, v = (inputs[name].astype(np.float64) for name in "QKV")
        weights, lse = exact_softmax(task, q, k, product_scale)
        return {"O": product_scale * (weights @ v), "LSE": lse}

    def honest(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Tensor]:
        """Unnormalised weights in fp32, summed, rounded, multiplied with V; one division and rounding at the end."""
        q, k, v = (inputs[name].astype(np.float32) for name in "QKV")
        scores = logits(q, k, visible_keys(task, sizes["S"]), product_scale)
        top = scores.max(axis=-1, keepdims=True)
        weights = np.exp(scores - top)
        total = weights.sum(axis=-1, keepdims=True)
        output = np.float32(product_scale) * (_operand(task, weights) @ v) / total
        return {"O": output.astype(numpy_dtype(task.outputs[0].dtype)), "LSE": (top + np.log(total))[..., 0]}

    def noise(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Float64]:
        """O: errors of the weights, times V. LSE: errors of the logits, the exponential, and four roundings to fp32."""
        q, k, v = (inputs[name].astype(np.float64) for name in "QKV")
        weights, lse = exact_softmax(task, q, k, product_scale)
        noise = logit_noise(q, k, product_scale)
        relative = np.hypot(roundoff(task.matrix_dtype), noise)
        errors = np.hypot(relative * weights, underflow(task.matrix_dtype))
        of_logits = np.square(noise * weights).sum(axis=-1)
        return {
            "O": abs(product_scale) * np.sqrt(np.square(errors) @ np.square(v)),
            "LSE": np.sqrt(of_logits + EXP_ERROR**2 + np.square(4 * FP32_ROUNDOFF * lse)),
        }

    def blocks(self, task: Task) -> dict[str, tuple[int, ...]]:
        """128 queries of one head."""
        return {"O": (1, 1, ROWS, 128), "LSE": (1, 1, ROWS)}

    def slices(self, task: Task, sizes: Sizes, inputs: Tensors) -> Iterator[tuple[int, int, dict[str, Float64]]]:
        """None: a missing key changes the weight of every other."""
        return iter(())

    def mistakes(self, task: Task, sizes: Sizes, inputs: Tensors) -> Mistakes:
        """Masks, keys, scales, normalisation, LSE, heads and layouts."""
        return forward_mistakes(task, sizes, inputs)

    def flops(self, task: Task, sizes: Sizes) -> int:
        """4·B·H·S²·D, half of it if causal."""
        whole = 4 * sizes["B"] * sizes["H"] * sizes["S"] ** 2 * sizes["D"]
        return whole // 2 if task.options.get("causal", False) else whole


class AttentionBackward:
    """The operation ``attention_backward``: inputs Q, K, V, O, dO, LSE, outputs dQ, dK, dV; option ``causal``.

    O and LSE are made from Q, K and V. With f the scale of every product: P = exp(f·Q·Kᵀ/√D − LSE), dV = f·Pᵀ·dO,
    dP = f·dO·Vᵀ, dS = P∘(dP − delta) with delta = Σ dO∘O, dQ = f·dS·K/√D, dK = f·dSᵀ·Q/√D. Because O and LSE are those
    of the scaled forward pass, delta is also Σ P∘dP, and a kernel may recompute either.
    """

    forward = AttentionForward()
    summed: Mapping[str, str] = {"dQ": "keys", "dK": "queries", "dV": "queries"}

    def inputs(self, task: Task, sizes: Sizes, distribution: str, seed: int) -> dict[str, Tensor]:
        """Q, K, V and dO from the distribution."""
        return draw_inputs(task, sizes, distribution, seed, without=("O", "LSE"))

    def given(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Tensor]:
        """Adds O and LSE: the truth of the (scaled) forward pass, rounded to their dtypes."""
        made = self.forward.truth(task, sizes, inputs, product_scale)
        dtypes = {argument.name: numpy_dtype(argument.dtype) for argument in task.inputs}
        return {**inputs, **{name: values.astype(dtypes[name]) for name, values in made.items()}}

    def truth(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Float64]:
        """The derivative from Q, K, V and dO alone, in float64."""
        q, k, v, d_out = (inputs[name].astype(np.float64) for name in ("Q", "K", "V", "dO"))
        weights, _ = exact_softmax(task, q, k, product_scale)
        d_scores = _d_scores(weights, product_scale * (d_out @ turned(v)))
        factor = product_scale / math.sqrt(q.shape[-1])
        return {
            "dQ": factor * (d_scores @ k),
            "dK": factor * (turned(d_scores) @ q),
            "dV": product_scale * (turned(weights) @ d_out),
        }

    def honest(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Tensor]:
        """Weights and dS in fp32 from the given O and LSE, rounded before they are multiplied."""
        q, k, v, out, d_out, lse = (inputs[name].astype(np.float32) for name in ("Q", "K", "V", "O", "dO", "LSE"))
        scale = np.float32(product_scale)
        factor = np.float32(product_scale / math.sqrt(q.shape[-1]))
        scores = logits(q, k, visible_keys(task, sizes["S"]), product_scale)
        weights = np.exp(scores - lse[..., None])
        delta = (d_out * out).sum(axis=-1, keepdims=True)
        d_scores = _operand(task, weights * (scale * (d_out @ turned(v)) - delta))
        results = {
            "dQ": factor * (d_scores @ k),
            "dK": factor * (turned(d_scores) @ q),
            "dV": scale * (turned(_operand(task, weights)) @ d_out),
        }
        return {argument.name: results[argument.name].astype(numpy_dtype(argument.dtype)) for argument in task.outputs}

    def noise(self, task: Task, sizes: Sizes, inputs: Tensors, product_scale: float = 1.0) -> dict[str, Float64]:
        """Errors of P times dO; errors of dS times K and Q.

        dS has its rounding, that of P (which may enter it), the error of the logits, and P times the errors of dP
        (fp32) and delta (rounded O; a weight that becomes zero takes its slope along). That of delta is common to a
        row, so that in dQ it multiplies the row sum P·K.
        """
        q, k, v, d_out = (inputs[name].astype(np.float64) for name in ("Q", "K", "V", "dO"))
        weights, _ = exact_softmax(task, q, k, product_scale)
        relative = np.hypot(roundoff(task.matrix_dtype), logit_noise(q, k, product_scale))
        errors = np.hypot(relative * weights, underflow(task.matrix_dtype))
        out = product_scale * (weights @ v)
        slope = product_scale * (d_out @ turned(v)) - (d_out * out).sum(axis=-1, keepdims=True)
        delta = np.hypot(
            roundoff(task.matrix_dtype) * _norm(d_out * out),
            underflow("f32") * _norm(slope, where=visible_keys(task, sizes["S"])),
        )
        sums = abs(product_scale) * summation_factor(q.shape[-1]) * (np.abs(d_out) @ turned(np.abs(v)))
        rounding = roundoff(task.matrix_dtype) * weights
        own = (np.square(errors) + np.square(rounding)) * np.square(slope) + np.square(weights * sums)
        common = np.square(weights * delta)
        factor = abs(product_scale) / math.sqrt(q.shape[-1])
        return {
            "dQ": factor * np.sqrt(own @ np.square(k) + np.square(delta * (weights @ k))),
            "dK": factor * np.sqrt(turned(own + common) @ np.square(q)),
            "dV": abs(product_scale) * np.sqrt(turned(np.square(errors)) @ np.square(d_out)),
        }

    def blocks(self, task: Task) -> dict[str, tuple[int, ...]]:
        """128 queries (or keys) of one head."""
        return dict.fromkeys(("dQ", "dK", "dV"), (1, 1, ROWS, 128))

    def slices(self, task: Task, sizes: Sizes, inputs: Tensors) -> Iterator[tuple[int, int, dict[str, Float64]]]:
        """The products of 16 successive keys (dQ) or queries (dK, dV)."""
        q, k, v, d_out = (inputs[name].astype(np.float64) for name in ("Q", "K", "V", "dO"))
        weights, _ = exact_softmax(task, q, k, 1.0)
        d_scores = _d_scores(weights, d_out @ turned(v)) / math.sqrt(q.shape[-1])
        for start in range(0, sizes["S"], SLICE):
            here = slice(start, min(start + SLICE, sizes["S"]))
            yield here.start, here.stop, {
                "dQ": d_scores[..., here] @ k[..., here, :],
                "dK": turned(d_scores[..., here, :]) @ q[..., here, :],
                "dV": turned(weights[..., here, :]) @ d_out[..., here, :],
            }

    def mistakes(self, task: Task, sizes: Sizes, inputs: Tensors) -> Mistakes:
        """Masks, scales, LSE, delta and heads."""
        return backward_mistakes(task, sizes, inputs)

    def flops(self, task: Task, sizes: Sizes) -> int:
        """2.5 times the forward pass: five products instead of two."""
        return self.forward.flops(task, sizes) * 5 // 2


def _norm(values: Float64, where: Mask | bool = True) -> Float64:
    """The root of the sum of squares over the last axis, which stays."""
    return np.sqrt(np.square(values).sum(axis=-1, keepdims=True, where=where))


def _d_scores(weights: Float64, d_weights: Float64) -> Float64:
    return weights * (d_weights - (weights * d_weights).sum(axis=-1, keepdims=True))


def _operand(task: Task, values: Float32) -> Float32:
    """Rounded as an operand of the matrix instruction."""
    return values.astype(numpy_dtype(task.matrix_dtype)).astype(np.float32)
