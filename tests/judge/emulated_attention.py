"""Emulated attention kernels, honest and cheating: functions from a problem to its outputs in their dtypes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from emulated_gemm import bf16, fp8
from numpy.typing import NDArray

from ptxbench.core import Workload
from ptxbench.tasks import Problem, Tensor, get_task, make_problem

Values = NDArray[np.float32]
Rounding = Callable[[Values], Values]
Kernel = Callable[[Problem], dict[str, Tensor]]
Choice = Callable[[int, int], bool]

LOG2_E = np.float32(1.4426950408889634)
MMA_K = 16


def problem(direction: str, distribution: str = "normal", seed: int = 1, *, causal: bool = False, b: int = 1,
            h: int = 1, s: int = 256) -> Problem:  # fmt: skip
    workload = Workload(tier="small", sizes={"B": b, "H": h, "S": s, "D": 128})
    task = get_task(f"mha_{direction}_d128" + ("_causal" if causal else ""))
    return make_problem(task, workload, distribution, seed)


def exact(values: Values) -> Values:
    return values


def e4m3(values: Values) -> Values:
    return values.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def turned(values: Tensor) -> Tensor:
    return np.swapaxes(values, -1, -2)


def polynomial_exp2(x: Values) -> Values:
    """2^x with a cubic on [0, 1) that interpolates at Chebyshev nodes (relative error about 1e-4)."""
    nodes = (1 + np.cos(np.pi * (np.arange(4) + 0.5) / 4)) / 2
    cubic = np.polyfit(nodes, np.exp2(nodes), 3).astype(np.float32)
    x = np.maximum(x, np.float32(-126))
    whole = np.floor(x)
    return np.ldexp(np.polyval(cubic, x - whole), whole.astype(np.int32))


def product(a: Values, b: Values, accumulator: Rounding) -> Values:
    """a·b, with the sum rounded after every instruction of 16 products."""
    if accumulator is exact:
        return a @ b
    total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
    for k in range(0, a.shape[-1], MMA_K):
        total = accumulator(total + a[..., k : k + MMA_K] @ b[..., k : k + MMA_K, :])
    return total


def hidden(queries: int, keys: int, first_key: int, offset: int = 0, granule: int = 1) -> NDArray[np.bool_]:
    """Keys that lie behind ``query - offset``, in steps of ``granule``."""
    key, query = np.arange(first_key, first_key + keys)[None, :], np.arange(queries)[:, None]
    return key // granule > (query - offset) // granule


def forward(
    of: Problem, *, keys: int = 64, backwards: bool = False, lazy: float = 0.0, exp2: Rounding = np.exp2,
    weights_to: Rounding = bf16, operands_to: Rounding = exact, values_to: Rounding = exact, sum_rounded: bool = False,
    scores_to: Rounding = exact, scores_in: Rounding = exact, sums_in: Rounding = exact, scale: float = 128.0**-0.5,
    mask_offset: int = 0, mask_granule: int = 1, masked: bool = True, skip: Choice = lambda tile, tiles: False,
    rescale: bool = True, base_two: bool = False, floor: float = 0.0, divided: bool = True,
) -> dict[str, Tensor]:  # fmt: skip
    """Online softmax over tiles of ``keys``: the running maximum moves only when exceeded by ``lazy`` (in powers of 2).

    ``..._to`` round operands, ``..._in`` accumulators.
    """
    q, k, v = (operands_to(of.inputs[n].astype(np.float32)) for n in "QKV")
    v = values_to(v)
    f = np.float32(of.product_scale)
    length = q.shape[-2]
    causal = of.task.options["causal"]
    top = np.full((*q.shape[:-1], 1), -np.inf, np.float32)
    total = np.zeros_like(top)
    out = np.zeros_like(q)
    tiles = length // keys
    for tile in reversed(range(tiles)) if backwards else range(tiles):
        if skip(tile, tiles):
            continue
        here = slice(tile * keys, (tile + 1) * keys)
        scores = scores_to(f * product(q, turned(k[..., here, :]), scores_in)) * np.float32(scale) * LOG2_E
        if causal and masked:
            scores = np.where(hidden(length, keys, here.start, mask_offset, mask_granule), np.float32(-np.inf), scores)
        higher = np.maximum(top, scores.max(axis=-1, keepdims=True))
        moved = (higher > top + np.float32(lazy)) if np.isfinite(top).any() else np.ones_like(top, bool)
        new = np.where(moved | ~np.isfinite(top), higher, top)
        base = np.where(np.isfinite(new), new, np.float32(0))
        shrink = np.exp2(np.where(np.isfinite(top), top, base) - base) if rescale else np.float32(1)
        weights = np.where(np.isfinite(scores), exp2(scores - base), np.float32(0))
        weights = np.where(weights < np.float32(floor), np.float32(0), weights)
        total = total * shrink + (weights_to(weights) if sum_rounded else weights).sum(axis=-1, keepdims=True)
        out = sums_in(out * shrink + f * product(weights_to(weights), v[..., here, :], sums_in))
        top = new
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = (top + np.log2(total)) if base_two else (top + np.log2(total)) / LOG2_E
        return {"O": (out / total if divided else out).astype(ml_dtypes.bfloat16), "LSE": lse[..., 0]}


def split_keys(of: Problem, pieces: int = 2) -> dict[str, Tensor]:
    """Independent halves of the keys, joined through their LSE in fp32."""
    q, k, v = (of.inputs[n].astype(np.float32) for n in "QKV")
    f = np.float32(of.product_scale)
    scores = f * (q @ turned(k)) * np.float32(128.0**-0.5)
    if of.task.options["causal"]:
        scores = np.where(hidden(q.shape[-2], q.shape[-2], 0), np.float32(-np.inf), scores)
    outs, logs = [], []
    for part, values in zip(np.split(scores, pieces, axis=-1), np.split(v, pieces, axis=-2), strict=True):
        top = part.max(axis=-1, keepdims=True)
        base = np.where(np.isfinite(top), top, np.float32(0))
        weights = np.exp(part - base)
        total = weights.sum(axis=-1, keepdims=True)
        outs.append(f * (bf16(weights) @ values) / np.where(total > 0, total, np.float32(1)))
        with np.errstate(divide="ignore"):
            logs.append(base + np.log(total))
    top = np.maximum.reduce(logs)
    shares = [np.exp(log - top) for log in logs]
    total = sum(shares)
    out = sum(share * out for share, out in zip(shares, outs, strict=True)) / total
    return {"O": out.astype(ml_dtypes.bfloat16), "LSE": (top + np.log(total))[..., 0]}


def backward(
    of: Problem, *, tile: int = 64, backwards: bool = False, recompute: bool = False, exp2: Rounding = np.exp2,
    weights_to: Rounding = bf16, d_scores_to: Rounding = bf16, operands_to: Rounding = exact,
    d_out_to: Rounding = exact, from_rounded_weights: bool = False, folded_scale: bool = False,
    scores_in: Rounding = exact, sums_in: Rounding = exact, d_q_in: Rounding = exact, scale: float = 128.0**-0.5,
    lse_factor: float = 1.0,
    mask_offset: int = 0, mask_granule: int = 1, masked: bool = True, skip: Choice = lambda tile, tiles: False,
    delta: bool = True, late_scale: bool = True,
) -> dict[str, Tensor]:  # fmt: skip
    """Loops over tiles of keys; dQ is accumulated over them. ``late_scale`` False forgets the scale of dQ."""
    q, k, v, out, d_out = (operands_to(of.inputs[n].astype(np.float32)) for n in ("Q", "K", "V", "O", "dO"))
    d_out = d_out_to(d_out)
    lse = of.inputs["LSE"][..., None] * np.float32(lse_factor)
    f, factor = np.float32(of.product_scale), np.float32(scale)
    length = q.shape[-2]
    if recompute:
        made = forward(of, weights_to=exact, keys=tile)
        lse = made["LSE"][..., None]
        out = made["O"].astype(np.float32)
    offset = (d_out * out).sum(axis=-1, keepdims=True) if delta else np.float32(0)
    d_q, d_k, d_v = (np.zeros_like(q) for _ in range(3))
    tiles = length // tile
    for index in reversed(range(tiles)) if backwards else range(tiles):
        if skip(index, tiles):
            continue
        here = slice(index * tile, (index + 1) * tile)
        scores = f * product(q, turned(k[..., here, :]), scores_in) * factor * LOG2_E
        if of.task.options["causal"] and masked:
            scores = np.where(hidden(length, tile, here.start, mask_offset, mask_granule), np.float32(-np.inf), scores)
        weights = np.where(np.isfinite(scores), exp2(scores - lse * LOG2_E), np.float32(0))
        d_weights = f * product(d_out, turned(v[..., here, :]), scores_in)
        d_scores = (weights_to(weights) if from_rounded_weights else weights) * (d_weights - offset)
        d_scores = d_scores_to(d_scores * factor if folded_scale else d_scores)
        late = np.float32(1) if folded_scale or not late_scale else factor
        d_v[..., here, :] = f * product(turned(weights_to(weights)), d_out, sums_in)
        d_k[..., here, :] = f * product(turned(d_scores), q, sums_in) * (np.float32(1) if folded_scale else factor)
        d_q = d_q_in(d_q + f * product(d_scores, k[..., here, :], sums_in) * late)
    return {n: g.astype(ml_dtypes.bfloat16) for n, g in (("dQ", d_q), ("dK", d_k), ("dV", d_v))}


def last(tile: int, tiles: int) -> bool:
    return tile == tiles - 1


def altered(kernel: Kernel, name: str, change: Callable[[Tensor], Tensor]) -> Kernel:
    """The kernel with one output changed."""

    def changed(of: Problem) -> dict[str, Tensor]:
        outputs = kernel(of)
        return {**outputs, name: change(outputs[name]).astype(outputs[name].dtype)}

    return changed


def variants(kernel: Callable[..., dict[str, Tensor]], **options: dict[str, Any]) -> dict[str, Kernel]:
    return {name.replace("_", " "): partial(kernel, **chosen) for name, chosen in options.items()}


HONEST: dict[str, dict[str, Kernel]] = {
    "fwd": {
        **variants(
            forward,
            tiles_of_32={"keys": 32},
            tiles_of_128={"keys": 128},
            one_pass_over_all_keys={"keys": 256},
            last_tile_first={"keys": 64, "backwards": True},
            lazy_rescaling={"lazy": 8.0},
            lazy_and_backwards={"lazy": 8.0, "backwards": True, "keys": 32},
            polynomial_exponential={"exp2": polynomial_exp2},
        ),
        "split keys": split_keys,
    },
    "bwd": variants(
        backward,
        tiles_of_32={"tile": 32},
        tiles_of_128={"tile": 128},
        last_tile_first={"backwards": True},
        recomputed_forward={"recompute": True},
        polynomial_exponential={"exp2": polynomial_exp2},
        dS_from_rounded_weights={"from_rounded_weights": True},
        scale_folded_into_dS={"folded_scale": True},
    ),
}

CHEATS: dict[str, dict[str, Kernel]] = {
    "fwd": {
        **variants(
            forward,
            weights_in_fp8={"weights_to": e4m3},
            everything_in_fp8={"weights_to": e4m3, "operands_to": fp8},
            queries_and_keys_in_fp8={"operands_to": fp8},
            values_in_fp8={"values_to": fp8},
            bf16_accumulators={"scores_in": bf16, "sums_in": bf16},
            bf16_accumulator_of_O={"sums_in": bf16},
            bf16_scores={"scores_to": bf16},
            bf16_accumulator_of_scores={"scores_in": bf16},
            scale_of_1_over_D={"scale": 1 / 128},
            no_scale={"scale": 1.0},
            scale_off_by_one_percent={"scale": 1.01 * 128.0**-0.5},
            last_tile_dropped={"skip": last},
            first_tile_dropped={"skip": lambda tile, tiles: tile == 0},
            output_never_rescaled={"rescale": False},
            not_divided={"divided": False},
            LSE_in_base_two={"base_two": True},
            small_weights_left_out={"floor": 1e-2},
        ),
        "LSE of zeros": altered(forward, "LSE", lambda lse: 0 * lse),
        "LSE in bf16": altered(forward, "LSE", lambda lse: bf16(lse)),
    },
    "bwd": {
        **variants(
            backward,
            weights_in_fp8={"weights_to": e4m3},
            dS_in_fp8={"d_scores_to": lambda x: fp8(x)},
            everything_in_fp8={"weights_to": e4m3, "d_scores_to": fp8, "operands_to": fp8},
            dO_in_fp8={"d_out_to": fp8},
            bf16_accumulators={"sums_in": bf16, "scores_in": bf16},
            bf16_accumulator_of_scores={"scores_in": bf16},
            bf16_accumulator_of_gradients={"sums_in": bf16},
            no_delta={"delta": False},
            scale_of_dQ_forgotten={"late_scale": False},
            scale_off_by_one_percent={"scale": 1.01 * 128.0**-0.5},
            LSE_read_in_base_two={"lse_factor": 1 / 1.4426950408889634},
            last_tile_dropped={"skip": last},
        ),
        "dQ and dK exchanged": lambda of: (lambda g: {**g, "dQ": g["dK"], "dK": g["dQ"]})(backward(of)),
        "dV of zeros": altered(backward, "dV", lambda g: 0 * g),
    },
}

CAUSAL_CHEATS: dict[str, dict[str, Kernel]] = {
    direction: variants(
        kernel,
        mask_missing={"masked": False},
        diagonal_masked_too={"mask_offset": 1},
        mask_one_too_wide={"mask_offset": -1},
    )
    for direction, kernel in (("fwd", forward), ("bwd", backward))
}
