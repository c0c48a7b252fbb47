"""The reward of a reply: the value of the highest tier that the judge grants it.

Tiers rather than a bare speedup: a speed says nothing of a kernel that is wrong, and would make the rare fast one
outweigh everything that leads to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ptxbench.core import Candidate, Evaluator, Outcome, Target, UnsupportedError, UsageError, Verdict
from ptxbench.prompts import ExtractionOutcome, extract_kernel

TIERS = ("code", "complete", "compiles", "contract", "launches", "correct", "instructions", "half_library")
"""In rising order: code in a block; a complete file that defines `launch`; it compiles; it keeps the contract of host
code; it launches and ends; its outputs are right; the target's instructions carry the work; it reaches half of the
library's speed (only where a device times)."""

_NO_CODE = {
    ExtractionOutcome.UNFINISHED_THOUGHT, ExtractionOutcome.REFUSAL, ExtractionOutcome.PROSE, ExtractionOutcome.EMPTY
}  # fmt: skip
_REACHED = {
    Outcome.COMPILE_ERROR: "complete",
    Outcome.CONTRACT_ERROR: "compiles",
    Outcome.LAUNCH_ERROR: "contract",
    Outcome.TIMEOUT: "contract",
    Outcome.INTEGRITY_VIOLATION: "contract",
    Outcome.WRONG_RESULT: "launches",
    Outcome.INSTRUCTION_MISSING: "correct",
    Outcome.CORRECT_UNTIMED: "instructions",
    Outcome.PASSED: "instructions",
}


def check_tiers(tiers: Mapping[str, float]) -> None:
    """`UsageError` unless the tiers are known and pay more the higher they are."""
    unknown = sorted(set(tiers) - set(TIERS))
    if unknown:
        raise UsageError(f"the recipe rewards unknown tiers: {', '.join(unknown)}; there are {', '.join(TIERS)}")
    paid = [tiers[name] for name in TIERS if name in tiers]
    if not paid or paid != sorted(set(paid)) or paid[0] <= 0:
        raise UsageError("the recipe's tiers must pay more than nothing, and more the higher they are; "
                         f"from low to high they are {', '.join(TIERS)}")  # fmt: skip


def judge_reply(evaluator: Evaluator, task: str, target: Target, reply: str, origin: str) -> tuple[str, Verdict | None]:
    """The highest tier that a reply reaches (empty for none), and the verdict if there was a file to judge.

    A kernel that the simulator cannot run has compiled and kept the contract; nothing more is known of it.
    """
    found = extract_kernel(reply)
    if not found.usable:
        return ("" if found.outcome in _NO_CODE else "code"), None
    digest = hashlib.sha256(found.source.encode()).hexdigest()
    candidate = Candidate(task=task, target=target, source=found.source, digest=digest, origin=origin)
    try:
        verdict = evaluator.evaluate(candidate)
    except UnsupportedError:
        return "contract", None
    return tier_of(verdict), verdict


def tier_of(verdict: Verdict) -> str:
    """The highest tier that a verdict grants."""
    timing = verdict.timing
    if verdict.outcome.accepted and timing is not None and timing.speedup.median >= 0.5:
        return "half_library"
    return _REACHED[verdict.outcome]


def paid(tiers: Mapping[str, float], reached: str) -> float:
    """The reward: what the highest paid tier up to ``reached`` pays."""
    if not reached:
        return 0.0
    upto = TIERS[: TIERS.index(reached) + 1]
    return max((tiers[name] for name in upto if name in tiers), default=0.0)
