"""What attention forward and backward share: logits, softmax, and how far an honest kernel may be from them.

Tensors are [B, H, S, D]; matrices of logits and weights are [B, H, S, S], queries by keys.
"""

from __future__ import annotations

import math
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from ptxbench.core import Task
from ptxbench.tasks.arrays import Float32, Float64, Mask, turned
from ptxbench.tasks.rounding import summation_factor

Float = TypeVar("Float", Float32, Float64)


class Softmax(NamedTuple, Generic[Float]):
    """Weights [B, H, S, S], whose rows sum to 1, and the natural logarithm of the sum of exponentials [B, H, S]."""

    weights: Float
    lse: Float


def visible_keys(task: Task, length: int) -> Mask:
    """Which keys (columns) each query (row) sees: all, or those up to its own position if the task is causal."""
    everything = np.ones((length, length), bool)
    return np.tril(everything) if task.options.get("causal", False) else everything


def logits(q: Float, k: Float, visible: Mask, factor: float = 1.0) -> Float:
    """factor/√D · Q·Kᵀ in the operands' precision, minus infinity where a key is not ``visible``."""
    scores: Float = q.dtype.type(factor / math.sqrt(q.shape[-1])) * (q @ turned(k))
    np.copyto(scores, -np.inf, where=~visible)
    return scores


def softmax(scores: Float) -> Softmax[Float]:
    """The softmax of every row; NaN where a row has no finite logit."""
    with np.errstate(invalid="ignore", divide="ignore"):
        top: Float = scores.max(axis=-1, keepdims=True)
        weights: Float = scores - top
        np.exp(weights, out=weights)
        total: Float = weights.sum(axis=-1, keepdims=True)
        return Softmax(weights / total, (top + np.log(total))[..., 0])


def exact_softmax(task: Task, q: Float64, k: Float64, factor: float) -> Softmax[Float64]:
    """The task's softmax when the product Q·Kᵀ is scaled by ``factor``."""
    return softmax(logits(q, k, visible_keys(task, q.shape[-2]), factor))


def logit_noise(q: Float64, k: Float64, factor: float) -> Float64:
    """RMS error of each logit: that of a sum of D products in fp32, times factor/√D; [B, H, S, S]."""
    depth = q.shape[-1]
    return abs(factor) / math.sqrt(depth) * summation_factor(depth) * (np.abs(q) @ turned(np.abs(k)))
