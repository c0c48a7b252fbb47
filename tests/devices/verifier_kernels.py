"""Honest and dishonest work in PyTorch, for the verifier's check on a GPU.

Products take operands whose values are bf16 or fp8 numbers, held in fp32, with TF32 matrix instructions: such products
are exact, and sums are kept in fp32, as bf16 instructions do it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
Work = Callable[[Tensors], Tensors]
LIBRARY = "(torch)"
"""In the names of work that a library may refuse to do."""

TILE = 128
_HEADS = 8
_LARGEST_FP8 = 448.0

torch.backends.cuda.matmul.allow_tf32 = True


def fp8(x: torch.Tensor) -> torch.Tensor:
    """Rounded to e4m3 with one scale for the whole tensor, the largest power of two with which everything fits."""
    scale = torch.exp2(torch.floor(torch.log2(_LARGEST_FP8 / x.abs().max().clamp(min=1e-30))))
    return (x * scale).to(torch.float8_e4m3fn).float() / scale


def bf16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


# GEMM


def gemm_cublas(t: Tensors) -> Tensors:
    return {"C": t["A"] @ t["B"].t()}


def gemm_fp8(t: Tensors) -> Tensors:
    return {"C": (fp8(t["A"].float()) @ fp8(t["B"].float()).t()).bfloat16()}


def gemm_bf16_accumulator(t: Tensors, step: int = 64) -> Tensors:
    """A sum that is rounded to bf16 after every ``step`` products."""
    a, b = t["A"].float(), t["B"].float()
    total = torch.zeros(a.shape[0], b.shape[0], device=a.device)
    for start in range(0, a.shape[1], step):
        total = bf16(total + a[:, start : start + step] @ b[:, start : start + step].t())
    return {"C": total.bfloat16()}


def gemm_split_k_in_bf16(t: Tensors) -> Tensors:
    """Two halves, each rounded to bf16 before they are added."""
    half = t["A"].shape[1] // 2
    first, second = (t["A"][:, part] @ t["B"][:, part].t() for part in (slice(half), slice(half, None)))
    return {"C": first + second}


def gemm_without_last_tile(t: Tensors) -> Tensors:
    return {"C": t["A"][:, :-64] @ t["B"][:, :-64].t()}


def gemm_scaled(t: Tensors) -> Tensors:
    return {"C": (1.01 * (t["A"].float() @ t["B"].float().t())).bfloat16()}


def gemm_bad_tile(t: Tensors) -> Tensors:
    """The last tile lacks one step of 16 along K."""
    c = t["A"] @ t["B"].t()
    c[-TILE:, -TILE:] = t["A"][-TILE:, :-16] @ t["B"][-TILE:, :-16].t()
    return {"C": c}


GEMM_HONEST: dict[str, Work] = {"cublas": gemm_cublas}
GEMM_WRONG: dict[str, Work] = {
    "fp8 operands": gemm_fp8, "bf16 accumulator": gemm_bf16_accumulator, "split-K in bf16": gemm_split_k_in_bf16,
    "last K tile dropped": gemm_without_last_tile, "scaled by 1.01": gemm_scaled,
    "last tile lacks 16 products": gemm_bad_tile,
}

# Attention


class Attention:
    """Softmax attention with ways to go wrong. ``exact`` keeps what the honest algorithm keeps."""

    def __init__(
        self, causal: bool, *, operands: Callable[[torch.Tensor], torch.Tensor] = bf16,
        weights: Callable[[torch.Tensor], torch.Tensor] = bf16,
        values: Callable[[torch.Tensor], torch.Tensor] = bf16,
        scores: Callable[[torch.Tensor], torch.Tensor] = bf16,
        scale: float = 1.0, skip_diagonal: bool = False, drop_last: int = 0, last_tile: float = 1.0,
    ) -> None:
        self.causal, self.operands, self.weights, self.values, self.scores = causal, operands, weights, values, scores
        self.scale, self.skip_diagonal, self.drop_last, self.last_tile = scale, skip_diagonal, drop_last, last_tile

    def _logits(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        length = q.shape[-2]
        s = (self.scale / math.sqrt(q.shape[-1])) * (q @ k.transpose(-1, -2))
        key = torch.arange(length, device=q.device)
        query = key[:, None]
        if self.causal:
            # A first query without any key would have no softmax at all.
            hidden = (key > query) | ((key == query) & (query > 0)) if self.skip_diagonal else key > query
            s.masked_fill_(hidden, -math.inf)
        if self.drop_last:
            s.masked_fill_(key >= length - self.drop_last, -math.inf)
        return s

    def forward(self, t: Tensors) -> Tensors:
        shape = t["Q"].shape
        flat = {name: t[name].reshape(-1, *shape[2:]) for name in "QKV"}
        out = torch.empty_like(flat["Q"])
        lse = torch.empty(out.shape[:2], device=out.device)
        for first in range(0, out.shape[0], _HEADS):
            here = slice(first, first + _HEADS)
            q, k, v = (self.operands(flat[name][here].float()) for name in "QKV")
            s = self._logits(q, k)
            top = s.max(-1, keepdim=True).values
            p = torch.exp(s - top)
            total = p.sum(-1, keepdim=True)
            out[here] = (self.weights(p) @ self.values(v) / total).bfloat16()
            lse[here] = (top + torch.log(total))[..., 0]
        if self.last_tile != 1.0:
            out[-1, -TILE:] = (self.last_tile * out[-1, -TILE:].float()).bfloat16()
        return {"O": out.view(shape), "LSE": lse.view(shape[:3])}

    def backward(self, t: Tensors) -> Tensors:
        shape = t["Q"].shape
        flat = {name: t[name].reshape(-1, *t[name].shape[2:]) for name in ("Q", "K", "V", "O", "dO", "LSE")}
        made = {name: torch.empty_like(flat["Q"]) for name in ("dQ", "dK", "dV")}
        for first in range(0, flat["Q"].shape[0], _HEADS):
            here = slice(first, first + _HEADS)
            q, k, v, d_out = (self.operands(flat[name][here].float()) for name in ("Q", "K", "V", "dO"))
            p = torch.exp(self._logits(q, k) - flat["LSE"][here][..., None])
            delta = (flat["dO"][here].float() * flat["O"][here].float()).sum(-1, keepdim=True)
            d_s = self.scores(p * (d_out @ v.transpose(-1, -2) - delta))
            p = self.weights(p)
            factor = self.scale / math.sqrt(shape[-1])
            made["dQ"][here] = (factor * (d_s @ k)).bfloat16()
            made["dK"][here] = (factor * (d_s.transpose(-1, -2) @ q)).bfloat16()
            made["dV"][here] = (p.transpose(-1, -2) @ d_out).bfloat16()
        if self.last_tile != 1.0:
            made["dK"][-1, -TILE:] = (self.last_tile * made["dK"][-1, -TILE:].float()).bfloat16()
        return {name: value.view(shape) for name, value in made.items()}


def sdpa(causal: bool, backend: str, direction: str) -> Work:
    """PyTorch's attention by one of its libraries; without LSE, which its public interface does not return."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def work(t: Tensors) -> Tensors:
        q, k, v = (t[name].detach().clone().requires_grad_(direction == "backward") for name in "QKV")
        with sdpa_kernel(getattr(SDPBackend, backend)):
            out: Any = scaled_dot_product_attention(q, k, v, is_causal=causal)
        if direction == "forward":
            return {"O": out}
        out.backward(t["dO"])
        return {"dQ": q.grad, "dK": k.grad, "dV": v.grad}

    return work


def attention_work(causal: bool, direction: str) -> tuple[dict[str, Work], dict[str, Work]]:
    """(honest, wrong) work by name."""

    def of(**ways: Any) -> Work:
        return getattr(Attention(causal, **ways), direction)

    honest = {
        "emulated": of(), f"FlashAttention-2 {LIBRARY}": sdpa(causal, "FLASH_ATTENTION", direction),
        f"cuDNN {LIBRARY}": sdpa(causal, "CUDNN_ATTENTION", direction),
    }
    wrong = {
        "fp8 throughout": of(operands=fp8, weights=fp8, values=fp8, scores=fp8),
        "scaled by 1.02": of(scale=1.02), "1 % off in the last tile of the last head": of(last_tile=1.01),
        "last 64 keys left out": of(drop_last=64),
    }
    if direction == "forward":
        wrong |= {"fp8 in P·V only": of(weights=fp8, values=fp8), "fp8 weights only": of(weights=fp8)}
    else:
        wrong |= {"fp8 dS only": of(scores=fp8), "fp8 P and dS": of(weights=fp8, scores=fp8)}
    if causal:
        wrong["diagonal skipped"] = of(skip_diagonal=True)
    return honest, wrong
