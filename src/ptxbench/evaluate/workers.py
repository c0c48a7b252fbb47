"""Several candidates on one GPU: pipelines in processes of their own, and one process for the GPU's work alone.

Python runs one thread at a time. A thread that parses or simulates beside the one that takes turns on the device would
make every turn a hundred times longer.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from multiprocessing.managers import BaseManager, RemoteError
from pathlib import Path
from typing import Any, cast

from ptxbench.build import find_toolchain
from ptxbench.core import Candidate, DeviceError, InfrastructureError, Tier, Verdict
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate.bench import Bench
from ptxbench.evaluate.findings import simulate
from ptxbench.evaluate.hardware import BenchDevice, CudaExaminer
from ptxbench.evaluate.pipeline import LocalEvaluator
from ptxbench.native import Cache
from ptxbench.record import find_recorder

_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""For the workers' linear algebra: there are as many workers as cores."""


@dataclass(frozen=True)
class Setup:
    """What a worker needs to make the pipeline of its parent."""

    cache: Path
    include: Path | None
    tiers: tuple[Tier, ...]
    strict: bool
    seed: int | None


@dataclass(frozen=True)
class PooledEvaluator(LocalEvaluator):
    """A pipeline whose candidates are judged by worker processes; made by `pooled`."""

    pool: ProcessPoolExecutor | None = None
    bench: Bench | None = None

    def evaluate(self, candidate: Candidate) -> Verdict:
        """See `LocalEvaluator`. `InfrastructureError` if a worker died."""
        if self.pool is None or self.bench is None:
            return super().evaluate(candidate)
        setup = Setup(self.cache.root, self.include, self.tiers, self.strict, self.seed)
        try:
            return self.pool.submit(_evaluate, setup, self.bench, candidate).result()
        except BrokenProcessPool as error:
            raise InfrastructureError(
                "A process that judges candidates ended; it may have run out of memory (use a smaller --jobs)."
            ) from error


class _Manager(BaseManager):
    """Serves a `Bench` to other processes."""


_Manager.register("bench", Bench)


@contextmanager
def bench_process(cache: Path, cubin: Path) -> Generator[Bench]:
    """A `Bench` in a process of its own: what is returned stands for it, in other processes too."""
    manager = _Manager(ctx=multiprocessing.get_context("spawn"))
    manager.start(_ignore_interrupts)
    try:
        make: Any = getattr(manager, "bench")  # noqa: B009 (made by `register`)
        try:
            bench = cast("Bench", make(cache, cubin))
        except RemoteError as error:
            raise DeviceError(_last_words(error)) from error
        yield bench
        bench.close()
    finally:
        manager.shutdown()


@contextmanager
def pooled(evaluator: LocalEvaluator, bench: Bench, jobs: int) -> Generator[LocalEvaluator]:
    """The evaluator with its candidates judged by ``jobs`` processes, which share ``bench``."""
    added = {name: value for name, value in _ONE_THREAD.items() if name not in os.environ}
    os.environ.update(added)
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _ignore_interrupts)
    own = {field.name: getattr(evaluator, field.name) for field in fields(LocalEvaluator)}
    try:
        yield PooledEvaluator(**own, pool=pool, bench=bench)
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name in added:
            del os.environ[name]


def _last_words(error: RemoteError) -> str:
    """The message of the exception that ended another process's call, without its traceback."""
    lines = [line for line in str(error).splitlines() if line.strip("- ")]
    return lines[-1].partition(": ")[2] or lines[-1]


def _ignore_interrupts() -> None:
    """The parent decides when to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@functools.cache
def _pipeline(setup: Setup) -> LocalEvaluator:
    cache, toolchain = Cache(setup.cache), find_toolchain()
    return LocalEvaluator(
        SimulatorDevice(), toolchain, find_recorder(toolchain, cache), cache, setup.include, tiers=setup.tiers,
        strict=setup.strict, seed=setup.seed, threads=1,
    )


def _evaluate(setup: Setup, bench: Bench, candidate: Candidate) -> Verdict:
    return on_bench(_pipeline(setup), bench).evaluate(candidate)


def on_bench(evaluator: LocalEvaluator, bench: Bench) -> LocalEvaluator:
    """The evaluator on the GPU of ``bench``, with its own (simulated) device beside it."""
    device, beside = BenchDevice(bench), functools.partial(simulate, evaluator.device, threads=evaluator.threads)
    return replace(evaluator, device=device, examiner=CudaExaminer(device, beside, evaluator.threads))
