
import numpy as np
import pytest

from ptxbench.core import Task, UsageError, Workload
from ptxbench.tasks import (
    OPERATIONS,
    draw_inputs,
    flops,
    get_task,
    input_bytes,
    make_problem,
    output_bytes,
    rounded,
    ulp,
)

SIZES = {"M": 128, "N": 256, "K": 192}


@pytest.fixture
def gemm() -> Task:
    return get_task("gemm_n7168_k5120")


@pytest.fixture
def workload() -> Workload:
    return Workload(tier="small", sizes=SIZES)


def test_truth_is_the_exact_product(gemm: Task, workload: Workload) -> None:
    problem = make_problem(gemm, workload, "normal", seed=1)
    a, b = (problem.inputs[n].astype(np.float64) for n in ("A", "B"))
    exact = np.einsum("mk,nk->mn", a[:5].astype(np.longdouble), b[:5].astype(np.longdouble))
    assert np.allclose(problem.truth["C"][:5, :5], exact.astype(np.float64), rtol=0, atol=1e-12)
    assert problem.truth["C"].dtype == np.float64 and problem.truth["C"].shape == (128, 256)


def test_honest_differs_from_truth_by_one_rounding(gemm: Task, workload: Workload) -> None:
    problem = make_problem(gemm, workload, "normal", seed=1)
    honest = problem.honest["C"]
    assert honest.dtype == problem.inputs["A"].dtype
    error = np.abs(honest.astype(np.float64) - problem.truth["C"])
    assert (error <= ulp(problem.truth["C"], "bf16") / 2 + 6 * problem.noise["C"]).all()


def test_perturbed_answers_are_scaled(gemm: Task, workload: Workload) -> None:
    problem = make_problem(gemm, workload, "spikes", seed=2)
    perturbed = problem.perturbed(1.5)
    assert np.array_equal(perturbed.truth["C"], 1.5 * problem.truth["C"])
    assert np.allclose(perturbed.noise["C"], 1.5 * problem.noise["C"])
    assert perturbed.inputs == problem.inputs and perturbed.product_scale == 1.5


def test_slices_add_up_to_the_product(gemm: Task, workload: Workload) -> None:
    problem = make_problem(gemm, workload, "normal", seed=3)
    slices = list(OPERATIONS["gemm"].slices(gemm, SIZES, problem.inputs))
    assert (slices[0][0], slices[-1][1]) == (0, SIZES["K"])
    assert np.allclose(sum(outputs["C"] for _, _, outputs in slices), problem.truth["C"], atol=1e-4)


def test_counts(gemm: Task) -> None:
    core = gemm.of_tier("core")[0].sizes
    assert flops(gemm, core) == 2 * 8192 * 7168 * 5120
    assert input_bytes(gemm, core) == 2 * 5120 * (8192 + 7168)
    assert output_bytes(gemm, core) == 2 * 8192 * 7168


def test_inputs_depend_on_seed_distribution_sizes_and_argument_only(gemm: Task) -> None:
    square = {"M": 128, "N": 128, "K": 64}
    base = draw_inputs(gemm, square, "normal", 7)
    assert np.array_equal(base["A"], draw_inputs(gemm, dict(reversed(square.items())), "normal", 7)["A"])
    others = [
        base["B"],
        draw_inputs(gemm, square, "normal", 8)["A"],
        draw_inputs(gemm, square, "wide_range", 7)["A"],
        draw_inputs(gemm, {**square, "N": 256}, "normal", 7)["A"],
    ]
    assert all((other != base["A"]).mean() > 0.9 for other in others)


def test_unknown_distribution_is_a_usage_error(gemm: Task) -> None:
    with pytest.raises(UsageError, match="unknown input distribution 'cauchy'"):
        draw_inputs(gemm, SIZES, "cauchy", 1)


def test_distributions_have_their_character(gemm: Task) -> None:
    sizes = {"M": 512, "N": 128, "K": 512}
    values = {name: draw_inputs(gemm, sizes, name, 3)["A"].astype(np.float64) for name in gemm.distributions}
    assert abs(values["normal"].std() - 1) < 0.02
    magnitude = np.abs(values["wide_range"])
    assert magnitude.max() / np.median(magnitude) > 1e3
    zeros = (values["spikes"] == 0).mean()
    assert 0.8 < zeros < 0.95 and (values["spikes"] == 0).all(axis=1).any()
    assert (values["equal_rows"] == values["equal_rows"][:, :1]).all()
    assert all(np.isfinite(v).all() for v in values.values())


def test_ulp_is_the_spacing_of_the_format() -> None:
    values = np.array([0.0, 1.0, 1.99, 2.0, -3.0, 1e-45])
    assert ulp(values, "bf16").tolist() == [2.0**-133, 2.0**-7, 2.0**-7, 2.0**-6, 2.0**-6, 2.0**-133]
    singles = np.array([1.5, 3.0e5, 1e-30], dtype=np.float32)
    assert np.array_equal(ulp(singles.astype(np.float64), "f32"), np.spacing(singles).astype(np.float64))
    assert rounded(np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8]), "bf16").tolist() == [1.0, 1 + 2.0**-6]
