"""The buffers that executors map: guarded, filled with fresh inputs, poisoned, and judged afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.core import Argument, Task
from ptxbench.devices.cuda.memory import GUARD_BYTES, GUARD_WORD
from ptxbench.devices.cuda.verifier.arrays import Array, Arrays, Machine, download, over
from ptxbench.devices.cuda.verifier.base import BaseSet
from ptxbench.devices.cuda.verifier.maps import Layout, layout, signs, sources
from ptxbench.devices.cuda.verifier.records import OutputStatistics
from ptxbench.devices.cuda.verifier.statistics import Found, Rearrangement, Subject, compare

_NONE = 2**64 - 1


@dataclass(frozen=True)
class Buffer:
    """One argument's memory, from ``start`` to ``end``: a guard zone, the tensor, a guard zone.

    It is an allocation that shares no memory with others, because an IPC handle opens all of that; and no byte of it is
    left unguarded, so that nothing can be kept there from one run to the next.
    """

    argument: Argument
    lies: Layout
    start: int
    end: int
    array: Array

    @property
    def bytes(self) -> int:
        """The tensor's size."""
        return self.array.count * self.array.itemsize

    @property
    def guards(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(address, bytes) of the zones before and behind. The one behind begins at the first whole word."""
        begin = self.array.address + -(-self.bytes // 4) * 4
        return (self.start, GUARD_BYTES), (begin, self.end - begin)


@dataclass(frozen=True)
class _Staged:
    base: BaseSet
    rearranged: Rearrangement
    arrays: Arrays
    salts: dict[str, int]


class SharedBuffers:
    """Every input and output of a task at some sizes.

    ``skip`` allocation granules are left out before each buffer, so that several of these differ in how their buffers
    lie to each other.
    """

    def __init__(self, machine: Machine, task: Task, sizes: Mapping[str, int], skip: int = 0) -> None:
        self.task, self.sizes = task, dict(sizes)
        self._machine = machine
        self._skip = skip
        self._skipped: list[int] = []
        self.buffers = {argument.name: self._allocate(argument) for argument in task.arguments}
        self._staged: _Staged | None = None

    def _allocate(self, argument: Argument) -> Buffer:
        count = argument.nbytes(self.sizes)
        granule = self._machine.granule
        whole = -(-(2 * GUARD_BYTES + count) // granule) * granule
        if self._skip:
            self._skipped.append(self._machine.allocate(self._skip * granule))
        start = self._machine.allocate(whole)
        array = Array(start + GUARD_BYTES, argument.dims(self.sizes), argument.dtype)
        return Buffer(argument, layout(self.task, argument, self.sizes), start, start + whole, array)

    def _of_role(self, role: str) -> list[Buffer]:
        return [buffer for buffer in self.buffers.values() if buffer.argument.role == role]

    def stage(self, base: BaseSet, sample: int) -> None:
        """Puts fresh inputs, poison and guards in place; returns before they are there (see `Machine.synchronise`)."""
        self._forget()
        arrays = Arrays(self._machine)
        rearranged = Rearrangement(arrays, self.task, self.sizes, base.seed, sample)
        for buffer in self._of_role("input"):
            self._over_inputs("write_inputs", buffer, base, rearranged, None)
        salts = {buffer.argument.name: sample * buffer.array.count for buffer in self._of_role("output")}
        for buffer in self._of_role("output"):
            count = buffer.array.count
            self._machine.launch(
                "poison_output", over(count), [buffer.array, buffer.array.code, count, salts[buffer.argument.name]]
            )
        for buffer in self.buffers.values():
            for address, count in buffer.guards:
                self._machine.fill(address, GUARD_WORD, count)
        self._staged = _Staged(base, rearranged, arrays, salts)

    def _over_inputs(
        self, kernel: str, buffer: Buffer, base: BaseSet, rearranged: Rearrangement, changed: Array | None
    ) -> None:
        source = base.inputs[buffer.argument.name]
        self._machine.launch(kernel, over(buffer.array.count), [
            buffer.array, source, *rearranged.fields(buffer.lies), changed, buffer.array.itemsize,
        ])

    @property
    def _current(self) -> _Staged:
        if self._staged is None:
            raise ValueError("nothing was staged in these buffers")
        return self._staged

    def changed_inputs(self) -> tuple[str, ...]:
        """Names of inputs that differ from what was staged, by a comparison of every bit."""
        staged, inputs = self._current, self._of_role("input")
        with Arrays(self._machine) as scratch:
            changed = scratch.upload(np.zeros(len(inputs), np.uint64))
            for index, buffer in enumerate(inputs):
                self._over_inputs(
                    "compare_inputs", buffer, staged.base, staged.rearranged, changed.part(index, 1)
                )
            counts = download(self._machine, changed)
        return tuple(buffer.argument.name for buffer, count in zip(inputs, counts, strict=True) if count)

    def stray_writes(self) -> tuple[str, ...]:
        """Names of buffers whose guard zones were written to."""
        buffers = list(self.buffers.values())
        with Arrays(self._machine) as scratch:
            changed = scratch.upload(np.zeros(len(buffers), np.uint64))
            for index, buffer in enumerate(buffers):
                for address, count in buffer.guards:
                    zone = Array(address, (count // 4,), "u32")
                    self._machine.launch(
                        "compare_words", over(zone.count), [zone, changed.part(index, 1), zone.count, GUARD_WORD]
                    )
            counts = download(self._machine, changed)
        return tuple(buffer.argument.name for buffer, count in zip(buffers, counts, strict=True) if count)

    def statistics(self, bad_above: float) -> dict[str, OutputStatistics]:
        """Every output against the truth, with block arrays."""
        staged = self._current
        with Arrays(self._machine) as scratch:
            return {
                buffer.argument.name: self._statistics(scratch, staged, buffer, bad_above)
                for buffer in self._of_role("output")
            }

    def _statistics(self, scratch: Arrays, staged: _Staged, buffer: Buffer, bad_above: float) -> OutputStatistics:
        name, base = buffer.argument.name, staged.base
        subject = Subject(buffer.array, base.truth[name], base.scale[name], buffer.lies, staged.salts[name])
        yardstick = base.yardsticks[name]
        found = compare(scratch, subject, staged.rearranged, yardstick.bounds, bad_above)
        overall, rms, largest = yardstick.measured(found, buffer.lies, staged.rearranged)
        return _statistics(buffer, found, overall, rms, largest)

    def truth(self, name: str) -> NDArray[np.float64]:
        """The truth of an output of what was staged, in the output's own coordinates and shape."""
        staged, buffer = self._current, self.buffers[name]
        values = download(self._machine, staged.base.truth[name]).reshape(buffer.lies.extents)
        along = [staged.rearranged.tables[axis] for axis in buffer.lies.axes]
        group, row, column = (signs(table) for table in along)
        moved = values[np.ix_(*(sources(table) for table in along))]
        return (moved * group[:, None, None] * row[:, None] * column).reshape(buffer.array.shape)

    def _forget(self) -> None:
        if self._staged is not None:
            self._staged.arrays.close()
        self._staged = None

    def forget(self, base: BaseSet) -> None:
        """Forgets what was staged if it is of ``base``, which is about to go."""
        if self._staged is not None and self._staged.base is base:
            self._forget()

    def close(self) -> None:
        """Gives everything back."""
        self._forget()
        for buffer in self.buffers.values():
            self._machine.free(buffer.start)
        for skipped in self._skipped:
            self._machine.free(skipped)
        self.buffers.clear()
        self._skipped.clear()


def _statistics(
    buffer: Buffer, found: Found, overall: float, rms: NDArray[Any], largest: NDArray[Any]
) -> OutputStatistics:
    shape = buffer.array.shape
    first = int(found.first_bad.min())
    worst = np.unravel_index(int(np.argmax(np.where(np.isnan(rms), np.inf, rms))), rms.shape)
    return OutputStatistics(
        rms=overall, worst_rms_block=float(rms.max()), max=float(largest.max()), elements=buffer.array.count,
        bad=int(found.bad.sum()), unwritten=int(found.unwritten.sum()), not_finite=int(found.not_finite.sum()),
        first_bad=() if first == _NONE else tuple(int(i) for i in np.unravel_index(first, shape)),
        worst_block=tuple(int(i) for i in worst),
        rms_blocks=rms, max_blocks=largest, bad_blocks=found.bad.astype(np.int64),
    )
