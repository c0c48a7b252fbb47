"""Independent pieces of work in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(
    work: Callable[[T], R],
    items: Sequence[T],
    jobs: int,
    done: Callable[[R], None],
    *,
    ordered: bool = False,
    abort: Callable[[], None] = lambda: None,
) -> list[R]:
    """``work`` on every item, ``jobs`` at a time; the results in the order of ``items``.

    ``done`` takes each result in the calling thread: as it ends, or with ``ordered`` in the order of ``items``.
    The first exception ends it, an interrupt too: what has not begun is not done, ``abort`` is called so that what is
    running may end soon, and the exception is raised when it has ended.
    """
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in futures if ordered else as_completed(futures):
                done(future.result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            abort()
            raise
        return [future.result() for future in futures]
