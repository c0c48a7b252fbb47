"""Matrix products by Triton kernels: the variants, and how each is launched. Those of `MORE_...` are slow tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import oracles_matmul as matmul
import triton.language as tl
from oracles_expected import Oracle, product
from oracles_run import Array
from oracles_triton import Argument, Descriptor, launch

from ptxbench.core import Target

DTYPES: dict[str, Any] = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "i8": np.int8,
}  # fmt: skip


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

    @property
    def tensor_cores(self) -> bool:
        """Whether the compiler takes the target's own matrix instruction."""
        return self.tile[0] >= 64 and self.precision != "ieee"


POINTERS = {
    "plain": Matmul(),
    "bf16-tt": Matmul("bf16", a=True, b=True),
    "e4m3": Matmul("e4m3", (128, 128, 128)),
    "tf32": Matmul("fp32", (128, 128, 32)),
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


@dataclass(frozen=True)
class Described:
    """A product whose operands move by tensor copies."""

    function: Any
    dtype: str = "fp16"
    tile: tuple[int, int, int] = (128, 128, 64)
    warps: int = 4
    stages: int = 3
    transposed: bool = True
    programs: int = 3  # of a persistent kernel
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


def operand(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    """Standard normal values of a type by its name; for ``i8`` any integers."""
    rng = np.random.default_rng(seed)
    if dtype == "i8":
        return rng.integers(-128, 128, shape, dtype=np.int8)
    return rng.standard_normal(shape, np.float32).astype(DTYPES[dtype])


def through_pointers(case: Matmul, target: Target) -> Oracle:
    """A product through plain pointers."""
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
    made = launch(
        matmul.pointers, {"a": "in_a", "b": "in_b", "c": "c", "m": m, "n": n, "k": k, **others}, constants, (2, 2, 1),
        {"in_a": a, "in_b": b, "c": c}, target=target, warps=case.warps, stages=case.stages, ctas=case.ctas,
    )  # fmt: skip
    return Oracle(made, {"c": product(a.T if case.a else a, b.T if case.b else b, c, case.precision)})


def through_descriptors(case: Described, target: Target) -> Oracle:
    """A product whose operands move by tensor copies."""
    rows, columns, step = case.tile
    m, n, k = 2 * rows, 2 * columns, 8 * step
    a = operand(3, (m, k), case.dtype)
    b = operand(4, (n, k) if case.transposed else (k, n), case.dtype)
    c = np.zeros((m, n), np.float16)
    block = (columns, step) if case.transposed else (step, columns)
    arguments: dict[str, Argument] = {
        "a": Descriptor("in_a", (rows, step)), "b": Descriptor("in_b", block), "c": Descriptor("c", (rows, columns)),
        "k": k,
    }  # fmt: skip
    constants: dict[str, Any] = {"BM": rows, "BN": columns, "BK": step, **case.extra}
    grid = (2, 2, 1)
    if case.function is matmul.descriptors:
        constants["TRANSPOSED"] = case.transposed
    elif case.function is matmul.persistent:
        arguments |= {"m": m, "n": n, "programs": case.programs}
        grid = (case.programs, 1, 1)
    elif case.function is matmul.device_descriptors:
        arguments = {"a": "in_a", "b": "in_b", "c": "c", "m": m, "n": n, "k": k}
    made = launch(
        case.function, arguments, constants, grid, {"in_a": a, "in_b": b, "c": c}, target=target, warps=case.warps,
        stages=case.stages,
    )  # fmt: skip
    return Oracle(made, {"c": product(a, b.T if case.transposed else b, c, "")})
