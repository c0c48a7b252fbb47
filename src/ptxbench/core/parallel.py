"""Independent pieces of work in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


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
