"""How an output is wrong, in words that help its author: the first explanation that fits is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptxbench.judge.poison import unwritten
from ptxbench.judge.regions import Mask, describe_region
from ptxbench.judge.yardstick import MAX_FACTOR, RMS_FACTOR, Measurement, error_scale
from ptxbench.tasks import Float64, Problem, Tensor

_MATCH = 0.02
"""Relative distance within which two values count as the same when an output is compared with a rearranged truth."""

_EXPLAINED = 0.9
"""Share of the wrong elements that an explanation must account for."""

_SHIFTS = tuple(sign * step for step in (1, 2, 4, 8, 16, 32, 64, 128) for sign in (1, -1))


@dataclass(frozen=True)
class _Case:
    """One wrong output. ``value`` is the output in float64, 0 where it is not finite; ``bad`` marks wrong elements."""

    problem: Problem
    name: str
    output: Tensor
    measured: Measurement
    value: Float64
    truth: Float64
    scale: Float64
    finite: Mask
    bad: Mask

    def explains(self, other: Float64) -> bool:
        """Whether ``other`` is what stands in nearly all wrong elements."""
        near = np.abs(self.value - other) <= _MATCH * np.abs(other) + RMS_FACTOR * self.scale
        return float((near & self.finite)[self.bad].mean()) >= _EXPLAINED


def describe_error(problem: Problem, name: str, output: Tensor, measured: Measurement) -> str:
    """The pattern of an output that failed ``measured``, as one phrase."""
    value = output.astype(np.float64)
    finite = np.isfinite(value)
    bad = measured.ratio > MAX_FACTOR
    case = _Case(
        problem, name, output, measured,
        value=np.where(finite, value, 0.0),
        truth=problem.truth[name],
        scale=error_scale(problem.truth[name], problem.noise[name], problem.output_dtype(name)),
        finite=finite,
        bad=bad if bad.any() else measured.ratio > RMS_FACTOR,
    )
    return next(filter(None, (explanation(case) for explanation in _EXPLANATIONS)))


def _never_written(case: _Case) -> str:
    untouched = unwritten(case.output) & case.bad
    # A wrong 16-bit value equals its poison once in thousands; neighbours that both do are no accident.
    row = untouched.reshape(-1, untouched.shape[-1])
    pairs = int((row[:, 1:] & row[:, :-1]).sum())
    if pairs < 4 and untouched.sum() < 0.1 * case.bad.sum():
        return ""
    return f"never written: {describe_region(untouched)}"


def _not_finite(case: _Case) -> str:
    if case.finite.all():
        return ""
    words = "NaN" if bool(np.isnan(case.output.astype(np.float64)).any()) else "infinity"
    return f"{words} in {describe_region(~case.finite)}"


def _constant(case: _Case) -> str:
    first = case.value.flat[0]
    if not (case.value == first).all():
        return ""
    return "zero everywhere" if first == 0 else f"the constant {first:.6g} everywhere"


def _truncated(case: _Case) -> str:
    towards_zero = (np.abs(case.value) <= np.abs(case.truth)) & (case.measured.ratio < MAX_FACTOR)
    return "rounded toward zero instead of to nearest" if towards_zero.mean() >= 0.99 else ""


def _scaled(case: _Case) -> str:
    truth, value = case.truth / case.scale, case.value / case.scale
    factor = float(np.vdot(truth, value) / max(float(np.vdot(truth, truth)), 1e-300))
    if factor == 0 or abs(factor - 1) < 1e-3:
        return ""
    residual = float(np.sqrt(np.mean(np.square(value - factor * truth))))
    return f"scaled by {factor:.6g}" if residual <= 2 * max(1.0, abs(factor)) else ""


def _transposed(case: _Case) -> str:
    if case.truth.ndim < 2:
        return ""
    flipped = np.swapaxes(case.truth, -1, -2).reshape(case.truth.shape)
    return "transposed (rows and columns exchanged)" if case.explains(flipped) else ""


def _shifted(case: _Case) -> str:
    for axis, word in ((-2, "rows"), (-1, "columns")):
        if case.truth.ndim < -axis:
            continue
        for step in _SHIFTS:
            if abs(step) < case.truth.shape[axis] and case.explains(np.roll(case.truth, step, axis)):
                return f"shifted by {step:+d} {word}: {describe_region(case.bad)}"
    return ""


def _missing_slices(case: _Case) -> str:
    """Slices of the summed axis whose contribution accounts for the whole error of the wrong elements."""
    weight = np.where(case.bad & case.finite, 1 / case.scale, 0.0)
    residual = (case.truth - case.value) * weight
    rest = residual.copy()
    missing: list[tuple[int, int]] = []
    doubled: list[tuple[int, int]] = []
    problem = case.problem
    for start, stop, outputs in problem.operation.slices(problem.task, problem.sizes, problem.inputs):
        part = outputs[case.name] * weight
        share = float(np.vdot(part, residual) / max(float(np.vdot(part, part)), 1e-300))
        if 0.8 < abs(share) < 1.2:
            rest -= np.sign(share) * part
            _extend(missing if share > 0 else doubled, start, stop)
    if not (missing or doubled) or np.square(rest).sum() > (1 - _EXPLAINED) * np.square(residual).sum():
        return ""
    found = [f"products of k in {_spans(spans)} are {word}" for spans, word in
             ((missing, "missing"), (doubled, "added twice")) if spans]
    return f"{' and '.join(found)}: {describe_region(case.bad)}"


def _extend(spans: list[tuple[int, int]], start: int, stop: int) -> None:
    if spans and spans[-1][1] == start:
        spans[-1] = (spans[-1][0], stop)
    else:
        spans.append((start, stop))


def _spans(spans: list[tuple[int, int]]) -> str:
    shown = ", ".join(f"{start}-{stop - 1}" for start, stop in spans[:3])
    return shown if len(spans) <= 3 else f"{shown}, ... ({len(spans)} ranges)"


def _low_precision(case: _Case) -> str:
    error = case.value - case.truth
    size = float(np.sqrt(np.mean(np.square(error)) / max(float(np.mean(np.square(case.truth))), 1e-300)))
    lines = case.bad.reshape(-1, case.bad.shape[-1])
    spread = min(float(np.logical_or.reduce(lines, axis=axis).mean()) for axis in (0, 1))
    if spread < 0.5 or size > 0.1:
        return ""
    return f"small errors everywhere (relative RMS {size:.1e}), as from sums or operands of too low a precision"


def _place(case: _Case) -> str:
    zero = bool((case.value == 0)[case.bad].all())
    return f"{'zero in' if zero else 'wrong values:'} {describe_region(case.bad)}"


_EXPLANATIONS: tuple[Callable[[_Case], str], ...] = (
    _never_written, _not_finite, _constant, _truncated, _scaled, _transposed, _shifted, _missing_slices,
    _low_precision, _place,
)
