"""The error ratios of honest kernels and cheats, per output: what separates them, and by how much.

``python tests/judge/error_ratios.py fwd|bwd|gemm [seeds]`` prints tables. A ratio is an error over the earned
yardstick: the RMS error (the worst of the whole output and its blocks; the bound is 1.5) and the largest error (3).
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import emulated_attention
import emulated_gemm
import numpy as np

from ptxbench.judge import Measurement, measure
from ptxbench.tasks import Problem, Tensor

Kernel = Callable[[Problem], dict[str, Tensor]]


class Ratio(NamedTuple):
    """One output of one kernel on one problem. ``rms`` is the worst of the whole output and its blocks."""

    kernel: str
    output: str
    distribution: str
    seed: int
    rms: float
    largest: float
    ok: bool


class Line(NamedTuple):
    """The ratios of one kernel and output over many problems. ``caught`` is the share that is not accepted."""

    kernel: str
    output: str
    rms: tuple[float, float, float]
    """Lowest, median, highest."""
    largest: float
    caught: float


def error_ratios(kernels: Mapping[str, Kernel], problems: Iterable[Problem]) -> Iterator[Ratio]:
    """The ratios of every output of every kernel on every problem."""
    for of in problems:
        for name, kernel in kernels.items():
            with np.errstate(all="ignore"):
                outputs = kernel(of)
            for output, tensor in outputs.items():
                yield ratio(name, of, output, measure(of, output, tensor))


def ratio(kernel: str, of: Problem, output: str, measured: Measurement) -> Ratio:
    rms, largest = max(measured.rms, float(measured.rms_blocks.max())), float(measured.max_blocks.max())
    return Ratio(kernel, output, of.distribution, of.seed, rms, largest, measured.ok)


def caught(ratios: Iterable[Ratio]) -> dict[tuple[str, str, int], bool]:
    """Whether any output gave a kernel away, by (kernel, distribution, seed)."""
    found: dict[tuple[str, str, int], bool] = defaultdict(bool)
    for r in ratios:
        found[r.kernel, r.distribution, r.seed] |= not r.ok
    return found


def summary(ratios: Iterable[Ratio]) -> list[Line]:
    """A line per kernel and output, in the order in which they first come."""
    groups: dict[tuple[str, str], list[Ratio]] = defaultdict(list)
    for r in ratios:
        groups[r.kernel, r.output].append(r)
    lines: list[Line] = []
    for (kernel, output), group in groups.items():
        low, middle, high = np.quantile([r.rms for r in group], (0, 0.5, 1), method="nearest")
        share = float(np.mean([not r.ok for r in group]))
        lines.append(Line(kernel, output, (low, middle, high), max(r.largest for r in group), share))
    return lines


def table(lines: Iterable[Line]) -> str:
    """Markdown."""
    rows = ["| kernel | output | RMS: lowest, median, highest | largest | not accepted |", "|---|---|---|---|---|"]
    for kernel, output, (low, middle, high), largest, share in lines:
        rows.append(f"| {kernel} | {output} | {low:.3g}, {middle:.3g}, {high:.3g} | {largest:.3g} | {share:.0%} |")
    return "\n".join(rows)


def attention_problems(direction: str, seeds: Iterable[int], distributions: Iterable[str] = ()) -> Iterator[Problem]:
    """One problem per seed and distribution (all of the task's unless named); odd seeds are causal."""
    for seed in seeds:
        names = tuple(distributions) or emulated_attention.problem(direction).task.distributions
        for name in names:
            yield emulated_attention.problem(direction, name, seed, causal=bool(seed % 2))


def gemm_kernels(kernels: Mapping[str, emulated_gemm.Kernel]) -> dict[str, Kernel]:
    """Emulated GEMMs as functions to rounded outputs."""

    def rounded(kernel: emulated_gemm.Kernel) -> Kernel:
        return lambda of: emulated_gemm.outputs(kernel, of)

    return {name: rounded(kernel) for name, kernel in kernels.items()}


def main(which: str, seeds: int) -> None:
    """Prints the tables of honest kernels and of cheats."""
    if which == "gemm":
        groups = [gemm_kernels(emulated_gemm.HONEST), gemm_kernels(emulated_gemm.CHEATS)]
        names = emulated_gemm.problem().task.distributions
        problems = [emulated_gemm.problem(name, seed) for seed in range(seeds) for name in names]
    else:
        groups = [emulated_attention.HONEST[which], emulated_attention.CHEATS[which]]
        problems = list(attention_problems(which, range(seeds)))
    for kernels in groups:
        print(table(summary(error_ratios(kernels, problems))), end="\n\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4)
