"""Triton kernels with block-scaled operands, and with rows that are gathered and scattered one by one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("triton")

import oracles_matmul as matmul
from oracles_run import Array
from oracles_triton import Descriptor, launch

from ptxbench.core import RunOptions, Schedule, Target

ALLOWED = {"unwaited_tensor_load"}
FORMATS = [("e4m3", "e4m3"), ("e5m2", "e4m3"), ("e2m1", "e2m1"), ("e4m3", "e2m1")]
EIGHT_BITS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
LATE = RunOptions(schedule=Schedule(copies="late", products="late", reverse=True))


def elements(rows: int, depth: int, name: str, seed: int) -> tuple[Array, Array]:
    """As stored, and as fp64 values; 4-bit elements lie two in a byte, the first in the lower half."""
    rng = np.random.default_rng(seed)
    if name != "e2m1":
        stored = rng.standard_normal((rows, depth)).astype(EIGHT_BITS[name])
        return stored, stored.astype(np.float64)
    codes = rng.integers(0, 16, (rows, depth), dtype=np.uint8)
    values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
    return codes[:, 0::2] | codes[:, 1::2] << 4, values


def scales(rows: int, groups: int, *, exponents: bool, seed: int) -> tuple[Array, Array]:
    """ue8m0 or e4m3 scale factors, as stored and as values."""
    rng = np.random.default_rng(seed)
    if exponents:
        stored = rng.integers(120, 134, (rows, groups), dtype=np.uint8)
        return stored, np.exp2(stored.astype(np.float64) - 127)
    stored = rng.uniform(0.25, 2, (rows, groups)).astype(ml_dtypes.float8_e4m3fn)
    return stored, stored.astype(np.float64)


def check(left: str, right: str, target: Target, *, group: int = 32, columns: int = 128, late: bool = False) -> str:
    rows, depth, step = 128, 256, 128
    m, n = 2 * rows, 2 * columns
    (a, a_values), (b, b_values) = elements(m, depth, left, 1), elements(n, depth, right, 2)
    (sa, a_factors), (sb, b_factors) = (
        scales(count, depth // group, exponents=group == 32, seed=seed) for count, seed in ((m, 3), (n, 4))
    )
    c = np.zeros((m, n), np.float32)
    constants = {
        "FORMAT_A": left, "FORMAT_B": right, "PA": 1 + (left == "e2m1"), "PB": 1 + (right == "e2m1"), "BM": rows,
        "BN": columns, "BK": step, "N": n, "GROUP": group,
    }  # fmt: skip
    made = launch(
        matmul.scaled, {"a": "in_a", "sa": "in_sa", "b": "in_b", "sb": "in_sb", "c": "c", "k": depth}, constants,
        (2, 2, 1), {"in_a": a, "in_sa": sa, "in_b": b, "in_sb": sb, "c": c}, target=target, stages=2,
    )  # fmt: skip
    seen = made.simulate(LATE if late else None)
    assert seen.fault is None, seen.fault
    assert {hazard.kind for hazard in seen.hazards} <= ALLOWED, seen.hazards
    expected = (a_values * np.repeat(a_factors, group, 1)) @ (b_values * np.repeat(b_factors, group, 1)).T
    assert np.abs(c - expected).max() < 1e-6 * np.abs(expected).max()
    return made.kernel.ptx


@pytest.mark.parametrize(("left", "right"), FORMATS)
def test_scales_of_32(left: str, right: str) -> None:
    kind = "mxf4" if left == right == "e2m1" else "mxf8f6f4"
    assert f"kind::{kind}.block_scale" in check(left, right, Target.SM_100A)


def test_scales_of_16() -> None:
    assert "kind::mxf4nvf4.block_scale.block16" in check("e2m1", "e2m1", Target.SM_100A, group=16)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [64, 256])
@pytest.mark.parametrize("late", [False, True])
def test_more_columns_and_schedules(columns: int, late: bool) -> None:
    check("e4m3", "e4m3", Target.SM_100A, columns=columns, late=late)
    check("e2m1", "e2m1", Target.SM_100A, group=16, columns=columns, late=late)


@pytest.mark.slow
@pytest.mark.parametrize(("left", "right"), FORMATS)
def test_scaled_products_of_the_older_target(left: str, right: str) -> None:
    """Without block-scaled instructions, the operands are scaled in bf16 before the product."""
    check(left, right, Target.SM_90A)


def test_rows_one_by_one() -> None:
    rows = columns = step = 64
    m, n, depth = 2 * rows, 2 * columns, 4 * step
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((count, depth)).astype(np.float16) for count in (m, n))
    order = rng.permutation(m).astype(np.int32)
    c = np.zeros((m, n), np.float16)
    arguments = {
        "a": Descriptor("in_a", (1, step)), "rows": "in_rows", "b": Descriptor("in_b", (columns, step)),
        "c": Descriptor("c", (1, columns)), "k": depth,
    }  # fmt: skip
    made = launch(
        matmul.gathered, arguments, {"BM": rows, "BN": columns, "BK": step}, (2, 2, 1),
        {"in_a": a, "in_rows": order, "in_b": b, "c": c}, target=Target.SM_100A,
    )  # fmt: skip
    seen = made.simulate()
    assert seen.fault is None, seen.fault
    assert {hazard.kind for hazard in seen.hazards} <= ALLOWED, seen.hazards
    assert "tile::gather4" in made.kernel.ptx
    assert "tile::scatter4" in made.kernel.ptx
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c - expected).max() < 1e-3 * np.abs(expected).max()
