"""The verifier's mathematics on the simulator, against the room `tasks` on the same inputs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from verifier_machine import SimulatedMachine, program

from ptxbench.core import Task, UsageError
from ptxbench.devices.cuda.verifier.arrays import Arrays, download
from ptxbench.devices.cuda.verifier.base import BaseSet, make_base
from ptxbench.devices.cuda.verifier.draw import draw
from ptxbench.devices.cuda.verifier.maps import layout
from ptxbench.judge.yardstick import error_scale
from ptxbench.native import Cache
from ptxbench.simulator import Program
from ptxbench.tasks import DISTRIBUTIONS, OPERATIONS, Problem, get_task, rounded

SEED = 20261129


@pytest.fixture(scope="module")
def kernels(shared_cache: Cache) -> Program:
    return program(shared_cache)


def problem_of(task: Task, sizes: dict[str, int], base: BaseSet, machine: SimulatedMachine) -> Problem:
    """What `tasks` says about the inputs that the verifier made."""
    operation = OPERATIONS[task.operation]
    inputs = {name: download(machine, array) for name, array in base.inputs.items()}
    drawn = {name: value for name, value in inputs.items() if name not in ("O", "LSE")}
    given = operation.given(task, sizes, drawn)
    arguments = (task, sizes, given)
    workload = task.workloads[0].model_copy(update={"sizes": sizes})
    for name in given.keys() - drawn.keys():
        # fp64 sums of another order may round to another neighbour, hardly ever.
        assert (inputs[name] != given[name]).mean() < 1e-3
    return Problem(
        task, workload, "normal", SEED, given, operation.truth(*arguments), operation.honest(*arguments),
        operation.noise(*arguments),
    )


def rms_of(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


FAST = [
    ("gemm_n7168_k5120", {"M": 128, "N": 256, "K": 96}, "normal"),
    ("gemm_ragged", {"M": 100, "N": 72, "K": 40}, "spikes"),
    ("mha_fwd_d128_causal", {"B": 1, "H": 2, "S": 128, "D": 128}, "normal"),
    ("mha_bwd_d128", {"B": 1, "H": 1, "S": 128, "D": 128}, "normal"),
    ("mha_bwd_d128_causal_ragged", {"B": 1, "H": 1, "S": 75, "D": 128}, "spikes"),
]
MORE = [
    *(("gemm_n7168_k5120", {"M": 128, "N": 128, "K": 128}, distribution)
      for distribution in ("wide_range", "spikes", "equal_rows")),
    ("gemm_a_km_b_kn", {"M": 128, "N": 128, "K": 64}, "normal"),
    ("gemm_batched", {"L": 3, "M": 128, "N": 128, "K": 64}, "normal"),
    ("gemm_bias_gelu", {"M": 128, "N": 128, "K": 64}, "normal"),
    ("gemm_f16", {"M": 128, "N": 128, "K": 64}, "normal"),
    *((f"mha_{direction}_d128{causal}", {"B": 1, "H": 2, "S": 128, "D": 128}, distribution)
      for direction in ("fwd", "bwd") for causal in ("", "_causal")
      for distribution in ("normal", "large_logits", "equal_logits", "wide_range", "spikes")),
    ("mha_fwd_d128_causal", {"B": 1, "H": 1, "S": 256, "D": 128}, "normal"),
    ("mha_bwd_d128_causal", {"B": 1, "H": 1, "S": 256, "D": 128}, "normal"),
    ("mha_fwd_d128_ragged", {"B": 1, "H": 1, "S": 75, "D": 128}, "normal"),
    ("mha_fwd_d96_causal", {"B": 2, "H": 1, "S": 128, "D": 96}, "normal"),
    ("mha_bwd_d64", {"B": 2, "H": 1, "S": 128, "D": 64}, "normal"),
]
CASES = [*FAST, *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE)]


@pytest.mark.parametrize(("name", "sizes", "distribution"), CASES)
def test_answers_are_those_of_the_reference(
    kernels: Program, name: str, sizes: dict[str, int], distribution: str
) -> None:
    task, machine = get_task(name), SimulatedMachine(kernels)
    base = make_base(machine, task, sizes, distribution, SEED)
    problem = problem_of(task, sizes, base, machine)
    for argument in task.outputs:
        truth = download(machine, base.truth[argument.name])
        scale = download(machine, base.scale[argument.name])
        right = problem.truth[argument.name]
        derived = error_scale(right, problem.noise[argument.name], argument.dtype)
        assert truth.shape == right.shape
        # Far below what rounding the output makes; a sum that cancels has the error of its terms.
        assert float(np.max(np.abs(truth - right) / derived)) < 1e-6
        np.testing.assert_allclose(scale, derived, rtol=2e-5, atol=1e-44)
        _check_yardstick(task, sizes, base, problem, argument.name)


def _check_yardstick(task: Task, sizes: dict[str, int], base: BaseSet, problem: Problem, name: str) -> None:
    argument = next(a for a in task.outputs if a.name == name)
    truth = problem.truth[name]
    scale = error_scale(truth, problem.noise[name], argument.dtype)
    honest = rms_of((problem.honest[name].astype(np.float64) - truth) / scale)
    rounding = rms_of((rounded(truth, argument.dtype) - truth) / scale)
    # The honest algorithm sums in another order here, so that its errors are equal in size only.
    assert base.yardsticks[name].overall == pytest.approx(max(1.0, honest, rounding), rel=0.05)
    lies = layout(task, argument, sizes)
    assert base.yardsticks[name].rms.size == math.prod(
        -(-extent // block) for extent, block in zip(lies.extents, lies.blocks, strict=True)
    )


def test_memory_is_given_back(kernels: Program) -> None:
    machine = SimulatedMachine(kernels)
    base = make_base(machine, get_task("mha_fwd_d128"), {"B": 1, "H": 1, "S": 128, "D": 128}, "normal", 1)
    base.close()
    assert machine.allocations == 0


@pytest.mark.parametrize("distribution", sorted(DISTRIBUTIONS))
def test_inputs_are_distributed_as_in_tasks(kernels: Program, distribution: str) -> None:
    task = get_task("mha_fwd_d128")
    sizes = {"B": 1, "H": 2, "S": 256, "D": 128}
    machine = SimulatedMachine(kernels)
    arrays = Arrays(machine)
    made = {name: download(machine, array) for name, array in draw(arrays, task, sizes, distribution, 5).items()}
    drawn = OPERATIONS[task.operation].inputs(task, sizes, distribution, 5)
    for name, array in made.items():
        own, other = (np.abs(x.astype(np.float64)) for x in (array, drawn[name]))
        assert array.dtype == drawn[name].dtype
        assert (own == 0).mean() == pytest.approx((other == 0).mean(), abs=0.02)
        positive = own[own > 0], other[other > 0]
        for quantile in (0.1, 0.5, 0.9):
            logs = [np.quantile(np.log2(values), quantile) for values in positive]
            assert logs[0] == pytest.approx(logs[1], abs=1.0 if distribution in ("wide_range", "equal_logits") else 0.4)
        assert abs(array.astype(np.float64).mean()) < 4 * rms_of(other) / math.sqrt(min(own.size, 128))


def test_special_inputs_have_their_structure(kernels: Program) -> None:
    task = get_task("mha_fwd_d128")
    sizes = {"B": 1, "H": 2, "S": 128, "D": 128}
    machine = SimulatedMachine(kernels)
    arrays = Arrays(machine)
    k = download(machine, draw(arrays, task, sizes, "equal_logits", 5)["K"])
    assert (k == k[:, :, :1]).all()
    assert (k[0, 0, 0] != k[0, 1, 0]).any()
    rows = download(machine, draw(arrays, task, sizes, "equal_rows", 5)["Q"])
    assert (rows == rows[..., :1]).all()
    assert np.unique(rows[0, 0, :, 0].astype(np.float32)).size > 100


def test_keys_differ_by_everything(kernels: Program) -> None:
    task = get_task("gemm_n7168_k5120")
    machine = SimulatedMachine(kernels)
    arrays = Arrays(machine)
    sizes = {"M": 128, "N": 128, "K": 64}

    def of(seed: int, sizes: dict[str, int]) -> dict[str, np.ndarray]:
        return {n: download(machine, a) for n, a in draw(arrays, task, sizes, "normal", seed).items()}

    first = of(1, sizes)
    assert all((of(1, sizes)[name] == first[name]).all() for name in "AB")
    assert (first["A"] != first["B"]).mean() > 0.9
    assert (of(2, sizes)["A"] != first["A"]).mean() > 0.9
    assert (of(1, sizes | {"N": 256})["A"] != first["A"]).mean() > 0.9


def test_an_unknown_distribution_is_a_usage_error(kernels: Program) -> None:
    with pytest.raises(UsageError, match="unknown input distribution"):
        make_base(SimulatedMachine(kernels), get_task("gemm_n7168_k5120"), {"M": 128, "N": 128, "K": 64}, "odd", 1)
