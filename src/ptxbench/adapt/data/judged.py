"""Judging kernels for a data set: several at a time, each verdict said at once, only clean ones kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ptxbench.adapt.data.kernels import Kernel
from ptxbench.adapt.data.rows import Dropped
from ptxbench.core import Evaluator, UnsupportedError, Verdict, in_parallel, make_candidate

Say = Callable[[str], None]
"""Takes one line about one finished item."""


@dataclass(frozen=True)
class GoodKernel:
    """A kernel that the judge accepted without a finding."""

    kernel: Kernel
    verdict: Verdict


def good_kernels(
    evaluator: Evaluator, kernels: Sequence[Kernel], *, jobs: int, speed_floor: float, say: Say
) -> tuple[list[GoodKernel], list[Dropped]]:
    """Judges kernels and keeps those that are accepted, have no finding, and are not timed below ``speed_floor``."""

    def done(result: GoodKernel | Dropped) -> None:
        if isinstance(result, Dropped):
            say(f"{result.gate:20} {result.name}: {result.detail}")
        else:
            say(f"{result.verdict.outcome.value:20} {result.kernel.name}")

    results = in_parallel(lambda kernel: judge_good(evaluator, kernel, speed_floor), kernels, jobs, done)
    good = [result for result in results if isinstance(result, GoodKernel)]
    return good, [result for result in results if isinstance(result, Dropped)]


def judge_good(evaluator: Evaluator, kernel: Kernel, speed_floor: float) -> GoodKernel | Dropped:
    """One kernel, or why it is not good enough to learn from."""
    try:
        verdict = evaluator.evaluate(
            make_candidate(kernel.source, task=kernel.task.name, target=kernel.target, origin=kernel.name)
        )
    except UnsupportedError as error:
        return Dropped(name=kernel.name, gate="no_verdict", detail=str(error))
    if not verdict.outcome.accepted:
        return Dropped(name=kernel.name, gate="refused", detail=f"{verdict.outcome.value}: {verdict.reason}")
    if verdict.hazards:
        return Dropped(name=kernel.name, gate="hazard", detail=verdict.hazards[0].message)
    if verdict.timing is not None and verdict.timing.speedup.median < speed_floor:
        speed = verdict.timing.speedup.median
        return Dropped(name=kernel.name, gate="too_slow", detail=f"{speed:.3f} times the library's speed")
    return GoodKernel(kernel, verdict)
