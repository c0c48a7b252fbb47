"""The verifier, a program of its own: ``python -m ptxbench.devices.cuda.verifier.program READ_FD WRITE_FD``.

It holds the seeds, makes inputs, and knows the truth. Nothing of a candidate ever runs here; what candidates see of it
are the bytes of the shared buffers. Requests (see `server` and `client`):

====== ======================================================== ============================
op     header → reply's header                                  blob → reply's blob
====== ======================================================== ============================
hello  → device properties, seconds of start-up
load                                                            the cubin →
open   task, sizes, places → places (buffers of each)
make   distribution, seed → base, seconds
drop   base
stage  base, sample, place → seconds
check  bad_above, blocks → outputs, changed_inputs, stray_writes, seconds  → block arrays
read   buffer                                                   → the buffer's bytes
write  buffer                                                   the buffer's bytes →
truth  output                                                   → float64 values
====== ======================================================== ============================
"""

from __future__ import annotations

import sys
import time
from dataclasses import fields
from typing import Any

from ptxbench.core import DeviceError, Task
from ptxbench.devices.cuda.channel import Message
from ptxbench.devices.cuda.driver import Driver
from ptxbench.devices.cuda.server import Handler, serve_program
from ptxbench.devices.cuda.verifier.arrays import Gpu
from ptxbench.devices.cuda.verifier.base import BaseSet, make_base
from ptxbench.devices.cuda.verifier.records import BLOCK_ARRAYS, OutputStatistics
from ptxbench.devices.cuda.verifier.shared import SharedBuffers

Answer = tuple[dict[str, Any], bytes | bytearray]


class Program:
    """The state of the process: the driver, the shared buffers, and the base sets."""

    def __init__(self) -> None:
        started = time.perf_counter()
        self._driver = Driver()
        self._start_s = time.perf_counter() - started
        self._gpu: Gpu | None = None
        self._places: list[SharedBuffers] = []
        self._place = 0
        self._bases: dict[int, BaseSet] = {}
        self._made = 0

    def handlers(self) -> dict[str, Handler]:
        """Operation names and what answers them."""
        return {
            "hello": self.hello, "load": self.load, "open": self.open, "make": self.make, "drop": self.drop,
            "stage": self.stage, "check": self.check, "read": self.read, "write": self.write, "truth": self.truth,
        }

    def hello(self, request: Message) -> Answer:
        """Who answers, and how long the driver took to start."""
        return {"device": self._driver.properties(), "driver_start_s": self._start_s}, b""

    def load(self, request: Message) -> Answer:
        """Loads the kernels."""
        self._gpu = Gpu(self._driver, bytes(request.blob))
        return {}, b""

    def open(self, request: Message) -> Answer:
        """Shared buffers for a task in so many places, instead of those before."""
        for number in list(self._bases):
            self._drop(number)
        while self._places:
            self._places.pop().close()
        task, sizes = Task.model_validate(request.header["task"]), request.header["sizes"]
        for place in range(request.header["places"]):
            self._places.append(SharedBuffers(self._loaded, task, sizes, skip=place))
        self._place = 0
        return {"places": [self._exported(shared) for shared in self._places]}, b""

    def _exported(self, shared: SharedBuffers) -> dict[str, Any]:
        return {
            name: {
                "handle": self._driver.export(buffer.start).hex(), "offset": buffer.array.address - buffer.start,
                "bytes": buffer.bytes,
            }
            for name, buffer in shared.buffers.items()
        }

    def make(self, request: Message) -> Answer:
        """A base set for the task that is open."""
        shared = self._opened
        base = make_base(
            self._loaded, shared.task, shared.sizes, request.header["distribution"], request.header["seed"]
        )
        self._made += 1
        self._bases[self._made] = base
        return {"base": self._made, "seconds": base.seconds}, b""

    def drop(self, request: Message) -> Answer:
        """Forgets a base set."""
        self._drop(request.header["base"])
        return {}, b""

    def _drop(self, number: int) -> None:
        base = self._base(number)
        for shared in self._places:
            shared.forget(base)
        base.close()
        del self._bases[number]

    def stage(self, request: Message) -> Answer:
        """Fresh inputs and poisoned outputs, in one place, which later requests are about."""
        started = time.perf_counter()
        self._place = request.header["place"]
        self._opened.stage(self._base(request.header["base"]), request.header["sample"])
        self._loaded.synchronise()
        return {"seconds": time.perf_counter() - started}, b""

    def check(self, request: Message) -> Answer:
        """Everything about what a run left behind."""
        shared, seconds = self._opened, dict[str, float]()
        started = time.perf_counter()
        outputs = shared.statistics(request.header["bad_above"])
        seconds["outputs"], started = time.perf_counter() - started, time.perf_counter()
        changed = shared.changed_inputs()
        seconds["inputs"], started = time.perf_counter() - started, time.perf_counter()
        stray = shared.stray_writes()
        seconds["guards"] = time.perf_counter() - started
        blob = b"".join(map(block_bytes, outputs.values())) if request.header["blocks"] else b""
        return {
            "outputs": {name: entry(statistics) for name, statistics in outputs.items()},
            "changed_inputs": changed, "stray_writes": stray, "seconds": seconds,
        }, blob

    def read(self, request: Message) -> Answer:
        """A shared buffer's bytes."""
        buffer = self._opened.buffers[request.header["buffer"]]
        return {}, self._driver.read(buffer.array.address, buffer.bytes)

    def write(self, request: Message) -> Answer:
        """Sets a shared buffer's bytes."""
        buffer = self._opened.buffers[request.header["buffer"]]
        if len(request.blob) != buffer.bytes:
            raise DeviceError(f"The buffer {buffer.argument.name} has {buffer.bytes} bytes, not {len(request.blob)}.")
        self._driver.write(buffer.array.address, request.blob)
        self._driver.synchronise()
        return {}, b""

    def truth(self, request: Message) -> Answer:
        """An output's truth."""
        return {}, self._opened.truth(request.header["output"]).tobytes()

    @property
    def _loaded(self) -> Gpu:
        if self._gpu is None:
            raise DeviceError("The verifier was asked to work before its kernels were loaded; send load first.")
        return self._gpu

    @property
    def _opened(self) -> SharedBuffers:
        if not self._places:
            raise DeviceError("The verifier was asked to work before a task was opened; send open first.")
        return self._places[self._place]

    def _base(self, number: int) -> BaseSet:
        if number not in self._bases:
            raise DeviceError(f"The verifier has no base set {number}; it was dropped, or another task was opened.")
        return self._bases[number]


def entry(statistics: OutputStatistics) -> dict[str, Any]:
    """What goes into the header of an output: the shape of its block arrays, and everything else as it is."""
    assert statistics.rms_blocks is not None
    scalars = {f.name: getattr(statistics, f.name) for f in fields(statistics) if f.name not in BLOCK_ARRAYS}
    return {"blocks": statistics.rms_blocks.shape, "scalars": scalars}


def block_bytes(statistics: OutputStatistics) -> bytes:
    """The block arrays of an output, one after the other."""
    return b"".join(getattr(statistics, name).astype(dtype).tobytes() for name, dtype in BLOCK_ARRAYS.items())


def main() -> None:
    """Serves the parent that started this process."""
    serve_program(sys.argv[1:], lambda: Program().handlers())


if __name__ == "__main__":
    main()
