"""Rearrangements are exact: the truth of rearranged inputs is the rearranged truth."""

from __future__ import annotations

import numpy as np
import pytest

from ptxbench.core import Argument, Task
from ptxbench.devices.cuda.verifier.maps import SIGN, Table, layout, signs, sources, tables
from ptxbench.tasks import OPERATIONS, Problem, Tensor, get_task, make_problem

SAMPLES = 2


def rearranged(task: Task, argument: Argument, sizes: dict[str, int], values: Tensor, of: dict[str, Table]) -> Tensor:
    lies = layout(task, argument, sizes)
    along = [of[axis] for axis in lies.axes]
    moved = values.reshape(lies.extents)[np.ix_(*(sources(table) for table in along))]
    group, row, column = (signs(table).astype(np.float32) for table in along)
    changed = moved.astype(np.float64) * group[:, None, None] * row[:, None] * column
    return changed.astype(values.dtype).reshape(values.shape)


def problem(name: str, sizes: dict[str, int]) -> Problem:
    task = get_task(name)
    return make_problem(task, task.workloads[0].model_copy(update={"sizes": sizes}), "normal", 7)


CASES = [
    ("gemm_n7168_k5120", {"M": 384, "N": 256, "K": 64}),
    ("gemm_ragged", {"M": 300, "N": 264, "K": 40}),
    ("gemm_a_km_b_kn", {"M": 256, "N": 256, "K": 64}),
    ("gemm_batched", {"L": 3, "M": 128, "N": 256, "K": 64}),
    ("gemm_bias_gelu", {"M": 256, "N": 256, "K": 64}),
    *((f"mha_{direction}_d128{causal}", {"B": 2, "H": 2, "S": 256 + 128 * (direction == "fwd"), "D": 128})
      for direction in ("fwd", "bwd") for causal in ("", "_causal", "_ragged")),
    ("mha_bwd_d64_causal", {"B": 1, "H": 2, "S": 128, "D": 64}),
]


@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_maps_are_exact(name: str, sizes: dict[str, int]) -> None:
    of = problem(name, sizes)
    operation = OPERATIONS[of.task.operation]
    for sample in range(1, 1 + SAMPLES):
        found = tables(of.task, sizes, 11, sample)
        inputs = {
            argument.name: rearranged(of.task, argument, sizes, of.inputs[argument.name], found)
            for argument in of.task.inputs
        }
        assert any((inputs[name] != of.inputs[name]).mean() > 0.2 for name in inputs)
        drawn = {name: values for name, values in inputs.items() if name not in ("O", "LSE")}
        given = operation.given(of.task, sizes, drawn)
        for derived in given.keys() - drawn.keys():
            # Sums of other order in fp64 may round to another neighbour, hardly ever.
            assert (given[derived] != inputs[derived]).mean() < 1e-3
        truth, noise = (made(of.task, sizes, inputs) for made in (operation.truth, operation.noise))
        for argument in of.task.outputs:
            expected = rearranged(of.task, argument, sizes, of.truth[argument.name], found)
            size = np.sqrt(np.mean(np.square(expected)))
            assert np.max(np.abs(truth[argument.name] - expected)) < 1e-12 * size
            expected = np.abs(rearranged(of.task, argument, sizes, of.noise[argument.name], found))
            np.testing.assert_allclose(noise[argument.name], expected, rtol=1e-5)


def test_sample_zero_is_the_base_set() -> None:
    for name in ("gemm_n7168_k5120", "mha_bwd_d128"):
        of = get_task(name)
        for table in tables(of, of.workloads[1].sizes, 11, 0).values():
            assert (table == np.arange(table.size)).all()


def test_samples_differ_and_repeat() -> None:
    of = get_task("mha_fwd_d128_causal")
    sizes = of.workloads[0].sizes
    first, again, other, reseeded = (tables(of, sizes, *key) for key in ((1, 1), (1, 1), (1, 2), (2, 1)))
    for axis in ("matrices", "d", "v"):
        assert (first[axis] == again[axis]).all()
        assert (first[axis] != other[axis]).any()
        assert (first[axis] != reseeded[axis]).any()
    assert (first["q"] == np.arange(4096)).all()


@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_blocks_and_groups_stay_together(name: str, sizes: dict[str, int]) -> None:
    of = get_task(name)
    found = tables(of, sizes, 3, 5)
    for argument in of.outputs:
        lies = layout(of, argument, sizes)
        for axis, extent, block in zip(lies.axes, lies.extents, lies.blocks, strict=True):
            source = sources(found[axis])
            assert sorted(source) == list(range(extent))
            for start in range(0, extent, block):
                assert len(set(source[start : start + block] // block)) == 1
            for start in range(0, extent - extent % 8, 8):
                if block > 1:
                    assert (np.diff(source[start : start + 8]) == 1).all()
    assert {axis for axis in found if (found[axis] & SIGN).any()} <= {"M", "N", "K", "d", "v"}
