"""Attention against definitions: softmax written out, derivatives by finite differences, FLOPs of the core shape."""

import math

import numpy as np
import pytest

from ptxbench.core import Workload
from ptxbench.tasks import Problem, flops, get_task, input_bytes, make_problem, output_bytes

SIZES = {"B": 1, "H": 2, "S": 128, "D": 128}


def problem(name: str, distribution: str = "normal", seed: int = 1) -> Problem:
    return make_problem(get_task(name), Workload(tier="small", sizes=SIZES), distribution, seed)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """One head, row by row."""
    out = np.zeros_like(q)
    for i, row in enumerate(q):
        keys = i + 1 if causal else len(k)
        weights = np.exp([row @ k[j] / math.sqrt(128) for j in range(keys)])
        out[i] = weights / weights.sum() @ v[:keys]
    return out


@pytest.mark.parametrize("name", ["mha_fwd_d128", "mha_fwd_d128_causal"])
def test_forward_is_the_definition(name: str) -> None:
    of = problem(name)
    q, k, v = (of.inputs[n][0, 1].astype(np.float64) for n in "QKV")
    causal = of.task.options["causal"]
    assert np.allclose(of.truth["O"][0, 1], attention(q, k, v, causal), rtol=0, atol=1e-12)
    keys = 6 if causal else 128
    assert of.truth["LSE"][0, 1, 5] == pytest.approx(np.log(np.exp(k[:keys] @ q[5] / math.sqrt(128)).sum()), abs=1e-12)


@pytest.mark.parametrize("name", ["mha_bwd_d128", "mha_bwd_d128_causal"])
@pytest.mark.parametrize("argument", ["Q", "K", "V"])
def test_backward_is_the_derivative(name: str, argument: str) -> None:
    of = problem(name)
    inputs = {n: of.inputs[n][0, 0].astype(np.float64) for n in ("Q", "K", "V", "dO")}
    direction = np.random.default_rng(3).standard_normal((128, 128))

    def loss(step: float) -> float:
        moved = {**inputs, argument: inputs[argument] + step * direction}
        out = attention(moved["Q"], moved["K"], moved["V"], of.task.options["causal"])
        return float((out * inputs["dO"]).sum())

    difference = (loss(1e-5) - loss(-1e-5)) / 2e-5
    assert (of.truth[f"d{argument}"][0, 0] * direction).sum() == pytest.approx(difference, rel=1e-6)


def test_a_perturbed_backward_pass_is_that_of_a_perturbed_forward_pass() -> None:
    """With every product scaled by f, dV is f·Pᵀ·dO and delta = Σ dO∘O = Σ P∘dP, whichever way it is computed."""
    f = 1.3
    of = problem("mha_bwd_d128").perturbed(f)
    q, k, v, d_out, lse = (of.inputs[n].astype(np.float64) for n in ("Q", "K", "V", "dO", "LSE"))
    weights = np.exp(f * q @ np.swapaxes(k, -1, -2) / math.sqrt(128) - lse[..., None])
    assert np.allclose(weights.sum(axis=-1), 1, atol=1e-5)
    assert np.allclose(of.truth["dV"], f * np.swapaxes(weights, -1, -2) @ d_out, atol=1e-4)
    from_weights = (weights * f * (d_out @ np.swapaxes(v, -1, -2))).sum(axis=-1)
    from_output = (d_out * of.inputs["O"].astype(np.float64)).sum(axis=-1)
    assert np.abs(from_weights - from_output).max() < 0.05 * from_output.std()


def test_given_outputs_are_the_truth_of_the_forward_pass_rounded() -> None:
    backward, forward = problem("mha_bwd_d128_causal"), problem("mha_fwd_d128_causal")
    made = forward.operation.truth(forward.task, SIZES, backward.inputs)
    assert np.array_equal(backward.inputs["O"], made["O"].astype(backward.inputs["O"].dtype))
    assert np.array_equal(backward.inputs["LSE"], made["LSE"].astype(np.float32))


def test_counts_of_the_core_shape() -> None:
    core = get_task("mha_fwd_d128").of_tier("core")[0].sizes
    work = 4 * 4 * 48 * 4096**2 * 128
    assert [flops(get_task(f"mha_{name}"), core) for name in ("fwd_d128", "fwd_d128_causal")] == [work, work // 2]
    assert [flops(get_task(f"mha_{name}"), core) for name in ("bwd_d128", "bwd_d128_causal")] == [
        5 * work // 2, 5 * work // 4
    ]  # fmt: skip
    matrix, rows = 2 * 4 * 48 * 4096 * 128, 4 * 4 * 48 * 4096
    assert input_bytes(get_task("mha_bwd_d128"), core) == 5 * matrix + rows
    assert output_bytes(get_task("mha_fwd_d128"), core) == matrix + rows


def test_slices_of_the_backward_pass_add_up() -> None:
    of = problem("mha_bwd_d128_causal", seed=2)
    slices = list(of.operation.slices(of.task, SIZES, of.inputs))
    assert (slices[0][0], slices[-1][1]) == (0, 128)
    for name, truth in of.truth.items():
        assert np.allclose(sum(part[name] for _, _, part in slices), truth, atol=0.02 * truth.std())


def test_distributions_of_attention_have_their_character() -> None:
    q, k = (problem("mha_fwd_d128", "large_logits").inputs[n].astype(np.float64) for n in "QK")
    logits = q @ np.swapaxes(k, -1, -2) / math.sqrt(128)
    assert logits.max() > 89 and np.median(np.abs(logits).max(axis=-1)) < 60
    k = problem("mha_fwd_d128", "equal_logits").inputs["K"]
    assert (k == k[:, :, :1]).all() and (k[:, 0] != k[:, 1]).any()
    wide = problem("mha_bwd_d128", "wide_range").inputs
    assert np.abs(wide["Q"].astype(np.float32)).max() < 6 < 1000 < np.abs(wide["dO"].astype(np.float32)).max()
    assert all((problem("mha_bwd_d128", "spikes").inputs[n] == 0).mean() > 0.8 for n in ("Q", "K", "V", "dO"))
