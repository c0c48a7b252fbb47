"""Every row of the suite can be judged: its honest algorithm passes, on all distributions and when perturbed."""

import numpy as np
import pytest
from emulated_attention import CHEATS, forward

from ptxbench.core import Task, Workload
from ptxbench.judge import judge_outputs, judge_perturbation, measure, poisoned_outputs
from ptxbench.judge.yardstick import error_scale
from ptxbench.tasks import Problem, Tensor, get_task, load_tasks, make_problem, turned

TASKS = load_tasks()


def small(task: Task, distribution: str = "normal", seed: int = 1) -> Problem:
    return make_problem(task, task.of_tier("small")[0], distribution, seed)


@pytest.mark.parametrize("name", TASKS)
def test_the_derived_error_is_that_of_the_honest_algorithm(name: str) -> None:
    task = TASKS[name]
    for distribution in task.distributions if task.suite == "core" else task.distributions[:2]:
        of = small(task, distribution)
        for output, truth in of.truth.items():
            scale = error_scale(truth, of.noise[output], of.output_dtype(output))
            error = (of.honest[output].astype(np.float64) - truth) / scale
            size = np.sqrt(np.mean(np.square(error)))
            assert size < 0.1 if output == "LSE" else 0.4 < size < 1.15, (distribution, output)


@pytest.mark.parametrize("name", TASKS)
def test_the_honest_algorithm_follows_a_perturbation_and_outputs_left_alone_fail(name: str) -> None:
    of = small(TASKS[name])
    scaled = of.perturbed(1.4)
    assert judge_perturbation(scaled, scaled.honest) == 1.0
    assert judge_perturbation(scaled, of.honest) == 0.0
    assert not any(report.ok for report in judge_outputs(of, poisoned_outputs(of), explain=False).values())


def gemm(of: Problem) -> np.ndarray:
    shapes = {a.name: a.shape for a in of.task.inputs}
    a, b = (of.inputs[n].astype(np.float32) for n in "AB")
    return (a if shapes["A"][-1] == "K" else turned(a)) @ (turned(b) if shapes["B"][-1] == "K" else b)


def pattern(of: Problem, values: Tensor) -> str:
    return judge_outputs(of, {"C": values.astype(of.honest["C"].dtype)})["C"].pattern


def test_operands_in_the_wrong_layout_are_recognised() -> None:
    of = small(get_task("gemm_b_kn"))
    a, b = (of.inputs[n].astype(np.float32) for n in "AB")
    assert pattern(of, a @ b.reshape(b.shape[::-1]).T) == "as if B is taken as [N, K] (it is [K, N])"
    of = small(get_task("gemm_a_km"))
    a, b = (of.inputs[n].astype(np.float32) for n in "AB")
    assert pattern(of, a.reshape(a.shape[::-1]) @ b.T) == "as if A is taken as [M, K] (it is [K, M])"


def test_faults_of_an_epilogue_are_recognised() -> None:
    of = small(get_task("gemm_bias_gelu"))
    bias = of.inputs["bias"].astype(np.float32)
    assert pattern(of, gemm(of) + bias) == "as if GELU is not applied"
    unbiased = Problem(**{**vars(of), "inputs": {n: t for n, t in of.inputs.items() if n != "bias"}}).perturbed(1.0)
    assert pattern(of, unbiased.honest["C"].astype(np.float32)) == "as if the bias is not added"


def test_the_tanh_form_of_gelu_is_not_the_exact_one() -> None:
    of = small(get_task("gemm_bias_gelu"))
    smaller = (of.inputs["A"].astype(np.float32) / 16).astype(of.inputs["A"].dtype)
    shrunk = Problem(**{**vars(of), "inputs": {**of.inputs, "A": smaller}}).perturbed(1.0)
    x = gemm(shrunk) + of.inputs["bias"].astype(np.float32)
    approximate = x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2
    assert judge_outputs(shrunk, shrunk.honest)["C"].ok
    assert not measure(shrunk, "C", approximate.astype(shrunk.honest["C"].dtype)).ok


def test_a_wrong_matrix_of_a_batch_is_named() -> None:
    of = small(get_task("gemm_batched"))
    values = gemm(of)
    values[1] = values[0]
    assert pattern(of, values) == "batch 1 holds the result of batch 0"
    values = gemm(of)
    values[1, :64] = 0
    assert pattern(of, values) == "zero in rows 0-63 in all columns of batch 1"


def test_fp16_accumulation_fails_an_fp16_task() -> None:
    of = small(get_task("gemm_f16"))
    a, b = (of.inputs[n].astype(np.float32) for n in "AB")
    total = np.zeros(of.truth["C"].shape, np.float16)
    for k in range(0, a.shape[1], 16):
        total = (total + a[:, k : k + 16] @ b[:, k : k + 16].T).astype(np.float16)
    assert not measure(of, "C", total).ok


@pytest.mark.parametrize(("name", "length"), [("mha_fwd_d128_ragged", 300), ("mha_fwd_d128_causal_ragged", 260)])
def test_a_ragged_edge_is_judged_like_the_rest(name: str, length: int) -> None:
    sizes = {"B": 1, "H": 2, "S": length, "D": 128}
    of = make_problem(get_task(name), Workload(tier="small", sizes=sizes), "normal", 2)
    outputs = forward(of, keys=20)
    assert all(report.ok for report in judge_outputs(of, outputs).values())
    rest = slice(length // 128 * 128, length)
    outputs["O"][:, 1, rest] = CHEATS["fwd"]["weights in fp8"](of)["O"][:, 1, rest]
    report = judge_outputs(of, outputs)["O"]
    assert not report.ok and report.first_bad[1:] > (1, rest.start)
