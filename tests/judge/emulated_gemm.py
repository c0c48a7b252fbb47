"""Emulated GEMM kernels, honest and cheating: functions from a problem to float32 results before the last rounding."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxbench.core import Workload
from ptxbench.tasks import Problem, get_task, make_problem

Kernel = Callable[[Problem], NDArray[np.float32]]


def problem(distribution: str = "normal", seed: int = 1, m: int = 128, n: int = 128, k: int = 1024) -> Problem:
    workload = Workload(tier="small", sizes={"M": m, "N": n, "K": k})
    return make_problem(get_task("gemm_n7168_k5120"), workload, distribution, seed)


def outputs(kernel: Kernel, of: Problem) -> dict[str, NDArray[np.float32]]:
    return {"C": kernel(of).astype(ml_dtypes.bfloat16)}


def operands(of: Problem) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    a, b = (of.inputs[name].astype(np.float32) for name in ("A", "B"))
    return a, b


def bf16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def blas(of: Problem) -> NDArray[np.float32]:
    a, b = operands(of)
    return a @ b.T


def partial_sums(of: Problem, step: int) -> list[NDArray[np.float32]]:
    a, b = operands(of)
    return [a[:, k : k + step] @ b[:, k : k + step].T for k in range(0, a.shape[1], step)]


def sequential(step: int, backwards: bool = False) -> Kernel:
    def kernel(of: Problem) -> NDArray[np.float32]:
        parts = partial_sums(of, step)
        total = np.zeros_like(parts[0])
        for part in reversed(parts) if backwards else parts:
            total += part
        return total

    return kernel


def tree(of: Problem) -> NDArray[np.float32]:
    parts = partial_sums(of, 16)
    while len(parts) > 1:
        parts = [parts[i] + parts[i + 1] if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


def split_k(pieces: int, rounding: Callable[[NDArray[np.float32]], NDArray[np.float32]] = lambda x: x) -> Kernel:
    def kernel(of: Problem) -> NDArray[np.float32]:
        parts = np.stack(partial_sums(of, 16))
        return sum(rounding(group.sum(axis=0)) for group in np.array_split(parts, pieces))

    return kernel


def tensor_core(step: int) -> Kernel:
    """Exact sums of ``step`` products, added to an fp32 accumulator that truncates."""

    def kernel(of: Problem) -> NDArray[np.float32]:
        a, b = (of.inputs[name].astype(np.float64) for name in ("A", "B"))
        total = np.zeros((a.shape[0], b.shape[0]), np.float32)
        for k in range(0, a.shape[1], step):
            exact = total + a[:, k : k + step] @ b[:, k : k + step].T
            nearest = exact.astype(np.float32)
            beyond = np.abs(nearest.astype(np.float64)) > np.abs(exact)
            total = np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest)
        return total

    return kernel


HONEST: dict[str, Kernel] = {
    "blas": blas,
    "one by one": sequential(1),
    "sixteen at a time": sequential(16),
    "backwards": sequential(16, backwards=True),
    "64 at a time": sequential(64),
    "tensor core, 16": tensor_core(16),
    "tensor core, 8": tensor_core(8),
    "split-K by 2": split_k(2),
    "split-K by 5": split_k(5),
    "tree": tree,
}


def bf16_accumulator(step: int) -> Kernel:
    def kernel(of: Problem) -> NDArray[np.float32]:
        parts = partial_sums(of, step)
        total = np.zeros_like(parts[0])
        for part in parts:
            total = bf16(total + part)
        return total

    return kernel


def fp8(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """e4m3 with one power-of-two scale per tensor."""
    scale = np.exp2(np.floor(np.log2(448 / np.abs(values).max())))
    return (values * scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) / scale


def fp8_operands(of: Problem) -> NDArray[np.float32]:
    a, b = operands(of)
    return fp8(a) @ fp8(b).T


def fp8_one_operand(of: Problem) -> NDArray[np.float32]:
    a, b = operands(of)
    return fp8(a) @ b.T


def without(start: int, stop: int) -> Kernel:
    def kernel(of: Problem) -> NDArray[np.float32]:
        a, b = operands(of)
        kept = np.ones(a.shape[1], bool)
        kept[range(a.shape[1])[start : stop or None]] = False
        return a[:, kept] @ b[:, kept].T

    return kernel


def dropped_tile(of: Problem) -> NDArray[np.float32]:
    result = blas(of)
    result[64:128, 32:64] = 0
    return result


def one_element(of: Problem) -> NDArray[np.float32]:
    result = blas(of)
    index = np.unravel_index(np.argmax(np.abs(result)), result.shape)
    result[index] *= 1.05
    return result


def truncated_output(of: Problem) -> NDArray[np.float32]:
    return (blas(of).view(np.uint32) & 0xFFFF0000).view(np.float32)


CHEATS: dict[str, Kernel] = {
    "bf16 accumulator, 16": bf16_accumulator(16),
    "bf16 accumulator, 64": bf16_accumulator(64),
    "bf16 accumulator, 128": bf16_accumulator(128),
    "split-K partials in bf16": split_k(2, rounding=bf16),
    "fp8 operands": fp8_operands,
    "fp8 A": fp8_one_operand,
    "last 64 of K dropped": without(-64, 0),
    "last 16 of K dropped": without(-16, 0),
    "first 16 of K dropped": without(0, 16),
    "dropped tile": dropped_tile,
    "scaled by 1.01": lambda of: blas(of) * np.float32(1.01),
    "zeros": lambda of: 0 * blas(of),
    "constant": lambda of: 0 * blas(of) + 1,
    "transposed": lambda of: blas(of).T,
    "off by one row": lambda of: np.roll(blas(of), 1, axis=0),
    "one element off": one_element,
    "truncated output": truncated_output,
}

INVISIBLE = {("split-K partials in bf16", "equal_rows")}
"""Cheats that are exact on a distribution: halves of a sum of equal terms round as the whole does."""
