"""The order of what a timed sample enqueues, on a driver that only takes notes."""

from __future__ import annotations

from typing import Any, cast

from ptxbench.devices.cuda.driver import Driver
from ptxbench.devices.cuda.timing import FLUSH_FACTOR, OCCUPIED_BYTES, Stopwatch

L2_BYTES = 60 << 20
FLUSHED = FLUSH_FACTOR * L2_BYTES // 4


class Notes:
    """Stands for the driver: no device, but its calls in order. An event's name is its number."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.events = 0

    def properties(self) -> dict[str, int]:
        return {"l2_bytes": L2_BYTES}

    def allocate(self, size: int) -> str:
        assert size == FLUSH_FACTOR * L2_BYTES
        return "flush"

    def event(self, *, timing: bool) -> int:
        assert timing
        self.events += 1
        return self.events

    def call(self, name: str, *arguments: Any) -> float:
        self.calls.append((name, *arguments))
        return 0.25

    def free(self, what: str) -> None:
        self.calls.append(("free", what))


def test_caches_are_flushed_before_the_timed_region_and_preparation_comes_before_that() -> None:
    notes = Notes()
    stopwatch = Stopwatch(cast("Driver", notes), cast("Any", "stream"))
    sample = stopwatch.sample(lambda: notes.calls.append(("work",)), lambda: notes.calls.append(("prepare",)))
    assert sample.event_ms == 0.25
    assert notes.calls == [
        ("prepare",),
        ("cuMemsetD32Async", "flush", 0, FLUSHED, "stream"),
        ("cuCtxResetPersistingL2Cache",),
        ("cuMemsetD32Async", "flush", 1, 1, "stream"),
        ("cuEventRecord", 1, "stream"),
        ("work",),
        ("cuEventRecord", 2, "stream"),
        ("cuEventSynchronize", 2),
        ("cuEventElapsedTime", 1, 2),
    ]
    stopwatch.close()
    assert notes.calls[-1] == ("free", "flush")


def test_a_device_is_occupied_with_that_many_bytes_within_the_flush_buffer() -> None:
    notes = Notes()
    Stopwatch(cast("Driver", notes), cast("Any", "stream")).occupy()
    assert set(notes.calls) == {("cuMemsetD32Async", "flush", 0, FLUSHED, "stream")}
    assert OCCUPIED_BYTES <= len(notes.calls) * FLUSH_FACTOR * L2_BYTES < OCCUPIED_BYTES + FLUSH_FACTOR * L2_BYTES
