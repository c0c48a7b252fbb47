"""The candidate executor, a program of its own: ``python -m ptxbench.devices.cuda.executor READ_FD WRITE_FD``.

It holds a device, one loaded plan and nothing else: no seed, no expected output, no decision. Requests (see `server`):

====== ================================================ =========================================================
op     header → reply's header                          blob → reply's blob
====== ================================================ =========================================================
hello  → device properties, seconds of start-up
load   artifact, plan, imports → seconds
unload
write  buffer                                           the buffer's bytes →
read   buffer                                           → the buffer's bytes
export buffer → handle (hex), offset
run    graph, keep → changed_inputs, stray_writes, seconds
count  node, library, chip → rows, seconds; only once
time   samples, graph → samples, stray_writes
====== ================================================ =========================================================
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptxbench.core import Artifact, DeviceError, KernelNode, LaunchPlan
from ptxbench.devices.cuda.channel import Message
from ptxbench.devices.cuda.counters import Counters
from ptxbench.devices.cuda.driver import Driver, Handle
from ptxbench.devices.cuda.memory import Import
from ptxbench.devices.cuda.replay import Replay
from ptxbench.devices.cuda.server import Handler, serve_program
from ptxbench.devices.cuda.timing import Stopwatch

Answer = tuple[dict[str, Any], bytes | bytearray]


class Executor:
    """The state of the process: the driver, and what has been loaded."""

    def __init__(self) -> None:
        started = time.perf_counter()
        self._driver = Driver()
        self._start_s = time.perf_counter() - started
        self._loaded: Replay | None = None
        self._graph: Handle = None
        self._stopwatch: Stopwatch | None = None
        self._counted = False

    def handlers(self) -> dict[str, Handler]:
        """Operation names and what answers them."""
        return {
            "hello": self.hello, "load": self.load, "unload": self.unload, "write": self.write, "read": self.read,
            "export": self.export, "run": self.run, "count": self.count, "time": self.time,
        }

    def hello(self, request: Message) -> Answer:
        """Who answers, and how long the driver took to start."""
        return {"device": self._driver.properties(), "driver_start_s": self._start_s}, b""

    def load(self, request: Message) -> Answer:
        """Loads a plan in place of the one before."""
        started = time.perf_counter()
        artifact = Artifact.model_validate(request.header["artifact"])
        plan = LaunchPlan.model_validate(request.header["plan"])
        imports = {
            name: Import(bytes.fromhex(entry["handle"]), entry["offset"])
            for name, entry in request.header.get("imports", {}).items()
        }
        self._unload()
        parsed = time.perf_counter()
        self._loaded = Replay(self._driver, artifact, plan, imports)
        self._loaded.reset()
        return {"parse_s": parsed - started, "load_s": time.perf_counter() - parsed}, b""

    def unload(self, request: Message) -> Answer:
        """Gives everything back, mapped buffers of other processes too."""
        self._unload()
        return {}, b""

    def _unload(self) -> None:
        if self._stopwatch is not None:
            self._stopwatch.close()
        if self._loaded is not None:
            self._loaded.close()
        self._stopwatch, self._loaded, self._graph = None, None, None

    def write(self, request: Message) -> Answer:
        """Sets a buffer's content."""
        self._replay().memory.write(request.header["buffer"], request.blob)
        return {}, b""

    def read(self, request: Message) -> Answer:
        """A buffer's content."""
        return {}, self._replay().memory.read(request.header["buffer"])

    def export(self, request: Message) -> Answer:
        """Shares a buffer with another process of this machine."""
        shared = self._replay().memory.export(request.header["buffer"])
        return {"handle": shared.handle.hex(), "offset": shared.offset}, b""

    def run(self, request: Message) -> Answer:
        """Replays the plan once and looks for writes where none may be.

        With ``keep`` every buffer holds what was written there since `load`; otherwise all is poisoned but inputs.
        """
        memory = self._replay().memory
        if not request.header.get("keep", False):
            self._replay().reset()
        work = self._work(request.header["graph"])
        started = time.perf_counter()
        work()
        self._driver.synchronise()
        seconds = time.perf_counter() - started
        return {
            "changed_inputs": memory.changed_inputs(), "stray_writes": memory.stray_writes(), "seconds": seconds,
        }, b""

    def count(self, request: Message) -> Answer:
        """Counts executed instructions of the kernel at one node of the plan, after the nodes before it have run.

        It ends this process's usefulness: CUPTI counts once per process, and leaves the code patched.
        """
        replay, at = self._replay(), int(request.header["node"])
        node = replay.plan.nodes[at]
        if not isinstance(node, KernelNode):
            raise DeviceError(f"Node {at} of the plan is a {node.op}, which executes no instruction.")
        replay.reset()
        replay.run_before(at)
        self._counted = True
        started = time.perf_counter()
        # Configured only now: CUPTI returns nothing if anything but the counted kernel runs after this.
        with Counters(Path(request.header["library"]), request.header["chip"], self._driver.device_index) as counters:
            opened = time.perf_counter()
            launch = lambda: replay.launch_node(at, replay.stream)  # noqa: E731
            rows = counters.measure(node.kernel, launch, self._driver.synchronise)
        finished = time.perf_counter()
        return {
            "rows": [row.model_dump() for row in rows], "open_s": opened - started, "count_s": finished - opened,
        }, b""

    def time(self, request: Message) -> Answer:
        """Timed replays, one after the other."""
        replay = self._replay()
        if self._stopwatch is None:
            self._stopwatch = Stopwatch(self._driver, replay.stream)
        work = self._work(request.header["graph"])
        samples = [self._stopwatch.sample(work, replay.renew) for _ in range(request.header["samples"])]
        return {
            "samples": [sample.model_dump() for sample in samples], "stray_writes": replay.memory.stray_writes(),
        }, b""

    def _replay(self) -> Replay:
        if self._counted:
            raise DeviceError("The executor has counted, so its code is patched; start another one.")
        if self._loaded is None:
            raise DeviceError("The executor was asked to work before a plan was loaded; send load first.")
        return self._loaded

    def _work(self, graph: bool) -> Callable[[], None]:
        """What enqueues one replay: a graph launch, or plain launches."""
        replay = self._replay()
        if not graph:
            return replay.launch
        if self._graph is None:
            self._graph = replay.capture()
        return lambda: self._driver.call("cuGraphLaunch", self._graph, replay.stream)


def main() -> None:
    """Serves the parent that started this process."""
    serve_program(sys.argv[1:], lambda: Executor().handlers())


if __name__ == "__main__":
    main()
