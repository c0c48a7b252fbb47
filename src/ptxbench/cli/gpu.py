"""Judging on this machine's GPU, or on the simulator where there is none."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ptxbench.cli.machine import err, ready_evaluator
from ptxbench.core import Target, Tier, UsageError
from ptxbench.devices import verifier_cubin
from ptxbench.evaluate import Bench, LocalEvaluator, bench_process, on_bench, pooled
from ptxbench.report import stage_display

DeviceName = Literal["sim", "cuda", "auto"]

GPU_TIERS: tuple[Tier, ...] = ("small", "heldout", "core")
SIMULATOR_TIERS: tuple[Tier, ...] = ("small", "heldout")

_DRIVER = Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl")


def uses_gpu(device: DeviceName) -> bool:
    """Whether a GPU is to judge, as far as can be told without starting one; `UsageError` if it must and is not there.
    """
    driver = any(place.exists() for place in _DRIVER)
    if device == "cuda" and not driver:
        raise UsageError("this machine has no NVIDIA driver; use --device sim, or judge where there is a GPU")
    return driver and device != "sim"


@contextmanager
def judging(stop: threading.Event, device: DeviceName, target: Target, *, jobs: int = 1) -> Generator[LocalEvaluator]:
    """The evaluator on a device, with the tiers that it can run.

    With several ``jobs`` a GPU's evaluator judges in as many processes, with one more for the GPU's work.

    ``auto`` is the GPU where there is one that runs ``target``, else the simulator. `UsageError` where ``cuda`` is
    asked for and there is no GPU or one that runs other code.
    """
    evaluator = replace(ready_evaluator(stop), tiers=SIMULATOR_TIERS)
    if not uses_gpu(device):
        yield evaluator
        return
    with stage_display(err) as say:
        say("preparing the verifier (built once per machine)")
        cubin = verifier_cubin(evaluator.toolchain.cuda / "bin" / "nvcc", target, evaluator.cache)
        say("starting the GPU's executors")
        opened = (bench_process if jobs > 1 else bench_here)(evaluator.cache.root, cubin)
    with opened as bench:
        (own,) = bench.capabilities().targets
        if own is not target:
            if device == "cuda":
                raise UsageError(f"this GPU runs {own}, not {target}; use --device sim")
            yield evaluator
            return
        judge = replace(on_bench(evaluator, bench), tiers=GPU_TIERS)
        if jobs == 1:
            yield judge
        else:
            with pooled(judge, bench, jobs) as several:
                yield several


@contextmanager
def bench_here(cache: Path, cubin: Path) -> Generator[Bench]:
    """A `Bench` in this process."""
    bench = Bench(cache, cubin)
    try:
        yield bench
    finally:
        bench.close()
