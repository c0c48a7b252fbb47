"""Times one piece of device work: caches flushed before, events around, the host's clock as a check."""

from __future__ import annotations

import time
from collections.abc import Callable

from ptxbench.core import Record
from ptxbench.devices.cuda.driver import Driver, Handle

FLUSH_FACTOR = 4
"""Bytes written before each sample, in units of the L2's size, so that nothing of the last run stays cached."""

OCCUPIED_BYTES = 12 << 30
"""Written by `Stopwatch.occupy`: some four milliseconds at the few TB/s of HBM3."""


class Sample(Record):
    """One timed run. ``event_ms`` is the device's measure; ``host_ms`` spans the flush too and bounds it from above."""

    event_ms: float
    host_ms: float


class Stopwatch:
    """Times work on one stream."""

    def __init__(self, driver: Driver, stream: Handle) -> None:
        self._driver = driver
        self._stream = stream
        self._flush_bytes = FLUSH_FACTOR * driver.properties()["l2_bytes"]
        self._flush = driver.allocate(self._flush_bytes)
        self._begin = driver.event(timing=True)
        self._end = driver.event(timing=True)

    def sample(self, work: Callable[[], None], prepare: Callable[[], None] | None = None) -> Sample:
        """Runs ``work`` (which enqueues on the stream) once, after ``prepare``, which is not timed by the events."""
        driver = self._driver
        started = time.perf_counter()
        if prepare is not None:
            prepare()
        self._overwrite()
        driver.call("cuCtxResetPersistingL2Cache")
        # A small kernel of this context directly before the timed region: the context switch stays outside of it.
        driver.call("cuMemsetD32Async", self._flush, 1, 1, self._stream)
        driver.call("cuEventRecord", self._begin, self._stream)
        work()
        driver.call("cuEventRecord", self._end, self._stream)
        driver.call("cuEventSynchronize", self._end)
        host_ms = (time.perf_counter() - started) * 1e3
        event_ms = float(driver.call("cuEventElapsedTime", self._begin, self._end))
        return Sample(event_ms=event_ms, host_ms=host_ms)

    def occupy(self) -> None:
        """Enqueues some milliseconds of memory traffic, such as a verifier's before every sample of a race.

        After idle pauses instead, cuBLASLt took 4 and 12 % longer than in a race on the same H200
        (results/h200/judging_after_pauses.json: when it was loaded, and in races).
        """
        for _ in range(-(-OCCUPIED_BYTES // self._flush_bytes)):
            self._overwrite()

    def close(self) -> None:
        """Gives the flush buffer back."""
        self._driver.free(self._flush)

    def _overwrite(self) -> None:
        self._driver.call("cuMemsetD32Async", self._flush, 0, self._flush_bytes // 4, self._stream)
