"""Planted faults of attention kernels, and the words that their authors get."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from emulated_attention import CAUSAL_CHEATS, CHEATS, Kernel, altered, backward, forward, last, problem

from ptxbench.core import OutputReport
from ptxbench.judge import judge_outputs
from ptxbench.tasks import Problem, Tensor

FORWARD, BACKWARD = CHEATS["fwd"], CHEATS["bwd"]


def judged(direction: str, kernel: Kernel, output: str, *, causal: bool = False, batches: int = 1) -> OutputReport:
    of = problem(direction, seed=7, causal=causal, b=batches, h=2)
    return judge_outputs(of, kernel(of))[output]


def head_of(of: Problem, kernel: Kernel, name: str, change: Callable[[Tensor], None]) -> dict[str, Tensor]:
    outputs = kernel(of)
    change(outputs[name])
    return outputs


def planted(kernel: Kernel, name: str, change: Callable[[Tensor], None]) -> Kernel:
    return partial(head_of, kernel=kernel, name=name, change=change)


def copied_head(tensor: Tensor) -> None:
    tensor[:, 1] = tensor[:, 0]


def negated_warp(tensor: Tensor) -> None:
    tensor[1, 0].reshape(-1, 64, 128)[:, 16:32] *= -1


def zero_tile(tensor: Tensor) -> None:
    tensor[0, 1, 64:128] = 0


def mixed(wrong: Kernel, rows: slice) -> Kernel:
    """Wrong only in some rows of one head."""

    def kernel(of: Problem) -> dict[str, Tensor]:
        outputs, bad = forward(of), wrong(of)
        for name, tensor in outputs.items():
            tensor[1, 1, rows] = bad[name][1, 1, rows]
        return outputs

    return kernel


def as_bshd(of: Problem) -> dict[str, Tensor]:
    """Reads and writes [B, S, H, D]."""
    b, h, s, d = of.inputs["Q"].shape
    seen = {n: np.ascontiguousarray(t.reshape(b, s, h, d).swapaxes(1, 2)) for n, t in of.inputs.items()}
    outputs = forward(Problem(**{**vars(of), "inputs": seen}))
    return {**outputs, "O": np.ascontiguousarray(outputs["O"].swapaxes(1, 2)).reshape(b, h, s, d)}


def first_head_of(name: str) -> Kernel:
    def kernel(of: Problem) -> dict[str, Tensor]:
        tensor = of.inputs[name]
        inputs = {**of.inputs, name: np.broadcast_to(tensor[:, :1], tensor.shape)}
        return (forward if "dO" not in inputs else backward)(Problem(**{**vars(of), "inputs": inputs}))

    return kernel


def forward_causal(of: Problem) -> dict[str, Tensor]:
    return forward(problem("fwd", seed=7, causal=True, b=2, h=2))


FORWARD_WORDS: dict[str, tuple[Kernel, str, str]] = {
    "base": (FORWARD["LSE in base two"], "LSE", "as if LSE is a logarithm to base 2"),
    "off by one": (altered(forward, "LSE", lambda t: 7 - t), "LSE", "wrong values: everywhere"),
    "no scale": (FORWARD["no scale"], "O", "as if the logits are not scaled by 1/√D"),
    "1/D": (FORWARD["scale of 1 over D"], "O", "as if the logits are scaled by 1/D instead of 1/√D"),
    "log2(e) missing": (
        partial(forward, scale=128.0**-0.5 * np.log(2)), "O", "as if 2^x is taken of logits that were not multiplied"
    ),
    "last tile": (FORWARD["last tile dropped"], "O", "as if keys 192-255 (the last tile) are left out"),
    "last tile in LSE": (FORWARD["last tile dropped"], "LSE", "as if keys 192-255 (the last tile) are left out"),
    "first tile": (partial(forward, keys=32, skip=lambda t, n: t == 0), "O", "as if keys 0-31 (the first tile)"),
    "last tile of some rows": (
        mixed(partial(forward, skip=last), slice(128, 256)), "O",
        "as if keys 192-255 (the last tile) are left out: rows 128-255 in all columns of batch 1, head 1",
    ),
    "not divided": (FORWARD["not divided"], "O", "as if the weights are not divided by their sum"),
    "layout": (as_bshd, "O", "as if the tensors are taken as [B, S, H, D]"),
    "K of head 0": (first_head_of("K"), "O", "as if K is read from head 0 for every head: all of head 1"),
    "head": (
        planted(forward, "O", copied_head), "O", "batch 0, head 1 holds the result of batch 0, head 0, batch 1, head 1"
    ),
    "batches": (
        altered(forward, "LSE", lambda t: t[::-1]), "LSE", "batch 0, head 0 holds the result of batch 1, head 0"
    ),
    "warp": (
        planted(forward, "O", negated_warp), "O",
        "rows 16-31 of every 64 in all columns (the 16 rows of warp 1 of a warpgroup) of batch 1, head 0",
    ),
    "tile": (planted(forward, "O", zero_tile), "O", "zero in rows 64-127 in all columns of batch 0, head 1"),
    "transposed": (
        altered(forward, "O", lambda t: np.swapaxes(t, -1, -2).reshape(t.shape)), "O", "transposed (rows and columns"
    ),
    "causal": (forward_causal, "O", "as if a causal mask is applied (the task has none)"),
    "fp8": (FORWARD["everything in fp8"], "O", "as from sums or operands of too low a precision"),
    "fp8 weights": (FORWARD["weights in fp8"], "O", "as from sums or operands of too low a precision"),
    "bf16": (FORWARD["bf16 accumulators"], "O", "as from sums or operands of too low a precision"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARD_WORDS)
def test_forward(name: str) -> None:
    kernel, output, words = FORWARD_WORDS[name]
    report = judged("fwd", kernel, output, batches=2)
    assert not report.ok
    assert words in report.pattern


CAUSAL_WORDS: dict[str, tuple[str, Kernel, str, str]] = {
    "no mask": ("fwd", CAUSAL_CHEATS["fwd"]["mask missing"], "O", "as if the causal mask is missing"),
    "no mask, LSE": ("fwd", CAUSAL_CHEATS["fwd"]["mask missing"], "LSE", "as if the causal mask is missing"),
    "strict": ("fwd", CAUSAL_CHEATS["fwd"]["diagonal masked too"], "O", "as if the causal mask hides the diagonal too"),
    "wide": ("fwd", CAUSAL_CHEATS["fwd"]["mask one too wide"], "O", "as if the causal mask shows one later key"),
    "no mask backward": ("bwd", CAUSAL_CHEATS["bwd"]["mask missing"], "dQ", "as if the causal mask is missing"),
    "strict backward": (
        "bwd", CAUSAL_CHEATS["bwd"]["diagonal masked too"], "dK", "as if the causal mask hides the diagonal too"
    ),
    "unmasked tiles": (
        "fwd", partial(forward, mask_granule=64), "O", "mask is not applied inside the diagonal tiles of 64 keys"
    ),
    "skipped tiles": (
        "bwd", partial(backward, mask_granule=64, mask_offset=64), "dV", "the diagonal tiles of 64 keys are skipped"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSAL_WORDS)
def test_causal_masks(name: str) -> None:
    direction, kernel, output, words = CAUSAL_WORDS[name]
    report = judged(direction, kernel, output, causal=True)
    assert not report.ok
    assert words in report.pattern


BACKWARD_WORDS: dict[str, tuple[Kernel, str, str]] = {
    "no delta": (BACKWARD["no delta"], "dQ", "as if delta = rowsum(dO∘O) is not subtracted"),
    "scale": (BACKWARD["scale of dQ forgotten"], "dQ", "scaled by 11.3"),
    "scale in words": (BACKWARD["scale of dQ forgotten"], "dQ", "(√D)"),
    "base": (BACKWARD["LSE read in base two"], "dV", "as if LSE is taken as a logarithm to base 2"),
    "last keys": (BACKWARD["last tile dropped"], "dQ", "products of keys in 192-255 are missing: everywhere"),
    "last rows": (BACKWARD["last tile dropped"], "dK", "zero in rows 192-255 in all columns"),
    "exchanged": (BACKWARD["dQ and dK exchanged"], "dK", "as if every gradient is dQ"),
    "head of V": (first_head_of("V"), "dQ", "as if V is read from head 0 for every head: all of head 1"),
    "fp8": (BACKWARD["everything in fp8"], "dV", "of too low a precision"),
    "bf16": (BACKWARD["bf16 accumulator of scores"], "dK", "of too low a precision"),
    "bf16 sums": (BACKWARD["bf16 accumulator of gradients"], "dV", "of too low a precision"),
}


@pytest.mark.parametrize("name", BACKWARD_WORDS)
def test_backward(name: str) -> None:
    kernel, output, words = BACKWARD_WORDS[name]
    report = judged("bwd", kernel, output)
    assert not report.ok
    assert words in report.pattern


def test_queries_that_are_missing_from_a_sum_are_counted() -> None:
    of = problem("bwd", seed=7, h=2)
    parts = of.operation.slices(of.task, of.sizes, of.inputs)
    lost = sum(part["dV"] for start, _, part in parts if 64 <= start < 128)
    outputs = backward(of)
    outputs["dV"] = (outputs["dV"].astype(np.float64) - lost).astype(outputs["dV"].dtype)
    assert judge_outputs(of, outputs)["dV"].pattern == "products of queries in 64-127 are missing: everywhere"


def test_an_imprecise_kernel_is_not_taken_for_a_mistake_that_changes_little() -> None:
    """Hiding one key of 256 changes less than fp8 does."""
    for seed in range(3):
        of = problem("fwd", "normal", seed, causal=True)
        for name in ("weights in fp8", "values in fp8", "bf16 accumulators"):
            report = judge_outputs(of, FORWARD[name](of))["O"]
            assert "of too low a precision" in report.pattern
