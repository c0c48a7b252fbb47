"""What the verifier tells its parent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.core import Record
from ptxbench.tasks import Float64

BLOCK_ARRAYS = {"rms_blocks": "<f8", "max_blocks": "<f8", "bad_blocks": "<i8"}
"""The block arrays of `OutputStatistics` and their element types, in the order in which they travel."""


class SharedBuffer(Record):
    """A buffer of the verifier that another process may map: 64-byte IPC handle (hexadecimal) of its allocation, and
    where in it the buffer's ``bytes`` begin. ``handle`` and ``offset`` are what an executor's ``load`` calls an import.
    """

    handle: str
    offset: int
    bytes: int


class Made(Record):
    """A base set: its number, and the seconds that inputs, truth, honest algorithm and noise took, by stage."""

    base: int
    seconds: dict[str, float]


@dataclass(frozen=True)
class OutputStatistics:
    """One output against the truth, in the units of `judge.Measurement`: 1 is an honest kernel's error.

    ``rms`` is overall, ``worst_rms_block`` and ``max`` the largest over blocks; infinite where an element is not
    finite. ``bad`` counts elements whose error exceeds the factor given to `Verifier.check`, ``first_bad`` is the index
    of the first of them (row-major; empty if there is none). ``unwritten`` counts bad elements that still hold what
    `Verifier.stage` put there, ``not_finite`` all that are NaN or infinite. ``worst_block`` is the block of
    ``worst_rms_block``. Block arrays are [matrices, row blocks, column blocks] in the output's own coordinates:
    matrices are batch times head, and an axis that the output lacks has one entry; a block's extents are those of
    `Operation.blocks`. They are None unless asked for.
    """

    rms: float
    worst_rms_block: float
    max: float
    elements: int
    bad: int
    first_bad: tuple[int, ...]
    unwritten: int
    not_finite: int
    worst_block: tuple[int, ...]
    rms_blocks: Float64 | None = None
    max_blocks: Float64 | None = None
    bad_blocks: NDArray[np.int64] | None = None

    @property
    def bad_share(self) -> float:
        """The share of bad elements."""
        return self.bad / self.elements


@dataclass(frozen=True)
class Check:
    """What became of the shared buffers since `Verifier.stage`.

    ``changed_inputs`` and ``stray_writes`` name inputs that differ from what was staged, and buffers whose guard zones
    were written to. ``seconds`` is the time on the device, by stage.
    """

    outputs: dict[str, OutputStatistics]
    changed_inputs: tuple[str, ...]
    stray_writes: tuple[str, ...]
    seconds: dict[str, float] = field(default_factory=dict[str, float])


def statistics_from(entry: dict[str, Any], blocks: dict[str, Any]) -> OutputStatistics:
    """An output's statistics from a reply's header entry and its block arrays."""
    scalars = dict(entry)
    scalars["first_bad"] = tuple(scalars["first_bad"])
    scalars["worst_block"] = tuple(scalars["worst_block"])
    return OutputStatistics(**scalars, **blocks)
