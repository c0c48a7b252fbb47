"""The baseline executor: a library's own kernels behind the same requests, ``python -m ... baseline READ_FD WRITE_FD``.

====== =============================================== =====================
op     header → reply's header                         blob → reply's blob
====== =============================================== =====================
hello  → device properties, versions
load   operation (``gemm``), sizes                     the inputs, in order →
read   → the output's bytes                            → the output's bytes
time   samples, graph → samples
====== =============================================== =====================
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

from ptxbench.core import DeviceError
from ptxbench.devices.cuda.channel import Message
from ptxbench.devices.cuda.driver import Driver, Handle
from ptxbench.devices.cuda.server import Handler, connect, serve
from ptxbench.devices.cuda.timing import Stopwatch

Answer = tuple[dict[str, Any], bytes | bytearray]


class Baseline:
    """PyTorch in the process's primary context; its work runs on a stream of ours."""

    def __init__(self) -> None:
        started = time.perf_counter()
        self._driver = Driver()
        self._torch = _torch()
        self._stream: Handle = self._driver.stream()
        self._torch_stream = self._torch.cuda.ExternalStream(int(self._stream))
        self._stopwatch = Stopwatch(self._driver, self._stream)
        self._work: Callable[[], None] | None = None
        self._output: Any = None
        self._graph: Handle = None
        self._start_s = time.perf_counter() - started

    def handlers(self) -> dict[str, Handler]:
        """Operation names and what answers them."""
        return {"hello": self.hello, "load": self.load, "read": self.read, "time": self.time}

    def hello(self, request: Message) -> Answer:
        """Who answers, with which library."""
        versions = {
            "torch": self._torch.__version__,
            "cuda": self._torch.version.cuda,
            "cudnn": self._torch.backends.cudnn.version(),
        }
        return {"device": self._driver.properties(), "versions": versions, "driver_start_s": self._start_s}, b""

    def load(self, request: Message) -> Answer:
        """Puts inputs on the device and runs the library once, so that plans and workspaces exist."""
        if request.header["operation"] != "gemm":
            raise DeviceError(f"There is no baseline for {request.header['operation']!r} here.")
        sizes = request.header["sizes"]
        m, n, k = sizes["M"], sizes["N"], sizes["K"]
        torch = self._torch
        both = torch.frombuffer(request.blob, dtype=torch.bfloat16).cuda()
        a, b = both[: m * k].view(m, k), both[m * k :].view(n, k)
        self._output = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
        torch.cuda.synchronize()

        def work() -> None:
            with torch.cuda.stream(self._torch_stream):
                torch.matmul(a, b.t(), out=self._output)

        self._work, self._graph = work, None
        work()
        torch.cuda.synchronize()
        return {}, b""

    def read(self, request: Message) -> Answer:
        """The output's bytes."""
        flat = self._output.view(self._torch.uint8).cpu().numpy()
        return {}, flat.tobytes()

    def time(self, request: Message) -> Answer:
        """Timed runs, one after the other."""
        work = self._enqueue(request.header["graph"])
        samples = [self._stopwatch.sample(work) for _ in range(request.header["samples"])]
        return {"samples": [sample.model_dump() for sample in samples]}, b""

    def _enqueue(self, graph: bool) -> Callable[[], None]:
        if self._work is None:
            raise DeviceError("The baseline was asked to work before anything was loaded; send load first.")
        if not graph:
            return self._work
        if self._graph is None:
            self._driver.begin_capture(self._stream)
            self._work()
            self._graph = self._driver.end_capture(self._stream)
        return lambda: self._driver.call("cuGraphLaunch", self._graph, self._stream)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise DeviceError("The package torch is not installed; install ptxbench[gpu].") from error


def main() -> None:
    """Serves the parent that started this process."""
    channel = connect(sys.argv[1:])
    serve(channel, Baseline().handlers())


if __name__ == "__main__":
    main()
