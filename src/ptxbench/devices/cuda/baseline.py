"""The baseline executor, ``python -m ptxbench.devices.cuda.baseline READ_FD WRITE_FD``: libraries behind requests.

======== ============================================== =====================
op       header → reply's header                        blob → reply's blob
======== ============================================== =====================
hello    → device properties, versions
load     task, sizes, places → libraries, absent
unload
write    buffer                                         the buffer's bytes →
read     buffer                                         → the buffer's bytes
run      library
time     samples, library, graph, place → samples
ceilings → flops_per_second, bytes_per_second
======== ============================================== =====================
"""

from __future__ import annotations

import gc
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ptxbench.core import Argument, DeviceError, Task
from ptxbench.devices.cuda.channel import Message
from ptxbench.devices.cuda.cublaslt import WORKSPACE_BYTES, Matmul, fastest_algorithm
from ptxbench.devices.cuda.driver import Driver, Handle
from ptxbench.devices.cuda.libraries import Absent, Library, Setting, builders
from ptxbench.devices.cuda.server import Handler, serve_program
from ptxbench.devices.cuda.timing import Stopwatch

Answer = tuple[dict[str, Any], bytes | bytearray]

_WARM_UP_SECONDS = 0.1
_TRIALS = 10
_CEILING_CUBES = (4096, 8192)
_COPY_BYTES = 2 << 30
_STORED = {"bf16": ("bfloat16", "<i2"), "f16": ("float16", "<f2"), "f32": ("float32", "<f4")}
"""PyTorch's name of a dtype, and the array interface's for the same bytes (which has no bfloat16)."""


class _Memory:
    """Device memory that PyTorch takes as a tensor (CUDA array interface, version 3)."""

    def __init__(self, address: int, shape: tuple[int, ...], type_name: str) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": type_name, "data": (address, False), "version": 3, "strides": None,
        }


@dataclass(frozen=True)
class _Place:
    """One place in device memory: the task's tensors there, what was built on them, and its work as graphs, by name.

    A graph is None where PyTorch cannot capture the work.
    """

    tensors: dict[str, Any]
    libraries: dict[str, Library] = field(default_factory=dict[str, Library])
    graphs: dict[str, Any] = field(default_factory=dict[str, Any])


class Baseline:
    """PyTorch in the process's primary context; all work runs on one stream of ours."""

    def __init__(self) -> None:
        started = time.perf_counter()
        self._driver = Driver()
        self._torch = _torch()
        self._stream: Handle = self._driver.stream()
        self._torch_stream = self._torch.cuda.ExternalStream(int(self._stream))
        self._stopwatch = Stopwatch(self._driver, self._stream)
        self._imported: list[int] = []
        self._places: list[_Place] = []
        self._outputs: tuple[str, ...] = ()
        self._start_s = time.perf_counter() - started

    def handlers(self) -> dict[str, Handler]:
        """Operation names and what answers them."""
        return {
            "hello": self.hello, "load": self.load, "unload": self.unload, "write": self.write, "read": self.read,
            "run": self.run, "time": self.time, "ceilings": self.ceilings,
        }

    def hello(self, request: Message) -> Answer:
        """Who answers, with which PyTorch."""
        versions = {
            "torch": self._torch.__version__,
            "cuda": self._torch.version.cuda,
            "cudnn": self._torch.backends.cudnn.version(),
        }
        return {"device": self._driver.properties(), "versions": versions, "driver_start_s": self._start_s}, b""

    def load(self, request: Message) -> Answer:
        """Readies every library that can do the task and times each: ``libraries``, the fastest first.

        Each of ``places`` maps buffers of another process; the others are made here, unset. Libraries are readied in
        the first place, and in the others the fastest alone. ``absent`` says which libraries are missing, and why.
        ``graph`` says whether a library's work can be replayed as a graph.
        """
        task, sizes = Task.model_validate(request.header["task"]), request.header["sizes"]
        places: Sequence[Mapping[str, Any]] = request.header.get("places") or [{}]
        self._unload()
        self._outputs = tuple(argument.name for argument in task.outputs)
        self._places = [
            _Place({a.name: self._tensor(a, sizes, imports.get(a.name)) for a in task.arguments})
            for imports in places
        ]
        absent: dict[str, str] = {}
        choices: dict[str, Any] = {}
        for name in builders(task):
            try:
                self._build(name, self._places[0], task, sizes, choices)
            except (Absent, RuntimeError, TypeError, NotImplementedError, DeviceError) as error:
                absent[name] = str(error).strip().split("\n")[0]
        first = self._places[0]
        graphs = {name: graph is not None for name, graph in first.graphs.items()}
        times = self._compared([self._enqueue(first, name, graphs[name]) for name in graphs])
        timed = [
            {"name": name, "version": first.libraries[name].version, "graph": graph, "ms": ms}
            for (name, graph), ms in zip(graphs.items(), times, strict=True)
        ]
        timed.sort(key=lambda entry: entry["ms"])
        for place in self._places[1:] if timed else ():
            self._build(str(timed[0]["name"]), place, task, sizes, choices)
        return {"libraries": timed, "absent": absent}, b""

    def _build(
        self, name: str, place: _Place, task: Task, sizes: dict[str, int], choices: dict[str, Any]
    ) -> None:
        """Adds a library to a place; raises whatever it raises where it cannot do the task."""
        setting = Setting(self._torch, task, sizes, place.tensors, int(self._stream), self._compared, choices)
        with self._torch.cuda.stream(self._torch_stream):
            library = builders(task)[name](setting)
            library.renew()
            library.work()
        self._torch.cuda.synchronize()
        place.graphs[name] = self._captured(library)
        place.libraries[name] = library

    def unload(self, request: Message) -> Answer:
        """Gives everything back, mapped buffers of other processes too."""
        self._unload()
        return {}, b""

    def write(self, request: Message) -> Answer:
        """Sets a buffer's content."""
        bytes_of = self._torch.frombuffer(request.blob, dtype=self._torch.uint8)
        self._flat(request.header["buffer"]).copy_(bytes_of)
        self._torch.cuda.synchronize()
        return {}, b""

    def read(self, request: Message) -> Answer:
        """A buffer's content."""
        return {}, self._flat(request.header["buffer"]).cpu().numpy().tobytes()

    def run(self, request: Message) -> Answer:
        """One library's work on the inputs as they are now; the results go into the output buffers."""
        place = self._place(0)
        library = self._library(place, request.header["library"])
        with self._torch.cuda.stream(self._torch_stream):
            library.renew()
            for name, result in zip(self._outputs, library.work(), strict=True):
                tensor = place.tensors[name]
                if result.data_ptr() != tensor.data_ptr():
                    tensor.copy_(result.reshape(tensor.shape))
        self._torch.cuda.synchronize()
        return {}, b""

    def time(self, request: Message) -> Answer:
        """Timed runs of one library, one after the other."""
        place = self._place(request.header.get("place", 0))
        work = self._enqueue(place, request.header["library"], request.header["graph"])
        samples = [self._stopwatch.sample(work) for _ in range(request.header["samples"])]
        return {"samples": [sample.model_dump() for sample in samples]}, b""

    def ceilings(self, request: Message) -> Answer:
        """What this device reaches in bf16 products (cuBLASLt's best algorithm, cubes) and in copies (bytes read and
        written), at best.
        """
        flops = max(2e3 * n**3 / self._best(self._product(n)) for n in _CEILING_CUBES)
        return {"flops_per_second": flops, "bytes_per_second": 2e3 * _COPY_BYTES / self._best(self._copy())}, b""

    def _product(self, n: int) -> Callable[[], Any]:
        torch = self._torch
        a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        kept = (a, b, torch.empty_like(a), torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda"))
        torch.cuda.synchronize()
        *operands, workspace = (tensor.data_ptr() for tensor in kept)
        matmul = Matmul((n, n, n), "bf16", tuple(operands), workspace, int(self._stream))
        launch = matmul.with_algorithm(fastest_algorithm(matmul, self._compared))

        def work(kept: Any = kept) -> None:
            launch()

        return work

    def _copy(self) -> Callable[[], Any]:
        source = self._torch.zeros(_COPY_BYTES, dtype=self._torch.uint8, device="cuda")
        target = self._torch.empty_like(source)
        return lambda: target.copy_(source)

    def _best(self, work: Callable[[], Any]) -> float:
        """The shortest of some samples; what made the tensors has ended before."""
        self._torch.cuda.synchronize()
        enqueue = self._on_stream(work)
        self._warm_up(enqueue)
        return min(self._timed(enqueue) for _ in range(_TRIALS))

    def _tensor(self, argument: Argument, sizes: dict[str, int], source: dict[str, Any] | None) -> Any:
        name, type_name = _STORED[argument.dtype]
        dtype, shape = getattr(self._torch, name), argument.dims(sizes)
        if source is None:
            return self._torch.empty(shape, dtype=dtype, device="cuda")
        start = self._driver.import_(bytes.fromhex(source["handle"]))
        self._imported.append(start)
        memory = _Memory(start + source["offset"], shape, type_name)
        return self._torch.as_tensor(memory, device="cuda").view(dtype)

    def _unload(self) -> None:
        self._torch.cuda.synchronize()
        self._places.clear()
        gc.collect()
        self._torch.cuda.empty_cache()
        while self._imported:
            self._driver.close_import(self._imported.pop())

    def _flat(self, name: str) -> Any:
        return self._place(0).tensors[name].reshape(-1).view(self._torch.uint8)

    def _place(self, number: int) -> _Place:
        if number >= len(self._places):
            raise DeviceError(f"There is no place {number} for libraries; {len(self._places)} were loaded.")
        return self._places[number]

    def _library(self, place: _Place, name: str) -> Library:
        if name not in place.libraries:
            raise DeviceError(f"There is no baseline {name!r}; loaded are {', '.join(place.libraries) or 'none'}.")
        return place.libraries[name]

    def _captured(self, library: Library) -> Any:
        """The work as a graph with memory of its own, or None where PyTorch cannot capture it."""
        graph = self._torch.cuda.CUDAGraph()
        try:
            with self._torch.cuda.graph(graph, stream=self._torch_stream):
                library.work()
        except RuntimeError:
            self._torch.cuda.synchronize()
            return None
        return graph

    def _enqueue(self, place: _Place, name: str, graph: bool) -> Callable[[], None]:
        library = self._library(place, name)
        if graph and place.graphs[name] is None:
            raise DeviceError(f"The work of {name} cannot be captured as a graph; replay it as plain launches.")
        return self._on_stream(place.graphs[name].replay if graph else library.work)

    def _on_stream(self, work: Callable[[], Any]) -> Callable[[], None]:
        def enqueue() -> None:
            with self._torch.cuda.stream(self._torch_stream):
                work()

        return enqueue

    def _warm_up(self, work: Callable[[], None]) -> None:
        """Brings the device into the state that it has in a race; an idle one needs some milliseconds for that."""
        began = time.perf_counter()
        while time.perf_counter() - began < _WARM_UP_SECONDS:
            self._timed(work)

    def _timed(self, work: Callable[[], None]) -> float:
        """One sample in milliseconds, after traffic such as there is between the turns of a race."""
        return self._stopwatch.sample(work, self._stopwatch.occupy).event_ms

    def _compared(self, works: Sequence[Callable[[], None]]) -> list[float]:
        """The median of each work's times, taken by turns, in milliseconds."""
        rounds: list[list[float]] = []
        for work in works[:1]:
            self._warm_up(work)
        for _ in range(_TRIALS):
            rounds.append([self._timed(work) for work in works])
        return [statistics.median(times) for times in zip(*rounds, strict=True)]


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise DeviceError("The package torch is not installed; install ptxbench[gpu].") from error


def main() -> None:
    """Serves the parent that started this process."""
    serve_program(sys.argv[1:], lambda: Baseline().handlers())


if __name__ == "__main__":
    main()
