"""Two processes take turns on one device, so that clocks and temperature drift over both alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxbench.core import DeviceError, Interval, Record
from ptxbench.devices.cuda.process import ExecutorProcess
from ptxbench.devices.cuda.timing import Sample
from ptxbench.stats import paired_ratio_interval

TURN_SECONDS = 30.0


class Turns(Record):
    """Samples in milliseconds: two of each side per block, measured in the order A B B A and B A A B by turns."""

    a: tuple[tuple[float, float], ...]
    b: tuple[tuple[float, float], ...]


def timer_of(executor: ExecutorProcess, *, graph: bool = True) -> Callable[[], Sample]:
    """Takes one sample of what an executor has loaded; a fault there is a `DeviceError` here."""

    def sample() -> Sample:
        reply = executor.request("time", TURN_SECONDS, samples=1, graph=graph)
        if reply.fault is not None:
            raise DeviceError(f"A timed run ended with a fault: {reply.fault.message}")
        entries: list[Any] = reply.header["samples"]
        return Sample.model_validate(entries[0])

    return sample


def take_turns(a: Callable[[], Sample], b: Callable[[], Sample], blocks: int, *, warm_up: int = 3) -> Turns:
    """Times two sides ``blocks`` times in the order A B B A, B A A B, ...; only one has work at any time."""
    for _ in range(warm_up):
        a()
        b()
    samples_a: list[tuple[float, float]] = []
    samples_b: list[tuple[float, float]] = []
    for block in range(blocks):
        outer, inner = (a, b) if block % 2 == 0 else (b, a)
        first = outer().event_ms
        middle = (inner().event_ms, inner().event_ms)
        around = (first, outer().event_ms)
        samples_a.append(around if outer is a else middle)
        samples_b.append(middle if outer is a else around)
    return Turns(a=tuple(samples_a), b=tuple(samples_b))


def paired_ratio(turns: Turns, seed: int = 0) -> Interval:
    """Median over blocks of time A / time B (means of a block's two samples) with its 95 % bootstrap interval; the
    resampling is drawn from ``seed``, so that equal samples give equal intervals."""
    side_a, side_b = np.asarray(turns.a).mean(axis=1), np.asarray(turns.b).mean(axis=1)
    return paired_ratio_interval(side_a, side_b, np.random.default_rng(seed))
