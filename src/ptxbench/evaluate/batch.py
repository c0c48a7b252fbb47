"""Judging several candidates at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from ptxbench.core import Candidate, Evaluator, Verdict


def evaluate_all(
    evaluator: Evaluator,
    candidates: Sequence[Candidate],
    *,
    jobs: int,
    on_verdict: Callable[[Candidate, Verdict], None],
) -> list[Verdict]:
    """Judges every candidate with ``jobs`` at a time and returns the verdicts in the order of ``candidates``.

    ``on_verdict`` is called in the calling thread as each one ends. The first infrastructure error ends the batch: what
    has not begun is not judged, and the error is raised when the running ones have ended.
    """
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures: dict[Future[Verdict], Candidate] = {}
        for candidate in candidates:
            futures[pool.submit(evaluator.evaluate, candidate)] = candidate
        try:
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    on_verdict(futures[future], future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]
