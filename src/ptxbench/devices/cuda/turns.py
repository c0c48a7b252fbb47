"""Two processes take turns on one device, so that clocks and temperature drift over both alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from ptxbench.core import DeviceError, Fault, Interval, Record
from ptxbench.devices.cuda.conditions import Condition
from ptxbench.devices.cuda.process import ExecutorProcess, stray_write
from ptxbench.devices.cuda.timing import Sample
from ptxbench.stats import paired_ratio_interval

TURN_SECONDS = 30.0

WARM_UP = 3
REPEATS = 3
COOLING_SECONDS = 5.0
"""Blocks taken while the device was slowed down are taken again, at most so many times, after a pause."""

Timer = Callable[[], Sample]
Pair = tuple[float, float]


class Turns(Record):
    """Samples in milliseconds: two of each side per block, measured in the order A B B A and B A A B by turns."""

    a: tuple[Pair, ...]
    b: tuple[Pair, ...]


class Faulted(Exception):
    """A timed run ended with a fault of the candidate."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


def timer_of(executor: ExecutorProcess, *, graph: bool = True, **work: Any) -> Callable[[], Sample]:
    """Takes one sample of what an executor has loaded; ``work`` goes into the request (a baseline's ``library``).

    `Faulted` if the candidate faults or writes outside its buffers; `DeviceError` if the events claim more time than
    the host's clock saw.
    """

    def sample() -> Sample:
        reply = executor.request("time", TURN_SECONDS, samples=1, graph=graph, **work)
        fault = reply.fault or stray_write(reply.header.get("stray_writes", ()))
        if fault is not None:
            raise Faulted(fault)
        entries: list[Any] = reply.header["samples"]
        taken = Sample.model_validate(entries[0])
        if taken.event_ms > taken.host_ms:
            raise DeviceError(
                f"The device's events tell {taken.event_ms:.4g} ms where the host's clock saw {taken.host_ms:.4g} ms."
            )
        return taken

    return sample


def take_block(a: Timer, b: Timer, block: int) -> tuple[Pair, Pair]:
    """Four samples, A B B A in even blocks and B A A B in odd ones; the event times of A and of B in milliseconds."""
    outer, inner = (a, b) if block % 2 == 0 else (b, a)
    first = outer().event_ms
    middle = (inner().event_ms, inner().event_ms)
    around = (first, outer().event_ms)
    return (around, middle) if outer is a else (middle, around)


def take_turns(a: Timer, b: Timer, blocks: int, *, warm_up: int = WARM_UP) -> Turns:
    """Times two sides ``blocks`` times, so that drift falls on both alike; only one has work at any time."""
    for _ in range(warm_up):
        a()
        b()
    return _turns([take_block(a, b, block) for block in range(blocks)])


def take_valid_blocks(
    a: Timer,
    b: Timer,
    blocks: int,
    read: Callable[[], Condition],
    pause: Callable[[float], None] = time.sleep,
    *,
    seconds: float = math.inf,
) -> tuple[Turns, list[Condition]]:
    """``blocks`` blocks of A and B that no slowdown touched, and the device's condition after every block taken.

    Touched blocks are taken again in at most `REPEATS` rounds, each after a pause. `DeviceError` if fewer than half
    are left then: the device cannot be measured on now. After ``seconds`` it ends with the blocks that there are, at
    least one.
    """
    began = time.perf_counter()
    for _ in range(WARM_UP):
        a()
        b()
    valid: list[tuple[Pair, Pair]] = []
    seen: list[Condition] = []
    taken = count()
    for round_ in range(1 + REPEATS):
        if round_:
            pause(COOLING_SECONDS)
        for _ in range(blocks - len(valid)):
            block = take_block(a, b, next(taken))
            seen.append(read())
            if seen[-1].valid:
                valid.append(block)
            if time.perf_counter() - began > seconds and valid:
                return _turns(valid), seen
        if len(valid) == blocks:
            break
    if 2 * len(valid) < blocks:
        raise DeviceError(
            f"The device slowed itself down ({', '.join(seen[-1].reasons)}) during {len(seen) - len(valid)} of "
            f"{len(seen)} blocks; times would tell of its cooling. Try again later."
        )
    return _turns(valid), seen


def _turns(blocks: Sequence[tuple[Pair, Pair]]) -> Turns:
    return Turns(a=tuple(pair for pair, _ in blocks), b=tuple(pair for _, pair in blocks))


def paired_ratio(turns: Turns, seed: int = 0) -> Interval:
    """Median over blocks of time A / time B (means of a block's two samples) with its 95 % bootstrap interval; the
    resampling is drawn from ``seed``, so that equal samples give equal intervals."""
    side_a, side_b = np.asarray(turns.a).mean(axis=1), np.asarray(turns.b).mean(axis=1)
    return paired_ratio_interval(side_a, side_b, np.random.default_rng(seed))
