"""Tier 1 where the comparison itself was made on the device: thresholds on a verifier's statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ptxbench.core import Argument, OutputReport
from ptxbench.judge.regions import describe_indices
from ptxbench.judge.yardstick import MAX_FACTOR, RMS_FACTOR
from ptxbench.tasks import Float64, Mask

_LEADING = {"B": "batch", "H": "head", "L": "batch"}
_EDGES = ("rows", "columns")
_BY_CHANCE = 1e-3
"""Share of elements that may hold by chance what their poison was."""


@dataclass(frozen=True)
class BlockStatistics:
    """One output against the truth in the units of `Measurement`: 1 is an honest kernel's error.

    ``rms`` is overall, ``worst_rms`` and ``largest`` the maxima over blocks (infinite where an element is not finite);
    ``bad`` counts elements beyond `MAX_FACTOR`, ``unwritten`` those that still hold the poison. ``rms_blocks`` and
    ``max_blocks`` have one entry per block of shape ``block``, in the output's axis order; only wrong outputs need
    them.
    """

    elements: int
    rms: float
    worst_rms: float
    largest: float
    bad: int
    unwritten: int
    not_finite: int
    first_bad: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    rms_blocks: Float64 | None = None
    max_blocks: Float64 | None = None

    @property
    def ok(self) -> bool:
        """Whether the output is within the tolerance, overall and in every block."""
        within = self.rms <= RMS_FACTOR and self.worst_rms <= RMS_FACTOR and self.largest <= MAX_FACTOR
        return within and not (self.bad or self.not_finite)


def judge_statistics(argument: Argument, found: BlockStatistics) -> OutputReport:
    """The report on one output. Where it is wrong its pattern says which blocks, as far as the statistics tell."""
    return OutputReport(
        ok=found.ok,
        rms_ratio=_finite(found.rms),
        max_ratio=_finite(found.largest),
        worst_block_ratio=_finite(found.worst_rms),
        bad_share=found.bad / found.elements,
        first_bad=() if found.ok else found.first_bad,
        pattern="" if found.ok else _pattern(argument, found),
    )


def worst_of(calls: Sequence[Mapping[str, OutputReport]]) -> dict[str, OutputReport]:
    """One report per output for several calls of the same work: the first wrong one, else that of the largest error."""
    worst: dict[str, OutputReport] = {}
    for name in calls[0]:
        own = [reports[name] for reports in calls]
        wrong = next((report for report in own if not report.ok), None)
        worst[name] = wrong or max(own, key=lambda report: report.worst_block_ratio or 0.0)
    return worst


def _pattern(argument: Argument, found: BlockStatistics) -> str:
    if found.unwritten == found.elements:
        return "never written: everywhere"
    lead = "NaN or infinity" if found.not_finite else "wrong values"
    share = found.unwritten / found.elements
    lost = f" ({share:.1%} of the elements never written)" if share >= _BY_CHANCE else ""
    return f"{lead}: {_place(argument, found)}{lost}"


def _place(argument: Argument, found: BlockStatistics) -> str:
    if found.rms_blocks is None or found.max_blocks is None:
        return f"{found.bad / found.elements:.2%} of the elements"
    bad = ~((found.rms_blocks <= RMS_FACTOR) & (found.max_blocks <= MAX_FACTOR))
    if bad.all() or not bad.any():  # none: only the overall error is too large
        return "everywhere"
    along = [np.logical_or.reduce(bad, axis=_all_but(axis, bad)) for axis in range(bad.ndim)]
    if int(bad.sum()) != math.prod(int(hit.sum()) for hit in along):
        return f"in {bad.sum()} of {bad.size} blocks of {'x'.join(str(n) for n in found.block if n > 1)}"
    names = _axes(argument)
    told = [
        f"{name} {describe_indices(np.repeat(hit, extent))}"
        for name, hit, extent in zip(names, along, found.block, strict=True)
        if not hit.all()
    ]
    return ", ".join(told)


def _all_but(axis: int, mask: Mask) -> tuple[int, ...]:
    return tuple(other for other in range(mask.ndim) if other != axis)


def _axes(argument: Argument) -> tuple[str, ...]:
    """A word for every axis: ``batch``, ``head``, ``rows``, ``columns``."""
    edges = iter(_EDGES)
    return tuple(_LEADING.get(size) or next(edges) for size in argument.shape)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
