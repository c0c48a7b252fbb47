"""Mistakes that authors of attention kernels make, each in words and with the outputs that it leads to.

All functions yield (words, outputs by name), computed in fp32: enough to recognise a mistake by. Outputs that a mistake
leaves right may be missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ptxbench.core import Task
from ptxbench.tasks.arrays import Float32, Mask, Mistakes, Sizes, Tensor, Tensors, turned
from ptxbench.tasks.softmax import logits, softmax, visible_keys

_TILES = (16, 32, 64, 128)
_LN2 = math.log(2.0)


def forward_mistakes(task: Task, sizes: Sizes, inputs: Tensors) -> Mistakes:
    """Wrong LSE, normalisation, masks, keys left out, scales, heads and layouts."""
    given = {name: inputs[name].astype(np.float32) for name in "QKV"}
    visible = visible_keys(task, sizes["S"])
    scores = _scores(given)

    def outputs(masked: Float32, v: Float32 = given["V"]) -> dict[str, Tensor]:
        weights, lse = softmax(masked)
        return {"O": weights @ v, "LSE": lse}

    right = outputs(_hidden(scores, visible))
    top = _hidden(scores, visible).max(axis=-1)
    of_sum = right["LSE"] - top
    yield "LSE is a logarithm to base 2 (asked: the natural one)", {"LSE": right["LSE"] / _LN2}
    yield "LSE lacks the maximum (add it to the logarithm of the sum)", {"LSE": of_sum}
    yield "LSE lacks the logarithm of the sum (it is the maximum)", {"LSE": top}
    yield "LSE adds a logarithm to base 2 to the maximum", {"LSE": of_sum / _LN2 + top}
    yield "LSE takes the maximum before it is scaled by 1/√D", {"LSE": of_sum + math.sqrt(sizes["D"]) * top}
    yield "the weights are not divided by their sum", {"O": np.exp(of_sum)[..., None] * right["O"]}
    for words, mask in (*_wrong_masks(task, sizes["S"]), *_missing_keys(visible)):
        yield words, outputs(_hidden(scores, mask))
    for words, factor in _wrong_scales(sizes["D"]):
        yield words, outputs(_hidden(_scaled(scores, factor), visible))
    yield "the softmax runs over the queries instead of the keys", outputs(turned(_hidden(scores, visible)))
    for words, changed in _wrong_heads(sizes, given):
        yield words, outputs(_hidden(_scores(changed), visible), changed["V"])
    if sizes["H"] > 1:
        seen = {name: _as_bshd(tensor, sizes) for name, tensor in given.items()}
        found = outputs(_hidden(_scores(seen), visible), seen["V"])["O"]
        yield "the tensors are taken as [B, S, H, D] (they are [B, H, S, D])", {"O": _from_bshd(found)}


def backward_mistakes(task: Task, sizes: Sizes, inputs: Tensors) -> Mistakes:
    """Wrong delta, LSE, masks, scales and heads; one gradient in the place of another."""
    given = {name: tensor.astype(np.float32) for name, tensor in inputs.items()}
    visible = visible_keys(task, sizes["S"])
    scores, lse = _scores(given), given["LSE"][..., None]

    def gradients(exponents: Float32, of: dict[str, Float32] = given, *, delta: float = 1.0) -> dict[str, Tensor]:
        with np.errstate(invalid="ignore", over="ignore"):
            weights = np.exp(exponents)
            rows = np.float32(delta) * (of["dO"] * of["O"]).sum(axis=-1, keepdims=True)
            d_scores = weights * (of["dO"] @ turned(of["V"]) - rows) * np.float32(1 / math.sqrt(sizes["D"]))
            return {"dQ": d_scores @ of["K"], "dK": turned(d_scores) @ of["Q"], "dV": turned(weights) @ of["dO"]}

    masked = _hidden(scores, visible)
    right = gradients(masked - lse)
    yield "delta = rowsum(dO∘O) is not subtracted", gradients(masked - lse, delta=0.0)
    yield "LSE is taken as a logarithm to base 2 (it is the natural one)", gradients(masked - _scaled(lse, _LN2))
    yield "LSE is multiplied by log2(e) and the logits are not", gradients(masked - _scaled(lse, 1 / _LN2))
    for words, mask in _wrong_masks(task, sizes["S"]):
        yield words, gradients(_hidden(scores, mask) - lse)
    for words, factor in _wrong_scales(sizes["D"]):
        yield words, gradients(_scaled(masked, factor) - lse)
    for name in right:
        yield f"every gradient is {name}", dict.fromkeys((other for other in right if other != name), right[name])
    for words, changed in _wrong_heads(sizes, given):
        yield words, gradients(_hidden(_scores(changed), visible) - lse, changed)


def _scores(tensors: dict[str, Float32]) -> Float32:
    """All logits, whether visible or not."""
    return logits(tensors["Q"], tensors["K"], np.ones((), bool))


def _scaled(values: Float32, factor: float) -> Float32:
    return values * np.float32(factor)


def _hidden(scores: Float32, visible: Mask) -> Float32:
    return np.where(visible, scores, np.float32(-np.inf))


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
    key: NDArray[np.int64] = np.arange(length, dtype=np.int64)
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


def _wrong_heads(sizes: Sizes, tensors: dict[str, Float32]) -> Iterator[tuple[str, dict[str, Float32]]]:
    for axis, (size, word) in enumerate((("B", "batch"), ("H", "head"))):
        if sizes[size] == 1:
            continue
        for name in ("Q", "K", "V"):
            first = np.broadcast_to(np.take(tensors[name], [0], axis=axis), tensors[name].shape)
            yield f"{name} is read from {word} 0 for every {word}", {**tensors, name: first}


def _as_bshd(tensor: Float32, sizes: Sizes) -> Float32:
    return tensor.reshape(sizes["B"], sizes["S"], sizes["H"], sizes["D"]).swapaxes(1, 2)


def _from_bshd(tensor: Tensor) -> Tensor:
    return np.ascontiguousarray(tensor.swapaxes(1, 2)).reshape(tensor.shape)
