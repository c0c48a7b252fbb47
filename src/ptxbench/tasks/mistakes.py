"""Mistakes that authors make, each in words and with the outputs that it leads to, so that a judge can name it.

All functions yield (words, outputs by name in float64); outputs that a mistake leaves right may be missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ptxbench.core import Task
from ptxbench.tasks.arrays import Float64, Mask, Mistakes, Sizes, Tensors, turned
from ptxbench.tasks.softmax import Softmax, logits, softmax, visible_keys

_TILES = (16, 32, 64, 128)
_LN2 = math.log(2.0)


def forward_mistakes(task: Task, sizes: Sizes, inputs: Tensors) -> Mistakes:
    """Wrong masks, keys left out, wrong scales, wrong normalisation, wrong LSE, wrong heads and layouts."""
    q, k, v = (inputs[name].astype(np.float64) for name in "QKV")
    visible = visible_keys(task, sizes["S"])
    right = softmax(logits(q, k, visible))
    top = logits(q, k, visible).max(axis=-1)

    def output(found: Softmax) -> dict[str, Float64]:
        return {"O": found.weights @ v, "LSE": found.lse}

    yield "LSE is a logarithm to base 2 (asked: the natural one)", {"LSE": right.lse / _LN2}
    yield "LSE lacks the maximum (add it to the logarithm of the sum)", {"LSE": right.lse - top}
    yield "LSE lacks the logarithm of the sum (it is the maximum)", {"LSE": top}
    yield "LSE is the logarithm to base 2 of the sum plus the maximum", {"LSE": (right.lse - top) / _LN2 + top}
    yield "LSE takes the maximum before it is scaled by 1/√D", {
        "LSE": right.lse - top + math.sqrt(sizes["D"]) * top
    }
    yield "the weights are not divided by their sum", {"O": np.exp(right.lse - top)[..., None] * (right.weights @ v)}
    for words, mask in (*_wrong_masks(task, sizes["S"]), *_missing_keys(visible)):
        yield words, output(softmax(logits(q, k, mask)))
    for words, factor in _wrong_scales(sizes["D"]):
        yield words, output(softmax(logits(q, k, visible, factor)))
    yield "the softmax runs over the queries instead of the keys", output(softmax(turned(logits(q, k, visible))))
    for words, changed in _wrong_heads(sizes, {"Q": q, "K": k, "V": v}):
        weights, lse = softmax(logits(changed["Q"], changed["K"], visible))
        yield words, {"O": weights @ changed["V"], "LSE": lse}
    if sizes["H"] > 1:
        weights, _ = softmax(logits(_as_bshd(q, sizes), _as_bshd(k, sizes), visible))
        yield "the tensors are taken as [B, S, H, D] (they are [B, H, S, D])", {
            "O": _from_bshd(weights @ _as_bshd(v, sizes))
        }


def backward_mistakes(task: Task, sizes: Sizes, inputs: Tensors) -> Mistakes:
    """Wrong masks, scales and LSE; delta left out; wrong heads."""
    given = {name: tensor.astype(np.float64) for name, tensor in inputs.items()}
    visible = visible_keys(task, sizes["S"])
    lse = given["LSE"][..., None]

    def weights(mask: Mask = visible, factor: float = 1.0, log: Float64 = lse) -> Float64:
        with np.errstate(over="ignore"):
            return np.exp(logits(given["Q"], given["K"], mask, factor) - log)

    def gradients(found: Float64, of: Tensors = given, *, delta: bool = True) -> dict[str, Float64]:
        with np.errstate(invalid="ignore", over="ignore"):
            rows = (of["dO"] * of["O"]).sum(axis=-1, keepdims=True) if delta else np.zeros_like(lse)
            d_scores = found * (of["dO"] @ turned(of["V"]) - rows) / math.sqrt(sizes["D"])
            return {"dQ": d_scores @ of["K"], "dK": turned(d_scores) @ of["Q"], "dV": turned(found) @ of["dO"]}

    plain = gradients(weights())
    yield "delta = rowsum(dO∘O) is not subtracted", gradients(weights(), delta=False)
    yield "LSE is taken as a logarithm to base 2 (it is the natural one)", gradients(weights(log=lse * _LN2))
    yield "LSE is multiplied by log2(e) although the logits are not", gradients(weights(log=lse / _LN2))
    for words, mask in _wrong_masks(task, sizes["S"]):
        yield words, gradients(weights(mask))
    for words, factor in _wrong_scales(sizes["D"]):
        yield words, gradients(weights(factor=factor))
    for name in plain:
        others = {other: plain[other] for other in plain if other != name}
        for other, values in others.items():
            yield f"it holds what belongs into {other}", {name: values}
    for words, changed in _wrong_heads(sizes, given):
        with np.errstate(over="ignore"):
            found = np.exp(logits(changed["Q"], changed["K"], visible) - changed["LSE"][..., None])
        yield words, gradients(found, changed)


def _wrong_masks(task: Task, length: int) -> Iterator[tuple[str, Mask]]:
    key: NDArray[np.int64] = np.arange(length, dtype=np.int64)
    query = key[:, None]
    if not task.options.get("causal", False):
        yield "a causal mask is applied (the task has none)", key <= query
        return
    yield "the causal mask is missing", key < length + 0 * query
    yield "the causal mask hides the diagonal too (keys up to the query's own position are visible)", key < query
    yield "the causal mask shows one later key (keys up to the query's own position are visible)", key <= query + 1
    for tile in _TILES:
        yield f"the causal mask is not applied inside the diagonal tiles of {tile} keys", key // tile <= query // tile
        yield f"the diagonal tiles of {tile} keys are skipped", key // tile < query // tile


def _missing_keys(visible: Mask) -> Iterator[tuple[str, Mask]]:
    length = visible.shape[-1]
    key = np.arange(length)
    for tile in _TILES:
        if tile < length:
            last = (length - 1) // tile * tile
            yield f"keys {last}-{length - 1} (the last tile) are left out", visible & (key < last)
            yield f"keys 0-{tile - 1} (the first tile) are left out", visible & (key >= tile)


def _wrong_scales(depth: int) -> Iterator[tuple[str, float]]:
    yield "the logits are not scaled by 1/√D", math.sqrt(depth)
    yield "the logits are scaled by 1/D instead of 1/√D", 1 / math.sqrt(depth)
    yield "2^x is taken of logits that were not multiplied by log2(e)", _LN2
    yield "e^x is taken of logits that were multiplied by log2(e)", 1 / _LN2


def _wrong_heads(sizes: Sizes, tensors: dict[str, Float64]) -> Iterator[tuple[str, dict[str, Float64]]]:
    for axis, (size, word) in enumerate((("B", "batch"), ("H", "head"))):
        if sizes[size] == 1:
            continue
        for name in ("Q", "K", "V"):
            first = np.broadcast_to(np.take(tensors[name], [0], axis=axis), tensors[name].shape)
            yield f"{name} is read from {word} 0 for every {word}", {**tensors, name: first}


def _as_bshd(tensor: Float64, sizes: Sizes) -> Float64:
    return tensor.reshape(sizes["B"], sizes["S"], sizes["H"], sizes["D"]).swapaxes(1, 2)


def _from_bshd(tensor: Float64) -> Float64:
    return np.ascontiguousarray(tensor.swapaxes(1, 2)).reshape(tensor.shape)
