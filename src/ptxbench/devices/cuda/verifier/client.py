"""The parent's side of the verifier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.core import DeviceError, Task, UsageError
from ptxbench.devices.cuda.process import ExecutorProcess, Reply
from ptxbench.devices.cuda.verifier.records import (
    BLOCK_ARRAYS,
    Check,
    Made,
    OutputStatistics,
    SharedBuffer,
    statistics_from,
)
from ptxbench.tasks import DISTRIBUTIONS

PROGRAM = "ptxbench.devices.cuda.verifier.program"

_SECONDS = 60.0
"""Allowed for one request; the longest makes a base set of the backward pass at the core size."""


class Verifier:
    """The verifier process: it makes inputs, knows the truth, and compares. Use it in a ``with`` statement; it is not
    for several threads.

    The order of calls: `open` once per (task, sizes); `make` once per base set; then per run of a candidate or a
    baseline `stage`, the run (in another process, to its end), `check`. One process serves any number of candidates,
    and base sets and shared buffers outlive them. Whatever goes wrong here is a `DeviceError`: nothing of a candidate
    runs in this process.
    """

    def __init__(self, cubin: Path) -> None:
        """Starts the process with the kernels of ``cubin`` (see `verifier_cubin`)."""
        self._process = ExecutorProcess(PROGRAM)
        self.device: dict[str, Any] = self._process.device
        self.start_s = self._process.start_s
        try:
            self._ask("load", cubin.read_bytes())
        except BaseException:
            self._process.close()
            raise

    def open(self, task: Task, sizes: Mapping[str, int], places: int = 1) -> tuple[dict[str, SharedBuffer], ...]:
        """Allocates a guarded buffer for every input and output and returns them by name, to be mapped by executors;
        ``places`` times over, each elsewhere in memory.

        Base sets and buffers of an earlier `open` are given back: executors must have unmapped them (or have ended).
        """
        reply = self._ask("open", task=task.model_dump(mode="json"), sizes=dict(sizes), places=places)
        return tuple(
            {name: SharedBuffer.model_validate(entry) for name, entry in buffers.items()}
            for buffers in reply.header["places"]
        )

    def make(self, distribution: str, seed: int) -> Made:
        """A base set: inputs of that distribution drawn from ``seed``, their truth, and the yardstick of every block.

        Equal arguments give equal inputs. The values differ from those that `tasks.draw_inputs` gives for the seed, but
        are distributed alike. `UsageError` for an unknown distribution.
        """
        if distribution not in DISTRIBUTIONS:
            raise UsageError(f"unknown input distribution '{distribution}'; known are {', '.join(DISTRIBUTIONS)}")
        return Made.model_validate(self._ask("make", distribution=distribution, seed=seed).header)

    def drop(self, base: int) -> None:
        """Gives the memory of a base set back."""
        self._ask("drop", base=base)

    def stage(self, base: int, sample: int, place: int = 0) -> float:
        """Writes fresh inputs into the shared buffers of a place, poisons the outputs and renews the guard zones.

        The inputs are those of the base set under the exact map number ``sample`` (see `maps`); sample 0 is the base
        set as it is. Returns when everything is in memory: the seconds that it took.
        """
        return float(self._ask("stage", base=base, sample=sample, place=place).header["seconds"])

    def check(self, bad_above: float, *, blocks: bool = False) -> Check:
        """Compares every element of the shared outputs with the truth of what was staged last.

        ``bad_above`` is the error, in units of the yardstick's largest of the block, beyond which an element counts as
        bad (`judge.MAX_FACTOR`). ``blocks`` asks for the block arrays too.
        """
        reply = self._ask("check", bad_above=bad_above, blocks=blocks)
        header = reply.header
        arrays = block_arrays(header["outputs"], reply.blob) if blocks else {}
        outputs: dict[str, OutputStatistics] = {
            name: statistics_from(entry["scalars"], arrays.get(name, {})) for name, entry in header["outputs"].items()
        }
        return Check(outputs, tuple(header["changed_inputs"]), tuple(header["stray_writes"]), header["seconds"])

    def read(self, name: str) -> bytearray:
        """The bytes of a shared input or output."""
        return self._ask("read", buffer=name).blob

    def write(self, name: str, content: bytes | bytearray | memoryview) -> None:
        """Puts bytes into a shared buffer; for tests and for outputs that another program made."""
        self._ask("write", content, buffer=name)

    def truth(self, name: str) -> bytearray:
        """The truth of an output of what was staged last, as float64 bytes in the output's own coordinates.

        For feedback on wrong outputs and for tests. It must not reach a candidate's process.
        """
        return self._ask("truth", output=name).blob

    def close(self) -> None:
        """Ends the process."""
        self._process.close()

    def _ask(self, op: str, blob: bytes | bytearray | memoryview = b"", **fields: Any) -> Reply:
        reply = self._process.request(op, _SECONDS, blob, **fields)
        if reply.fault is not None:
            raise DeviceError(f"The verifier failed during {op!r}: {reply.fault.message}")
        return reply

    def __enter__(self) -> Verifier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def block_arrays(outputs: Mapping[str, Any], blob: bytearray) -> dict[str, dict[str, NDArray[Any]]]:
    """Block arrays by output and name; they follow each other in the blob in the order of the header."""
    found: dict[str, dict[str, NDArray[Any]]] = {}
    start = 0
    for output, entry in outputs.items():
        found[output] = {}
        shape = tuple(entry["blocks"])
        for name, dtype in BLOCK_ARRAYS.items():
            array = np.frombuffer(blob, dtype, math.prod(shape), start).reshape(shape)
            found[output][name] = array
            start += array.nbytes
    return found
