"""Kernels that another compiler made come out right: Triton's, for both targets, on the simulator.

Variants marked slow differ in shape, layout or depth only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("triton")

import oracles_attention as attention
import oracles_matmul as matmul
import triton.language as tl
from oracles_run import Array, Kernel
from oracles_triton import Descriptor, run

from ptxbench.core import Observation, RunOptions, Schedule, Target

DTYPES: dict[str, Any] = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "i8": np.int8,
}  # fmt: skip
ALLOWED = {"unwaited_tensor_load"}
"""Triton 3.9 uses registers of ``tcgen05.ld`` before ``tcgen05.wait::ld``: the ISA forbids it, ptxas tolerates it."""

SCHEDULES = [
    Schedule(),
    Schedule(copies="late", products="late", reverse=True),
    Schedule(copies="eager", products="late"),
]


@dataclass(frozen=True)
class Matmul:
    """C = A·B of two by two tiles. ``a`` and ``b`` say whether the operand is stored transposed."""

    dtype: str = "fp16"
    tile: tuple[int, int, int] = (128, 128, 64)
    warps: int = 4
    stages: int = 3
    a: bool = False
    b: bool = False
    ctas: int = 1
    precision: str = "tf32"
    depth: int = 4
    bound: float = 1e-6


POINTERS = {
    "plain": Matmul(),
    "bf16-tt": Matmul("bf16", a=True, b=True),
    "e4m3": Matmul("e4m3", (128, 128, 128)),
    "tf32": Matmul("fp32", (128, 128, 32), bound=2e-3),
    "i8": Matmul("i8", (128, 128, 64), b=True),
    "clusters": Matmul("bf16", (256, 128, 64), ctas=2),
}
MORE_POINTERS = {
    "one-stage": Matmul(stages=1),
    "five-stages": Matmul("bf16", (64, 64, 64), stages=5, depth=9),
    "narrow": Matmul("bf16", (128, 32, 64)),
    "tall": Matmul("fp16", (64, 256, 32), a=True),
    "eight-warps": Matmul("bf16", (128, 256, 64), warps=8),
    "small": Matmul("bf16", (32, 32, 32)),
    "e5m2": Matmul("e5m2", (128, 64, 64), b=True),
    "tf32x3": Matmul("fp32", (64, 64, 32), precision="tf32x3", depth=3),
    "ieee": Matmul("fp32", (32, 32, 16), precision="ieee", depth=3),
    "bf16-nt": Matmul("bf16", (128, 128, 128), b=True, stages=2),
    "fp16-tn": Matmul("fp16", (128, 64, 64), a=True, stages=4, depth=8),
}


def operand(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    rng = np.random.default_rng(seed)
    if dtype == "i8":
        return rng.integers(-128, 128, shape, dtype=np.int8)
    return rng.standard_normal(shape, np.float32).astype(DTYPES[dtype])


def error(found: Array, expected: Array) -> float:
    return float(np.abs(found.astype(np.float64) - expected).max() / np.abs(expected).max())


def check(seen: Observation, kernel: Kernel, *, tensor_cores: bool = True) -> None:
    assert seen.fault is None, seen.fault
    assert {hazard.kind for hazard in seen.hazards} <= ALLOWED, seen.hazards
    instruction = "wgmma.mma_async" if kernel.target is Target.SM_90A else "tcgen05.mma"
    assert (instruction in kernel.ptx) == tensor_cores


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("name", [*POINTERS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_POINTERS)])
def test_matmul_through_pointers(name: str, target: Target) -> None:
    case = {**POINTERS, **MORE_POINTERS}[name]
    rows, columns, step = case.tile
    m, n, k = 2 * rows, 2 * columns, case.depth * step
    a = operand(1, (k, m) if case.a else (m, k), case.dtype)
    b = operand(2, (n, k) if case.b else (k, n), case.dtype)
    c = np.zeros((m, n), np.int32 if case.dtype == "i8" else np.float32)
    lengths = ((1, m) if case.a else (k, 1)) + ((1, k) if case.b else (n, 1))
    strides = dict(zip(("am", "ak", "bk", "bn"), lengths, strict=True))
    ones = {name: 1 for name, stride in strides.items() if stride == 1}
    others = {name: stride for name, stride in strides.items() if stride != 1}
    constants = {
        **ones, "BM": rows, "BN": columns, "BK": step, "PRECISION": case.precision,
        "ACC": tl.int32 if case.dtype == "i8" else tl.float32,
    }  # fmt: skip
    seen, kernel = run(
        matmul.pointers, {"a": "in_a", "b": "in_b", "c": "c", "m": m, "n": n, "k": k, **others}, constants, (2, 2, 1),
        {"in_a": a, "in_b": b, "c": c}, target=target, warps=case.warps, stages=case.stages, ctas=case.ctas,
    )  # fmt: skip
    check(seen, kernel, tensor_cores=rows >= 64 and case.precision != "ieee")
    left, right = (a.T if case.a else a).astype(np.float64), (b.T if case.b else b).astype(np.float64)
    assert error(c, left @ right) < case.bound


@dataclass(frozen=True)
class Described:
    """A product whose operands move by tensor copies."""

    function: Any
    dtype: str = "fp16"
    tile: tuple[int, int, int] = (128, 128, 64)
    warps: int = 4
    stages: int = 3
    transposed: bool = True
    extra: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())


PERSISTENT = {"FLATTEN": False, "SPECIALISED": False}
DESCRIPTORS = {
    "tile": Described(matmul.descriptors),
    "not-transposed": Described(matmul.descriptors, "bf16", transposed=False),
    "e4m3": Described(matmul.descriptors, "e4m3", (128, 128, 128)),
    "specialised": Described(matmul.specialised, tile=(64, 64, 64)),
    "persistent": Described(matmul.persistent, extra=PERSISTENT),
    "persistent-specialised": Described(
        matmul.persistent, "bf16", tile=(64, 64, 64), extra={**PERSISTENT, "SPECIALISED": True}
    ),
    "made-in-kernel": Described(matmul.device_descriptors),
}
MORE_DESCRIPTORS = {
    "persistent-flat": Described(matmul.persistent, extra={**PERSISTENT, "FLATTEN": True}),
    "persistent-flat-specialised": Described(
        matmul.persistent, tile=(64, 128, 64), extra={"FLATTEN": True, "SPECIALISED": True}
    ),
    "eight-warps": Described(matmul.descriptors, "bf16", (256, 128, 64), warps=8, stages=2),
    "four-stages": Described(matmul.descriptors, "bf16", (64, 64, 64), stages=4),
    "e5m2": Described(matmul.descriptors, "e5m2", (128, 64, 64)),
    "short": Described(matmul.descriptors, "fp16", (128, 128, 32)),
}


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize(
    "name", [*DESCRIPTORS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_DESCRIPTORS)]
)
def test_matmul_through_descriptors(name: str, target: Target) -> None:
    described(({**DESCRIPTORS, **MORE_DESCRIPTORS})[name], target, Schedule())


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES[1:], ids=str)
@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("name", DESCRIPTORS)
def test_schedules_agree(name: str, target: Target, schedule: Schedule) -> None:
    described(DESCRIPTORS[name], target, schedule)


def described(case: Described, target: Target, schedule: Schedule) -> None:
    rows, columns, step = case.tile
    m, n, k = 2 * rows, 2 * columns, 8 * step
    a = operand(3, (m, k), case.dtype)
    b = operand(4, (n, k) if case.transposed else (k, n), case.dtype)
    c = np.zeros((m, n), np.float16)
    block = (columns, step) if case.transposed else (step, columns)
    arguments: dict[str, Any] = {
        "a": Descriptor("in_a", (rows, step)), "b": Descriptor("in_b", block), "c": Descriptor("c", (rows, columns)),
        "k": k,
    }  # fmt: skip
    constants: dict[str, Any] = {"BM": rows, "BN": columns, "BK": step, **case.extra}
    grid = (2, 2, 1)
    if case.function is matmul.descriptors:
        constants["TRANSPOSED"] = case.transposed
    elif case.function is matmul.persistent:
        arguments |= {"m": m, "n": n, "programs": 3}
        grid = (3, 1, 1)
    elif case.function is matmul.device_descriptors:
        arguments = {"a": "in_a", "b": "in_b", "c": "c", "m": m, "n": n, "k": k}
    seen, kernel = run(
        case.function, arguments, constants, grid, {"in_a": a, "in_b": b, "c": c}, target=target, warps=case.warps,
        stages=case.stages, options=RunOptions(schedule=schedule),
    )  # fmt: skip
    check(seen, kernel)
    assert "cp.async.bulk.tensor" in kernel.ptx
    assert error(c, a.astype(np.float64) @ (b.T if case.transposed else b).astype(np.float64)) < 1e-3


@dataclass(frozen=True)
class Attention:
    """[heads, length, depth] attention."""

    dtype: str = "fp16"
    block: tuple[int, int] = (128, 64)
    depth: int = 64
    length: int = 256
    heads: int = 2
    warps: int = 4
    stages: int = 2
    specialised: bool = False

    @property
    def scale(self) -> float:
        return self.depth**-0.5


FORWARD = {
    "d64": Attention(),
    "d128": Attention("bf16", (128, 128), 128, warps=8),
    "specialised": Attention(block=(64, 64), specialised=True),
}
BACKWARD = {"d64": Attention(block=(64, 128), heads=1), "d128": Attention("bf16", (64, 64), 128, heads=1)}
BOUNDS = {"fp16": 1e-3, "bf16": 8e-3}


def truth(q: Array, k: Array, v: Array, do: Array, scale: float, causal: bool) -> Iterator[Array]:
    """O, LSE, the row sums of O·dO, dQ, dK, dV in fp64."""
    q, k, v, do = (array.astype(np.float64) for array in (q, k, v, do))
    scores = q @ k.transpose(0, 2, 1) * scale
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - largest)
    sums = weights.sum(-1, keepdims=True)
    weights /= sums
    o = weights @ v
    delta = (o * do).sum(-1)
    change = weights * (do @ v.transpose(0, 2, 1) - delta[..., None]) * scale
    yield from (o, (largest + np.log(sums))[..., 0], delta)
    yield from (change @ k, change.transpose(0, 2, 1) @ q, weights.transpose(0, 2, 1) @ do)


@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("name", FORWARD)
def test_attention_forward(name: str, target: Target, causal: bool) -> None:
    case = FORWARD[name]
    rows, columns = case.block
    shape = (case.heads, case.length, case.depth)
    q, k, v = (operand(seed, shape, case.dtype) for seed in (5, 6, 7))
    o, lse = np.zeros(shape, DTYPES[case.dtype]), np.zeros(shape[:2], np.float32)
    arguments = {
        "q": Descriptor("in_q", (rows, case.depth)), "k": Descriptor("in_k", (columns, case.depth)),
        "v": Descriptor("in_v", (columns, case.depth)), "o": Descriptor("o", (rows, case.depth)), "lse": "lse",
        "length": case.length, "scale": case.scale,
    }  # fmt: skip
    constants = {"BM": rows, "BN": columns, "D": case.depth, "CAUSAL": causal, "SPECIALISED": case.specialised}
    flat = {name: array.reshape(-1, case.depth) for name, array in (("in_q", q), ("in_k", k), ("in_v", v), ("o", o))}
    seen, kernel = run(
        attention.forward, arguments, constants, (case.length // rows, case.heads, 1), {**flat, "lse": lse},
        target=target, warps=case.warps, stages=case.stages,
    )  # fmt: skip
    check(seen, kernel)
    expected_o, expected_lse, *_ = truth(q, k, v, q, case.scale, causal)
    assert error(o, expected_o) < BOUNDS[case.dtype]
    assert error(lse, expected_lse) < 1e-6


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("target", Target)
def test_attention_forward_through_pointers(target: Target, causal: bool) -> None:
    case = FORWARD["d64"]
    rows, columns = case.block
    shape = (case.heads, case.length, case.depth)
    q, k, v = (operand(seed, shape, case.dtype) for seed in (8, 9, 10))
    o, lse = np.zeros(shape, np.float16), np.zeros(shape[:2], np.float32)
    names = {"q": "in_q", "k": "in_k", "v": "in_v", "o": "o", "lse": "lse"}
    arguments = {**names, "length": case.length, "scale": case.scale}
    constants = {"BM": rows, "BN": columns, "D": case.depth, "CAUSAL": causal}
    seen, kernel = run(
        attention.forward_pointers, arguments, constants, (case.length // rows, case.heads, 1),
        {"in_q": q, "in_k": k, "in_v": v, "o": o, "lse": lse}, target=target,
    )  # fmt: skip
    check(seen, kernel)
    expected_o, expected_lse, *_ = truth(q, k, v, q, case.scale, causal)
    assert error(o, expected_o) < BOUNDS[case.dtype]
    assert error(lse, expected_lse) < 1e-6


@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("name", BACKWARD)
def test_attention_backward(name: str, target: Target, causal: bool) -> None:
    case = BACKWARD[name]
    rows, columns = case.block
    shape = (case.heads, case.length, case.depth)
    q, k, v, do = (operand(seed, shape, case.dtype) for seed in (11, 12, 13, 14))
    _, lse, delta, *expected = truth(q, k, v, do, case.scale, causal)
    dq, dk, dv = np.zeros(shape, np.float32), np.zeros(shape, q.dtype), np.zeros(shape, q.dtype)
    inputs = {
        "in_q": q, "in_k": k, "in_v": v, "in_do": do, "in_lse": lse.astype(np.float32),
        "in_delta": delta.astype(np.float32),
    }  # fmt: skip
    arguments = {name.removeprefix("in_"): name for name in (*inputs, "dq", "dk", "dv")}
    constants = {"BM": rows, "BN": columns, "D": case.depth, "CAUSAL": causal}
    seen, kernel = run(
        attention.backward, {**arguments, "length": case.length, "scale": case.scale}, constants,
        (case.length // columns, case.heads, 1), {**inputs, "dq": dq, "dk": dk, "dv": dv}, target=target,
        warps=case.warps, stages=case.stages,
    )  # fmt: skip
    check(seen, kernel)
    for found, wanted in zip((dq, dk, dv), expected, strict=True):
        assert error(found, wanted) < BOUNDS[case.dtype]
