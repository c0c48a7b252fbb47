"""Tier 1: outputs against the truth, and whether they follow a perturbed truth."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ptxbench.core import OutputReport
from ptxbench.judge.patterns import describe_error
from ptxbench.judge.yardstick import MAX_FACTOR, RMS_FACTOR, block_max, error_scale, measure
from ptxbench.tasks import Problem, Tensor

PERTURBATION_SCALES = (1.25, 1.75)
"""Range from which the factor of a knock-out run is drawn: far from 1, and no overflow on any distribution."""

_TOLD_APART = 16.0
"""Least distance of truth and perturbed truth, in error scales, for a block to say anything."""


def judge_outputs(
    problem: Problem, outputs: Mapping[str, Tensor], *, explain: bool = True
) -> dict[str, OutputReport]:
    """A report per output of the task.

    ``outputs`` holds every output by name in its shape and dtype, from buffers that `poisoned_outputs` made. Reports
    of right outputs have no pattern, and those of wrong ones only with ``explain``: it takes several times as long as
    the judging. ``first_bad`` is the first element (row-major) beyond the bound on the maximum, or
    the worst element where only an RMS bound is exceeded. Ratios are None where NaN or infinity make them meaningless.
    """
    return {a.name: _judge(problem, a.name, outputs[a.name], explain) for a in problem.task.outputs}


def judge_perturbation(perturbed: Problem, outputs: Mapping[str, Tensor]) -> float:
    """The share of blocks, over all outputs, that follow the truth of ``perturbed`` within the tolerance.

    ``perturbed`` comes from `Problem.perturbed`; ``outputs`` from a run whose matrix instruction was scaled by the same
    factor. Blocks in which the two truths cannot be told apart (all zero) do not count; `ValueError` if none can.
    """
    original = perturbed.perturbed(1.0)
    follows = tells = 0
    for argument in perturbed.task.outputs:
        name = argument.name
        block = perturbed.operation.blocks(perturbed.task)[name]
        scale = error_scale(perturbed.truth[name], perturbed.noise[name], argument.dtype)
        distance = np.abs(perturbed.truth[name] - original.truth[name]) / scale
        told_apart = block_max(distance, block) > _TOLD_APART
        measured = measure(perturbed, name, outputs[name])
        right = (measured.rms_blocks <= RMS_FACTOR) & (measured.max_blocks <= MAX_FACTOR)
        follows += int((right & told_apart).sum())
        tells += int(told_apart.sum())
    if tells == 0:
        raise ValueError("no block of the perturbed problem differs from the original; choose other inputs or factor")
    return follows / tells


def _judge(problem: Problem, name: str, output: Tensor, explain: bool) -> OutputReport:
    measured = measure(problem, name, output)
    if measured.ok:
        return OutputReport(
            ok=True, rms_ratio=measured.rms, max_ratio=float(measured.max_blocks.max()),
            worst_block_ratio=float(measured.rms_blocks.max()), bad_share=0.0,
        )
    bad = measured.ratio > MAX_FACTOR
    flat = int(np.argmax(bad)) if bad.any() else int(np.argmax(measured.ratio))
    return OutputReport(
        ok=False,
        rms_ratio=_finite(measured.rms),
        max_ratio=_finite(measured.max_blocks.max()),
        worst_block_ratio=_finite(measured.rms_blocks.max()),
        bad_share=float(bad.mean()),
        first_bad=tuple(int(i) for i in np.unravel_index(flat, output.shape)),
        pattern=describe_error(problem, name, output, measured) if explain else "",
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
