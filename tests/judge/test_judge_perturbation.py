import ml_dtypes
import numpy as np
import pytest
from emulated_gemm import HONEST, blas, outputs, problem

from ptxbench.judge import FOLLOWED_LOWER, judge_perturbation
from ptxbench.tasks import Tensor

FACTOR = 1.3711


def rounded(values: Tensor) -> dict[str, Tensor]:
    return {"C": values.astype(ml_dtypes.bfloat16)}


@pytest.mark.parametrize("distribution", ["normal", "wide_range", "spikes", "equal_rows"])
@pytest.mark.parametrize("kernel", ["blas", "tensor core, 16", "split-K by 5"])
def test_a_kernel_that_uses_the_instruction_follows(distribution: str, kernel: str) -> None:
    of = problem(distribution, 1, m=256, n=256)
    scaled = np.float32(FACTOR) * HONEST[kernel](of)
    assert judge_perturbation(of.perturbed(FACTOR), rounded(scaled)) == 1.0


def test_a_kernel_that_throws_its_results_away_does_not() -> None:
    of = problem(m=256, n=256)
    assert judge_perturbation(of.perturbed(FACTOR), outputs(blas, of)) == 0.0


def test_half_of_the_products_on_another_path_do_not() -> None:
    of = problem(m=256, n=256)
    mixed = np.float32((1 + FACTOR) / 2) * blas(of)
    assert judge_perturbation(of.perturbed(FACTOR), rounded(mixed)) == 0.0


def test_a_decorated_corner_does_not_carry_the_rest() -> None:
    of = problem(m=256, n=512)
    result = blas(of)
    result[:128, :128] *= np.float32(FACTOR)
    share = judge_perturbation(of.perturbed(FACTOR), rounded(result))
    assert share == pytest.approx(1 / 8) and share < FOLLOWED_LOWER


def test_a_small_part_on_another_path_spoils_its_block() -> None:
    of = problem(m=256, n=256)
    result = np.float32(FACTOR) * blas(of)
    result[:16, :16] /= np.float32(FACTOR)
    assert judge_perturbation(of.perturbed(FACTOR), rounded(result)) == 0.75


def test_a_factor_of_one_says_nothing() -> None:
    of = problem()
    with pytest.raises(ValueError, match="no block"):
        judge_perturbation(of.perturbed(1.0), outputs(blas, of))
