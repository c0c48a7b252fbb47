"""The gates of tier 2, in order, with the sentence that each failure deserves."""

from __future__ import annotations

from ptxbench.core import InstructionReport, Outcome, Rejection, Target, matrix_family
from ptxbench.judge.instructions import CARRIED_LOWER, FOLLOWED_LOWER, OTHER_MATH_UPPER


def instruction_gate(report: InstructionReport, target: Target) -> Rejection | None:
    """Why the target's matrix instruction did not carry the work, or None if it did."""
    name, followed = matrix_family(target).name, report.perturbation_followed
    rejection = _counts_gate(report, name)
    if rejection is not None and report.sizes:
        return rejection.at(report.sizes)
    if rejection is None and followed is not None and followed < FOLLOWED_LOWER:
        return _missing(
            f"Only {followed:.1%} of the output follows the results of {name}; {FOLLOWED_LOWER:.0%} is needed.",
            f"The results of {name} must reach the outputs.",
        )
    return rejection


def _counts_gate(report: InstructionReport, name: str) -> Rejection | None:
    family = report.families[name]
    other = report.other_math_share or 0.0
    carried = family.carried or 0.0
    if family.compiled == 0:
        claimed = family.claimed > 0
        return _missing(
            f"The machine code has no {name} instruction" + (", although the source has." if claimed else "."),
            "ptxas deletes matrix instructions whose accumulators are never read; use their results." if claimed
            else f"Compute the products with {name} through inline PTX.",
        )
    if family.executed == 0:
        return _missing(f"{name} is in the machine code but was never executed.", "Remove what skips it.")
    if carried < CARRIED_LOWER:
        return _missing(
            f"{name} carried {carried:.1%} of the task's work; at least {CARRIED_LOWER:.0%} is needed.",
            "Move the remaining products to it, and use the operand type of the task.",
        )
    if other > OTHER_MATH_UPPER:
        return _missing(
            f"Other arithmetic amounts to {other:.1%} of the task's work; at most {OTHER_MATH_UPPER:.0%} is allowed.",
            f"Products must come from {name} on the task's operand type, not from scalar, packed, integer or mma.sync "
            "arithmetic beside it.",
        )
    return None


def _missing(reason: str, advice: str) -> Rejection:
    return Rejection(outcome=Outcome.INSTRUCTION_MISSING, reason=reason, advice=advice)
