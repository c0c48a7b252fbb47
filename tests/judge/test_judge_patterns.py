import ml_dtypes
import numpy as np
import pytest
from emulated_gemm import CHEATS, Kernel, blas, operands, outputs, problem, without
from numpy.typing import NDArray

from ptxbench.core import OutputReport
from ptxbench.judge import judge_outputs, poison, poisoned_outputs, unwritten
from ptxbench.judge.regions import describe_region
from ptxbench.tasks import Problem

SIZES = {"m": 256, "n": 256, "k": 1024}


def judged(kernel: Kernel, **sizes: int) -> OutputReport:
    of = problem("normal", 11, **(SIZES | sizes))
    return judge_outputs(of, outputs(kernel, of))["C"]


def changed(rows: slice, columns: slice, by: float = 40.0) -> Kernel:
    def kernel(of: Problem) -> NDArray[np.float32]:
        result = blas(of)
        result[rows, columns] += by
        return result

    return kernel


def warp_rows(of: Problem) -> NDArray[np.float32]:
    result = blas(of)
    result.reshape(-1, 64, result.shape[1])[:, 32:48] *= -1
    return result


def tile_without_last_slice(of: Problem) -> NDArray[np.float32]:
    result = blas(of)
    result[128:, :128] = without(-64, 0)(of)[128:, :128]
    return result


def doubled_slice(of: Problem) -> NDArray[np.float32]:
    a, b = operands(of)
    return blas(of) + a[:, 64:128] @ b[:, 64:128].T


def nan_tile(of: Problem) -> NDArray[np.float32]:
    return changed(slice(0, 64), slice(128, 256), np.nan)(of)


PATTERNS: dict[str, tuple[Kernel, str]] = {
    "zeros": (CHEATS["zeros"], "zero everywhere"),
    "constant": (CHEATS["constant"], "the constant 1 everywhere"),
    "scaled": (lambda of: blas(of) / 2, "scaled by 0.5"),
    "negated": (lambda of: -blas(of), "scaled by -1"),
    "transposed": (CHEATS["transposed"], "transposed"),
    "flat transposed": (lambda of: np.ascontiguousarray(blas(of).T).reshape(256, 256), "transposed"),
    "next row": (CHEATS["off by one row"], "shifted by +1 rows"),
    "previous columns": (lambda of: np.roll(blas(of), -8, axis=1), "shifted by -8 columns"),
    "last slice": (CHEATS["last 64 of K dropped"], "products of k in 960-1023 are missing: everywhere"),
    "last instruction": (CHEATS["last 16 of K dropped"], "products of k in 1008-1023 are missing"),
    "slice of a tile": (
        tile_without_last_slice,
        "products of k in 960-1023 are missing: rows 128-255, columns 0-127 (one whole 128x128 tile)",
    ),
    "slice twice": (doubled_slice, "products of k in 64-127 are added twice"),
    "tile": (CHEATS["dropped tile"], "zero in rows 64-127, columns 32-63 (one whole 64x32 tile)"),
    "warp": (warp_rows, "rows 32-47 of every 64 in all columns (the 16 rows of warp 2 of a warpgroup)"),
    "columns": (changed(slice(None), slice(8, 16)), "wrong values: columns 8-15 in all rows"),
    "NaN": (nan_tile, "NaN in rows 0-63, columns 128-255"),
    "bf16": (CHEATS["bf16 accumulator, 64"], "small errors everywhere"),
    "fp8": (CHEATS["fp8 operands"], "of too low a precision"),
    "truncated": (CHEATS["truncated output"], "rounded toward zero"),
    "one": (changed(slice(7, 8), slice(9, 10)), "the element at row 7, column 9"),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_pattern_in_words(name: str) -> None:
    kernel, words = PATTERNS[name]
    report = judged(kernel)
    assert not report.ok
    assert words in report.pattern


def test_non_square_transposition_is_recognised() -> None:
    report = judged(lambda of: np.ascontiguousarray(blas(of).T).reshape(128, 384), m=128, n=384)
    assert report.pattern.startswith("transposed")


def test_numbers_of_a_wrong_tile() -> None:
    report = judged(changed(slice(128, 256), slice(64, 128)))
    assert report.first_bad == (128, 64)
    assert report.bad_share == pytest.approx(1 / 8, abs=0.001)
    assert report.max_ratio is not None and report.max_ratio > 100


def test_nan_leaves_ratios_open_and_counts_as_bad() -> None:
    report = judged(nan_tile)
    assert (report.rms_ratio, report.max_ratio, report.worst_block_ratio) == (None, None, None)
    assert report.bad_share == pytest.approx(1 / 8)
    assert report.first_bad == (0, 128)


def test_infinity_never_passes() -> None:
    report = judged(changed(slice(3, 4), slice(5, 6), np.inf))
    assert not report.ok and report.pattern == "infinity in the element at row 3, column 5"


def test_right_output_has_no_pattern() -> None:
    report = judged(blas)
    assert report.ok and report.pattern == "" and report.first_bad == () and report.bad_share == 0
    assert report.rms_ratio == pytest.approx(1, abs=0.05)


def test_unwritten_outputs_and_regions_are_named() -> None:
    of = problem("normal", 3, **SIZES)
    result = poisoned_outputs(of)
    assert judge_outputs(of, result)["C"].pattern == "never written: everywhere"
    result["C"][:, :192] = outputs(blas, of)["C"][:, :192]
    assert judge_outputs(of, result)["C"].pattern == "never written: columns 192-255 in all rows"


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_poison_looks_like_results_and_is_recognised(dtype: type) -> None:
    values = poison((64, 96), np.dtype(dtype))
    numbers = values.astype(np.float64)
    assert values.dtype == dtype and np.isfinite(numbers).all()
    assert np.abs(numbers).min() >= 1 and np.abs(numbers).max() < 16
    assert 0.4 < (numbers < 0).mean() < 0.6 and len(np.unique(numbers)) > 200
    assert unwritten(values).all()
    values[5] = 0
    assert unwritten(values).mean() == pytest.approx(63 / 64)


def test_regions_of_leading_axes_and_diagonals() -> None:
    mask = np.zeros((2, 3, 256, 256), bool)
    mask[1, 2, 16:32] = True
    warp = "rows 16-31 in all columns (the 16 rows of warp 1 of a warpgroup)"
    assert describe_region(mask, ("batch", "head")) == f"{warp} of batch 1, head 2"
    mask[1] = True
    assert describe_region(mask, ("batch", "head")) == "all of batch 1"
    mask[0, 2] = True
    assert describe_region(mask, ("batch", "head")) == "all in 4 of 6 matrices"
    diagonal = np.zeros((512, 512), bool)
    for block in range(0, 512, 128):
        diagonal[block : block + 128, block : block + 128] = True
    assert describe_region(diagonal).startswith("scattered in the diagonal 128x128 blocks")
    assert describe_region(mask[..., :1], ("batch", "head")) == "all in 4 of 6 matrices"
    vector = np.zeros((1, 2, 256, 1), bool)
    vector[:, 1, 64:128] = True
    assert describe_region(vector, ("batch", "head")) == "rows 64-127 of head 1"
