"""Tier 3: from times taken in turns to a speedup with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ptxbench.core import LibraryTime, Task, TimingReport
from ptxbench.stats import clustered_ratio_interval
from ptxbench.tasks import flops, input_bytes, output_bytes

MEASURED_MS = 90.0
BLOCKS = (20, 60)
"""Least and most blocks: an interval needs some, and a long task must not hold the device."""

Pairs = Sequence[tuple[float, float]]
"""Two samples per block, in milliseconds."""
Raced = tuple[Pairs, Pairs]
"""The blocks of the candidate and of the baseline in one place of memory, as many of either."""


@dataclass(frozen=True)
class Ceilings:
    """What the device was measured to reach: dense bf16 products in FLOP/s, and copies in bytes (read and written) per
    second.
    """

    flops_per_second: float
    bytes_per_second: float

    def floor_ms(self, task: Task, sizes: Mapping[str, int]) -> float:
        """The time of work that runs at the ceiling and moves every input and output once."""
        given = dict(sizes)
        arithmetic = flops(task, given) / self.flops_per_second
        memory = (input_bytes(task, given) + output_bytes(task, given)) / self.bytes_per_second
        return 1e3 * max(arithmetic, memory)


def judge_timing(
    task: Task,
    sizes: Mapping[str, int],
    *,
    races: Sequence[Raced],
    libraries: Sequence[tuple[str, str, float]],
    absent: Mapping[str, str],
    ceilings: Ceilings,
    conditions: Mapping[str, Any],
) -> TimingReport:
    """The report on times that candidate and baseline took in turns, block by block, in two places or more.

    ``libraries`` are (name, version, ms) of all that were timed alone, the baseline first; for the baseline the median
    of its turns is reported instead. A place's speedup is the median over blocks of baseline time over candidate time
    (means of a block's two samples); what is reported is the mean over places (`clustered_ratio_interval`), whose 95 %
    interval holds what another placement would change. ``ms`` is the candidate's median sample. A library that was
    faster here than products alone raises the ceiling: clocks under a power limit depend on what runs.
    """
    speedup = clustered_ratio_interval([
        (np.mean(baseline, axis=1), np.mean(candidate, axis=1)) for candidate, baseline in races
    ])
    own, other = (np.concatenate([place[side] for place in races]) for side in (0, 1))
    ms = float(np.median(own))
    work = flops(task, dict(sizes))
    (best, version, _), *others = libraries
    timed = [(best, version, float(np.median(other))), *others]
    reached = max(1e3 * work / time for _, _, time in timed)
    ceilings = replace(ceilings, flops_per_second=max(ceilings.flops_per_second, reached))
    return TimingReport(
        speedup=speedup,
        baseline=best,
        ms=ms,
        tflops=work / ms / 1e9,
        speed_of_light=ceilings.floor_ms(task, sizes) / ms,
        libraries=tuple(
            LibraryTime(name=name, version=version, ms=time, tflops=work / time / 1e9)
            for name, version, time in timed
        ),
        absent=dict(absent),
        samples=int(own.size),
        conditions=dict(conditions),
    )


def blocks_for(baseline_ms: float) -> int:
    """How many blocks of four samples to take: about `MEASURED_MS` of the baseline's work, within `BLOCKS`.

    It follows from the baseline's time alone, never from the candidate's behaviour.
    """
    return int(np.clip(round(MEASURED_MS / (2 * baseline_ms)), *BLOCKS))
