"""Is this machine ready to judge? One check per thing that can be missing, each with its remedy."""

from __future__ import annotations

import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ptxbench.build import find_sandbox, find_toolchain
from ptxbench.core import CacheError, Progress, PtxbenchError, Record
from ptxbench.devices import CudaDevice, SimulatorDevice
from ptxbench.native import Cache, host_compiler
from ptxbench.record import find_recorder


class Check(Record):
    """One line of the doctor's report. ``required`` checks must hold for a verdict on the simulator."""

    name: str
    ok: bool
    detail: str
    required: bool = True


def diagnose(cache: Cache, progress: Progress) -> tuple[Check, ...]:
    """Runs every check; building our own libraries takes up to a minute the first time."""
    rows: tuple[tuple[str, bool, Callable[[], str]], ...] = (
        ("Python", True, lambda: f"{platform.python_version()} at {sys.prefix}"),
        ("host compiler", True, lambda: str(host_compiler())),
        ("CUDA toolchain", True, lambda: ", ".join(f"{k} {v}" for k, v in find_toolchain().versions.items())),
        ("sandbox", True, lambda: _confinement()),
        ("cache", True, lambda: _writable(cache)),
        ("recorder", True, lambda: str(find_recorder(find_toolchain(), cache).host)),
        ("simulator", True, lambda: SimulatorDevice().prepare()),
        ("GPU", False, lambda: _gpu(cache)),
    )
    checks: list[Check] = []
    for name, required, run in rows:
        progress(f"checking: {name}")
        try:
            checks.append(Check(name=name, ok=True, detail=run(), required=required))
        except PtxbenchError as error:
            checks.append(Check(name=name, ok=False, detail=str(error), required=required))
    return tuple(checks)


def _writable(cache: Cache) -> str:
    try:
        cache.root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache.root):
            return str(cache.root)
    except OSError as error:
        raise CacheError(f"cannot write the cache {cache.root}: {error.strerror}; set PTXBENCH_CACHE") from error


def _gpu(cache: Cache) -> str:
    if not any(Path(place).exists() for place in ("/proc/driver/nvidia/version", "/dev/nvidiactl")):
        raise PtxbenchError("no NVIDIA driver; verdicts come from the simulator")
    with CudaDevice(cache, spares=0) as device:
        libraries = ", ".join(f"{name} {version}" for name, version in device.libraries().items()) or "none"
        return f"{device.name} for {device.target}; counts by {device.counters.name}; libraries: {libraries}"


def _confinement() -> str:
    sandbox = find_sandbox()
    return "full: namespaces, no network, no files of yours" if sandbox.level == "full" else f"weak: {sandbox.why}"
