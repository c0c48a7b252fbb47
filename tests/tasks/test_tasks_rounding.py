"""`summation_factor` against a model of how tensor cores sum, on the sums that are worst for it: equal products."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "judge"))
sys.path.append(str(Path(__file__).parent.parent / "oracles"))

from golden_inputs import of_class
from tensor_core import STEP, add_products

from ptxbench.judge import MAX_FACTOR
from ptxbench.tasks import Float64, max_denominator, summation_factor

GOLDEN = Path(__file__).parent.parent / "oracles" / "golden" / "mma_sync.npz"
LEAST_BOUND = MAX_FACTOR * float(max_denominator(np.float64(0), np.float64(0)))
"""The largest error that a verdict allows at least, in units of an element's scale."""


def factors() -> tuple[Float64, Float64]:
    a, b = np.random.default_rng(1).standard_normal((2, 2000)).astype(ml_dtypes.bfloat16).astype(np.float64)
    return np.abs(a), np.abs(b)


def error(total: Float64, product: Float64, depth: int) -> float:
    """The largest error in units of what the summation factor expects."""
    return float(np.max(np.abs(total - depth * product) / (summation_factor(depth) * depth * product)))


@pytest.mark.parametrize("depth", [128, 1024, 1536, 4096, 5120, 8192])
def test_tensor_cores_stay_within_the_bound_on_equal_products(depth: int) -> None:
    a, b = factors()
    total = np.zeros_like(a)
    for _ in range(0, depth, STEP):
        total = add_products(total, *(np.repeat(x[:, None], STEP, axis=1) for x in (a, b)))
    assert error(total, a * b, depth) < 0.92 * LEAST_BOUND


def test_rounding_after_every_product_does_not() -> None:
    product = np.multiply(*factors())
    total = np.zeros(product.shape, np.float32)
    for _ in range(1536):
        total += product.astype(np.float32)
    assert 1.5 * LEAST_BOUND < error(total.astype(np.float64), product, 1536) < 1.6 * LEAST_BOUND


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_the_model_has_the_bits_of_an_h200(dtype: str) -> None:
    with np.load(GOLDEN) as stored:
        measured = dict(zip(stored["rows"].tolist(), stored["values"], strict=False))
    opcode = f"mma.sync.aligned.m16n8k16.row.col.f32.{dtype}.{dtype}.f32"
    rows = [measured[f"{opcode} | 4*f32 4*b32 2*b32 4*f32 | {part} f32"] for part in range(4)]

    def registers(name: str, place: int, count: int) -> np.ndarray:
        """[warps, registers, 32 lanes] patterns of an operand: every register of a place has inputs of its own."""
        patterns = of_class(f"m_{name}")[16 * place : 16 * place + count]
        return patterns.astype(np.uint32).reshape(count, -1, 32).transpose(1, 0, 2)

    lane, half = np.arange(32)[:, None], np.arange(2)[None, :]
    numbers = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[dtype]
    a, b = np.zeros((4, 16, 16)), np.zeros((4, 16, 8))
    c, d = np.zeros((4, 16, 8)), np.zeros((4, 16, 8))
    for q in range(4):
        pairs = registers(dtype, 0, 4)[:, q].copy().view(numbers).reshape(4, 32, 2).astype(np.float64)
        a[:, lane // 4 + q % 2 * 8, (lane % 4 + q // 2 * 4) * 2 + half] = pairs
        place = (slice(None), lane[:, 0] // 4 + q // 2 * 8, lane[:, 0] % 4 * 2 + q % 2)
        c[place] = registers("f32", 2, 4)[:, q].copy().view(np.float32)
        d[place] = rows[q].astype(np.uint32).view(np.float32).reshape(4, 32)
    for q in range(2):
        pairs = registers(dtype, 1, 2)[:, q].copy().view(numbers).reshape(4, 32, 2).astype(np.float64)
        b[:, (lane % 4 + q * 4) * 2 + half, lane // 4] = pairs
    left, right = np.broadcast_arrays(a[:, :, None, :], b.transpose(0, 2, 1)[:, None, :, :])
    assert np.array_equal(add_products(c, left, right), d)


def test_the_factor_is_that_of_either_bound() -> None:
    assert summation_factor(256) == 16 * 2.0**-24
    assert summation_factor(4096) == 128 * 2.0**-24
