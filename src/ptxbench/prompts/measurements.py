"""Tiers 2 and 3 in words: what instructions did the work, and how fast it was."""

from __future__ import annotations

from collections.abc import Iterator

from ptxbench.core import FAMILIES, FamilyReport, Outcome, Verdict, matrix_family
from ptxbench.prompts.disclosure import Disclosure

_ROLES = {family.name: family.role for family in FAMILIES}

# From which speedup on a piece of advice is the next one, in falling order.
_ADVICE = (
    (1.0, "It is as fast as the library. Try the order of tiles, the tail, and the epilogue's overlap."),
    (0.85, "Close. Look at the overlap of epilogue and main loop, persistence, the order of tiles in L2, the tail."),
    (0.6, "Larger tiles, stores through shared memory and TMA, one group of products always in flight."),
    (0.0, "The structure is the limit: specialised warps, a ring of stages with copies running ahead, larger tiles."),
)


def instruction_lines(verdict: Verdict, disclosure: Disclosure) -> Iterator[str]:
    """The four numbers of the matrix family and of every other that was executed, then the other two gates."""
    report = verdict.instructions
    if not report.families:
        return
    shown = disclosure.shows(report.sizes)
    matrix = matrix_family(verdict.target).name
    yield f"counted at {disclosure.at(report.sizes)}"
    for name, family in sorted(report.families.items(), key=lambda item: item[0] != matrix):
        if name == matrix or family.executed:
            yield f"{name}: {_counts(family, shown=shown)}{_share(name, family, shown=shown)}"
    if report.other_math_share is not None and shown:
        yield f"other arithmetic: {report.other_math_share:.1%} of the task's FLOPs (at most 10% is allowed)"
    if report.perturbation_followed is not None and verdict.outcome is not Outcome.WRONG_RESULT:
        yield f"{report.perturbation_followed:.0%} of the output follows the results of {matrix} (95% is needed)"


def timing_lines(verdict: Verdict) -> Iterator[str]:
    """Speedup, time and share of the device's speed, and what that suggests."""
    timing = verdict.timing
    if timing is None:
        return
    speedup = timing.speedup
    yield (
        f"{speedup.median:.3f} times the speed of {timing.baseline} (95 % interval {speedup.low:.3f} to "
        f"{speedup.high:.3f}) at the timed size"
    )
    yield f"{timing.ms:.4g} ms, {timing.tflops:.0f} TFLOP/s, {timing.speed_of_light:.0%} of what the device can do"
    yield next(words for least, words in _ADVICE if speedup.median >= least)


def _counts(family: FamilyReport, *, shown: bool) -> str:
    executed = f"executed {family.executed}" if shown else "executed" if family.executed else "not executed"
    return f"claimed {family.claimed}, compiled {family.compiled}, {executed}"


def _share(name: str, family: FamilyReport, *, shown: bool) -> str:
    """What the family carried; at hidden sizes only whether that is enough, because a kernel can choose its share."""
    if family.carried is None:
        return ""
    if _ROLES.get(name) == "bulk_copy":
        tensors = "outputs" if name == "tma_store" else "inputs"
        return f", moved {family.carried:.2f} times the bytes of the {tensors}" if shown else ""
    if not shown:
        return ", carried enough of the task's FLOPs" if family.carried >= 0.95 else ", carried less than 95% of them"
    return f", carried {family.carried:.1%} of the task's FLOPs on operands of its type (95% is needed)"
