"""Errors of an output, block by block, and the yardstick that they are divided by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxbench.core import Task
from ptxbench.devices.cuda.verifier.arrays import Array, Arrays, Field, Machine, download
from ptxbench.devices.cuda.verifier.maps import Layout, Table, sources, tables
from ptxbench.tasks import Float64, max_denominator, rms_denominator

_WORDS = 6
"""8-byte words that are found of a block, in the order of `Found` (``compare.cu`` has the same list)."""


class Rearrangement:
    """The tables of one sample, here and on the device."""

    def __init__(self, arrays: Arrays, task: Task, sizes: Mapping[str, int], seed: int, sample: int) -> None:
        self.tables: dict[str, Table] = tables(task, sizes, seed, sample)
        self._arrays = {axis: arrays.upload(table) for axis, table in self.tables.items()}

    def fields(self, lies: Layout) -> list[Field]:
        """The ``Map`` of a tensor, as kernels take it."""
        groups, rows, columns = lies.extents
        return [*(self._arrays[axis] for axis in lies.axes), rows, columns, groups * rows * columns]

    def source_blocks(self, lies: Layout) -> tuple[NDArray[np.int64], ...]:
        """For each block of a tensor, along each axis, the block that its elements come from; for use as an index."""
        along = [
            sources(self.tables[axis])[::block] // block for axis, block in zip(lies.axes, lies.blocks, strict=True)
        ]
        return np.ix_(*along)


@dataclass(frozen=True)
class Found:
    """What a comparison found of each block, as arrays [groups, rows, columns] of blocks.

    Errors are in units of the elements' scales; ``first_bad`` is a flat index, all ones where no element is bad.
    """

    sum_squares: Float64
    largest: Float64
    bad: NDArray[np.uint64]
    first_bad: NDArray[np.uint64]
    unwritten: NDArray[np.uint64]
    not_finite: NDArray[np.uint64]


@dataclass(frozen=True)
class Subject:
    """A tensor to be compared with the truth. ``salt`` is that of the poison it held before, if any."""

    output: Array
    truth: Array
    scale: Array
    lies: Layout
    salt: int | None = None


def block_counts(lies: Layout) -> tuple[int, int, int]:
    """How many blocks there are along each axis."""
    groups, rows, columns = (-(-extent // block) for extent, block in zip(lies.extents, lies.blocks, strict=True))
    return groups, rows, columns


def block_elements(lies: Layout) -> NDArray[np.int64]:
    """Elements of each block, [groups, rows, columns]."""
    sides = [
        np.minimum(block, extent - np.arange(0, extent, block))
        for extent, block in zip(lies.extents, lies.blocks, strict=True)
    ]
    return sides[0][:, None, None] * sides[1][:, None] * sides[2]


def compare(
    arrays: Arrays, subject: Subject, rearranged: Rearrangement, bounds: Array | None = None, bad_above: float = 0.0
) -> Found:
    """Compares every element. ``bounds`` are the yardstick's largest errors of the truth's blocks (f64)."""
    groups, rows, columns = block_counts(subject.lies)
    found = arrays.empty((groups, rows, columns, _WORDS), "u64")
    arrays.machine.launch("compare_output", (columns, rows, groups), [
        subject.output, subject.truth, subject.scale, bounds, found, *rearranged.fields(subject.lies),
        subject.output.code, subject.lies.blocks[1], subject.lies.blocks[2],
        int(subject.salt is not None), subject.salt or 0, float(bad_above),
    ])
    return _parsed(arrays.machine, found)


def _parsed(machine: Machine, found: Array) -> Found:
    words = download(machine, found)
    squares, largest = (np.ascontiguousarray(words[..., i]).view(np.float64) for i in range(2))
    return Found(squares, largest, *(words[..., i] for i in range(2, _WORDS)))


@dataclass(frozen=True)
class Yardstick:
    """The denominators of one output's errors, in the truth's coordinates: overall and per block; see `tasks`.

    ``bounds`` is a device copy of ``largest``.
    """

    overall: float
    rms: Float64
    largest: Float64
    bounds: Array

    @staticmethod
    def of(arrays: Arrays, honest: Found, rounding: Found, lies: Layout) -> Yardstick:
        """From the errors of the honest algorithm and of the rounded truth."""
        rms = rms_denominator(_rms_blocks(honest, lies), _rms_blocks(rounding, lies))
        overall = rms_denominator(np.asarray(_rms(honest, lies)), np.asarray(_rms(rounding, lies)))
        largest = max_denominator(honest.largest, rounding.largest)
        return Yardstick(float(overall), rms, largest, arrays.upload(largest))

    def measured(self, found: Found, lies: Layout, rearranged: Rearrangement) -> tuple[float, Float64, Float64]:
        """(overall RMS, RMS per block, largest per block) in units of the yardstick, in the output's coordinates."""
        source = rearranged.source_blocks(lies)
        with np.errstate(invalid="ignore"):
            return (
                _rms(found, lies) / self.overall, _rms_blocks(found, lies) / self.rms[source],
                found.largest / self.largest[source],
            )


def _rms_blocks(found: Found, lies: Layout) -> Float64:
    return np.sqrt(found.sum_squares / block_elements(lies))


def _rms(found: Found, lies: Layout) -> float:
    return float(np.sqrt(found.sum_squares.sum() / block_elements(lies).sum()))
