"""A lock that tells for how long it was held."""

from __future__ import annotations

import threading
import time
from types import TracebackType


class Turnstile:
    """A reentrant lock. ``held_s`` sums the seconds for which anybody has held it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._since = 0.0
        self.held_s = 0.0

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
