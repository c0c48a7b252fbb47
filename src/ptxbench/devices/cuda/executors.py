"""Candidate executors at hand: warm ones in which nothing has run, and those that hold a candidate."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from ptxbench.core import DeviceError
from ptxbench.devices.cuda.process import ExecutorProcess

Start = Callable[[], ExecutorProcess]


class Executors:
    """Starts ``spares`` processes ahead, because a start takes longer than most runs. Safe for several threads.

    A process serves one candidate at most: it is kept under a key, or given away for good.
    """

    def __init__(self, spares: int, start: Start = ExecutorProcess) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._starters = ThreadPoolExecutor(max(1, spares), "executor-start")
        self._started: list[ExecutorProcess] = []
        self._kept: dict[str, ExecutorProcess] = {}
        self._closed = False
        self._ready: deque[Future[ExecutorProcess]] = deque(self._begin() for _ in range(spares))

    def fresh(self) -> ExecutorProcess:
        """A process in which nothing has run yet; the caller closes it."""
        with self._lock:
            if self._closed:
                raise DeviceError("The device was closed; open another one.")
            self._ready.append(self._begin())
            ready = self._ready.popleft()
        return ready.result()

    def of(self, key: str) -> ExecutorProcess:
        """The process kept under ``key`` if it still lives, else a fresh one, which is then kept."""
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept.alive:
            return kept
        self.dismiss(key)
        process = self.fresh()
        with self._lock:
            self._kept[key] = process
        return process

    def dismiss(self, key: str) -> None:
        """Ends the process kept under ``key``, if there is one."""
        with self._lock:
            kept = self._kept.pop(key, None)
        if kept is not None:
            kept.close()

    def close(self) -> None:
        """Ends every process that was ever started here; threads that talk to one get a `DeviceError`."""
        with self._lock:
            self._closed = True
        self._starters.shutdown(wait=True, cancel_futures=True)
        for process in self._started:
            process.stop()

    def _begin(self) -> Future[ExecutorProcess]:
        return self._starters.submit(self._run_start)

    def _run_start(self) -> ExecutorProcess:
        process = self._start()
        with self._lock:
            self._started = [one for one in self._started if one.alive]
            self._started.append(process)
        return process
