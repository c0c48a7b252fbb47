"""Independent pieces of work in threads, whose results are taken in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_order(
    work: Callable[[T], R],
    items: Sequence[T],
    jobs: int,
    done: Callable[[R], None],
    abort: Callable[[], None] = lambda: None,
) -> None:
    """``work`` on every item, ``jobs`` at a time; ``done`` takes the results in the calling thread, in their order.

    The first exception ends it, an interrupt too: what has not begun is not done, ``abort`` is called so that what is
    running may end soon, and the exception is raised when it has ended.
    """
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in futures:
                done(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            abort()
            raise
