"""A lock that tells for how long it was held, and takes orders for when it is free."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType


class Turnstile:
    """A reentrant lock. ``held_s`` sums the seconds for which anybody has been between enter and exit."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._since = 0.0
        self._orders: deque[Callable[[], None]] = deque()
        self.held_s = 0.0

    def when_free(self, work: Callable[[], None]) -> None:
        """Has ``work`` done while nobody holds the lock: now if it is free, else by the thread that frees it."""
        self._orders.append(work)
        self._tidy()

    def __enter__(self) -> Turnstile:
        self._lock.acquire()
        if self._depth == 0:
            self._since = time.perf_counter()
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.held_s += time.perf_counter() - self._since
        self._lock.release()
        self._tidy()

    def _tidy(self) -> None:
        """Whoever cannot have the lock here may leave: its holder comes here after it."""
        while self._orders and self._lock.acquire(blocking=False):
            try:
                if self._depth or not self._orders:
                    return
                self._orders.popleft()()
            finally:
                self._lock.release()
