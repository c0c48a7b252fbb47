"""How an output is wrong, in words that help its author: the first explanation that fits is told."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ptxbench.judge.poison import unwritten
from ptxbench.judge.regions import describe_region
from ptxbench.judge.yardstick import MAX_FACTOR, RMS_FACTOR, Measurement, error_scale
from ptxbench.tasks import Float64, Mask, Problem, Tensor, turned

_MATCH = 0.02
"""Relative distance within which two values count as the same when an output is compared with a rearranged truth."""

_EXPLAINED = 0.9
"""Share of the wrong elements that an explanation must account for."""

_NEARER = 0.5
"""An explanation must be nearer to a wrong element than this share of the truth's distance."""

_SHIFTS = tuple(sign * step for step in (1, 2, 4, 8, 16, 32, 64, 128) for sign in (1, -1))

_LEADING = {"B": "batch", "H": "head", "L": "batch"}
"""Sizes that number whole matrices in the shape of an output, and their words."""


@dataclass(frozen=True)
class _Case:
    """One wrong output as matrices: [..., rows, columns], a vector per head being a matrix of one column.

    ``lead`` names the axes before rows and columns. ``value`` is the output in float64, 0 where it is not finite;
    ``ratio`` as in `Measurement`; ``bad`` marks wrong elements.
    """

    problem: Problem
    name: str
    lead: tuple[str, ...]
    output: Tensor
    ratio: Float64
    value: Float64
    truth: Float64
    scale: Float64
    finite: Mask
    bad: Mask

    def explains(self, other: Tensor) -> bool:
        """Whether ``other`` is what stands in nearly all wrong elements: near to it, and far nearer than the truth."""
        distance = np.abs(self.value - other.reshape(self.value.shape))
        near = distance <= _MATCH * np.abs(self.value) + RMS_FACTOR * self.scale
        nearer = distance <= _NEARER * np.abs(self.value - self.truth)
        return float((near & nearer & self.finite)[self.bad].mean()) >= _EXPLAINED

    def at(self, index: tuple[int, ...]) -> _Case:
        """The matrix at an index of the leading axes, as a case of its own."""
        return replace(
            self, lead=(), output=self.output[index], ratio=self.ratio[index], value=self.value[index],
            truth=self.truth[index], scale=self.scale[index], finite=self.finite[index], bad=self.bad[index],
        )

    def region(self, mask: Mask) -> str:
        """Where ``mask`` is set, in words."""
        return describe_region(mask, self.lead)


def describe_error(problem: Problem, name: str, output: Tensor, measured: Measurement) -> str:
    """The pattern of an output that failed ``measured``, as one phrase."""
    argument = next(a for a in problem.task.outputs if a.name == name)
    lead = tuple(_LEADING[size] for size in argument.shape if size in _LEADING)
    shape = (*output.shape, 1) if len(lead) + 2 > output.ndim else output.shape
    value, truth, ratio, noise = (
        x.reshape(shape) for x in (output.astype(np.float64), problem.truth[name], measured.ratio, problem.noise[name])
    )
    finite = np.isfinite(value)
    bad = ratio > MAX_FACTOR
    case = _Case(
        problem, name, lead, output.reshape(shape), ratio,
        value=np.where(finite, value, 0.0),
        truth=truth,
        scale=error_scale(truth, noise, argument.dtype),
        finite=finite,
        bad=bad if bad.any() else ratio > RMS_FACTOR,
    )
    return next(filter(None, (explanation(case) for explanation in _EXPLANATIONS)))


def _never_written(case: _Case) -> str:
    untouched = unwritten(case.output) & case.bad
    # A wrong 16-bit value equals its poison once in thousands; neighbours that both do are no accident.
    flat = untouched.ravel()
    pairs = int((flat[1:] & flat[:-1]).sum())
    if pairs < 4 and untouched.sum() < 0.1 * case.bad.sum():
        return ""
    return f"never written: {case.region(untouched)}"


def _not_finite(case: _Case) -> str:
    if case.finite.all():
        return ""
    words = "NaN" if bool(np.isnan(case.output.astype(np.float64)).any()) else "infinity"
    return f"{words} in {case.region(~case.finite)}"


def _constant(case: _Case) -> str:
    first = case.value.flat[0]
    if not (case.finite.all() and (case.value == first).all()):
        return ""
    return "zero everywhere" if first == 0 else f"the constant {first:.6g} everywhere"


def _truncated(case: _Case) -> str:
    towards_zero = (np.abs(case.value) <= np.abs(case.truth)) & (case.ratio < MAX_FACTOR)
    return "rounded toward zero instead of to nearest" if towards_zero.mean() >= 0.99 else ""


def _mistaken(case: _Case) -> str:
    """A mistake that authors make; where several explain the output alike, the first in the operation's order."""
    problem = case.problem
    for words, outputs in problem.operation.mistakes(problem.task, problem.sizes, problem.inputs):
        if case.name in outputs and case.explains(outputs[case.name]):
            place = case.region(case.bad)
            everywhere = case.bad.mean() > _EXPLAINED or place.startswith(("everywhere", "scattered"))
            return f"as if {words}" + ("" if everywhere else f": {place}")
    return ""


def _other_matrix(case: _Case) -> str:
    """Whole matrices of a batch that hold what belongs into other ones."""
    indices = list(np.ndindex(case.truth.shape[:-2]))
    found: list[str] = []
    for index in (i for i in indices if case.bad[i].any()):
        source = next((i for i in indices if i != index and case.at(index).explains(case.truth[i])), None)
        if source is None:
            return ""
        found.append(f"{_number(case, index)} holds the result of {_number(case, source)}")
    return ", ".join(found[:3]) + (f", ... ({len(found)} in all)" if len(found) > 3 else "")


def _number(case: _Case, index: tuple[int, ...]) -> str:
    """``batch 1, head 0``, without axes that have one entry only."""
    numbers = zip(case.lead, index, case.truth.shape, strict=False)
    return ", ".join(f"{name} {number}" for name, number, extent in numbers if extent > 1)


def _scaled(case: _Case) -> str:
    truth, value = case.truth / case.scale, case.value / case.scale
    factor = float(np.vdot(truth, value) / max(float(np.vdot(truth, truth)), 1e-300))
    if factor == 0 or abs(factor - 1) < 1e-3:
        return ""
    residual = float(np.sqrt(np.mean(np.square(value - factor * truth))))
    return f"scaled by {factor:.6g}{_meaning(case, factor)}" if residual <= 2 * max(1.0, abs(factor)) else ""


def _meaning(case: _Case, factor: float) -> str:
    """The well-known number that a factor is, in parentheses."""
    known = {"log2(e)": 1 / math.log(2), "ln(2)": math.log(2)}
    if depth := case.problem.sizes.get("D"):
        known |= {"√D": math.sqrt(depth), "1/√D": 1 / math.sqrt(depth), "D": depth, "1/D": 1 / depth}
    return next((f" ({word})" for word, number in known.items() if abs(factor / number - 1) < 2e-3), "")


def _transposed(case: _Case) -> str:
    if case.truth.shape[-1] == 1:
        return ""
    return "transposed (rows and columns exchanged)" if case.explains(turned(case.truth)) else ""


def _shifted(case: _Case) -> str:
    for axis, word in ((-2, "rows"), (-1, "columns")):
        for step in _SHIFTS:
            if abs(step) < case.truth.shape[axis] and case.explains(np.roll(case.truth, step, axis)):
                return f"shifted by {step:+d} {word}: {case.region(case.bad)}"
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
        part = outputs[case.name].reshape(weight.shape) * weight
        share = float(np.vdot(part, residual) / max(float(np.vdot(part, part)), 1e-300))
        if 0.8 < abs(share) < 1.2:
            rest -= np.sign(share) * part
            _extend(missing if share > 0 else doubled, start, stop)
    if not (missing or doubled) or np.square(rest).sum() > (1 - _EXPLAINED) * np.square(residual).sum():
        return ""
    axis = problem.operation.summed[case.name]
    found = [f"products of {axis} in {_spans(spans)} are {word}" for spans, word in
             ((missing, "missing"), (doubled, "added twice")) if spans]
    return f"{' and '.join(found)}: {case.region(case.bad)}"


def _extend(spans: list[tuple[int, int]], start: int, stop: int) -> None:
    if spans and spans[-1][1] == start:
        spans[-1] = (spans[-1][0], stop)
    else:
        spans.append((start, stop))


def _spans(spans: list[tuple[int, int]]) -> str:
    shown = ", ".join(f"{start}-{stop - 1}" for start, stop in spans[:3])
    return shown if len(spans) <= 3 else f"{shown}, ... ({len(spans)} ranges)"


def _low_precision(case: _Case) -> str:
    """Most errors beyond what rounding makes (an honest kernel has 42 % of them at most), yet small."""
    error = np.abs(case.value - case.truth)
    size = float(np.sqrt(np.mean(np.square(error)) / max(float(np.mean(np.square(case.truth))), 1e-300)))
    if (error > case.scale).mean() < 0.5 or size > 0.3:
        return ""
    return f"small errors everywhere (relative RMS {size:.1e}), as from sums or operands of too low a precision"


def _place(case: _Case) -> str:
    zero = bool((case.value == 0)[case.bad].all())
    return f"{'zero in' if zero else 'wrong values:'} {case.region(case.bad)}"


_EXPLANATIONS: tuple[Callable[[_Case], str], ...] = (
    _never_written, _constant, _mistaken, _not_finite, _truncated, _other_matrix, _scaled, _transposed, _shifted,
    _missing_slices, _low_precision, _place,
)
