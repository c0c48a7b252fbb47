"""Judging kernels for a data set: several at a time, each verdict said at once, only clean ones kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

from ptxbench.adapt.data.kernels import Kernel, candidate
from ptxbench.adapt.data.rows import Dropped
from ptxbench.core import Evaluator, UnsupportedError, Verdict

T = TypeVar("T")
R = TypeVar("R")

Say = Callable[[str], None]
"""Takes one line about one finished item."""


@dataclass(frozen=True)
class GoodKernel:
    """A kernel that the judge accepted without a finding."""

    kernel: Kernel
    verdict: Verdict


def in_parallel(work: Callable[[T], R], items: Sequence[T], jobs: int, done: Callable[[R], None]) -> list[R]:
    """``work`` on every item, ``jobs`` at a time; the results in the order of ``items``.

    ``done`` is called in the calling thread as each one ends.
    The first exception ends it: what has not begun is not done, and it is raised when the running ones have ended.
    """
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures: list[Future[R]] = [pool.submit(work, item) for item in items]
        try:
            waiting = set(futures)
            while waiting:
                ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ended:
                    done(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


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
        verdict = evaluator.evaluate(candidate(kernel.task.name, kernel.target, kernel.source, kernel.name))
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
