"""Simulator and GPU side by side, on the kernels of a bundle.

It needs the folder that ``silicon_bundle.py`` made, named by ``PTXBENCH_SILICON_BUNDLE``. Measured values go to the
file given by ``--results``. Imports nothing that needs a compiler for kernels.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from silicon_compare import comparison
from silicon_store import SiliconCase, read_cases

from ptxbench.core import Fault, SiteCount
from ptxbench.devices.cuda import ExecutorProcess, Reply, executable
from ptxbench.devices.cuda.counters import counters_library, site_counts
from ptxbench.devices.cuda.counting import count_plan
from ptxbench.native import Cache

pytestmark = pytest.mark.gpu

BUNDLE = os.environ.get("PTXBENCH_SILICON_BUNDLE", "")
NAMES = sorted(path.parent.name for path in Path(BUNDLE).glob("*/plan.json")) if BUNDLE else []
STEP_SECONDS = 60.0
AT_A_TIME = 6
"""Kernels that run and are counted side by side, each in processes of its own."""


@dataclass(frozen=True)
class Measured:
    """What the GPU made of a case."""

    outputs: dict[str, bytes]
    counts: tuple[SiteCount, ...]
    notes: dict[str, Any]


def done(reply: Reply) -> dict[str, Any]:
    assert reply.fault is None, reply.fault
    return reply.header


def measure(case: SiliconCase, shim: Path) -> Measured:
    with ExecutorProcess() as executor:
        sent = executable(case.artifact).model_dump(mode="json")
        done(executor.request("load", STEP_SECONDS, artifact=sent, plan=case.plan.model_dump(mode="json"), imports={}))
        for name, content in case.inputs.items():
            done(executor.request("write", STEP_SECONDS, content, buffer=name))
        header = done(executor.request("run", STEP_SECONDS, graph=False))
        outputs = {
            name: bytes(executor.request("read", STEP_SECONDS, buffer=name).blob) for name in case.outputs
        }
    counted = count_plan(case.artifact, case.plan, case.inputs, shim, STEP_SECONDS)
    assert not isinstance(counted, Fault), counted
    counts = site_counts(case.artifact, (row for kernel in counted for row in kernel.rows))
    notes = {name: header[name] for name in ("stray_writes", "changed_inputs", "seconds")}
    return Measured(outputs, counts, notes)


@pytest.fixture(scope="module")
def cases() -> dict[str, SiliconCase]:
    return read_cases(Path(BUNDLE))


@pytest.fixture(scope="module")
def measured(cases: dict[str, SiliconCase]) -> Iterator[dict[str, Future[Measured]]]:
    shim = counters_library(Cache())
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield {name: pool.submit(measure, case, shim) for name, case in cases.items()}


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@pytest.mark.skipif(not BUNDLE, reason="PTXBENCH_SILICON_BUNDLE names no bundle (see silicon_bundle.py)")
def test_what_this_machine_is(results: Any) -> None:
    with ExecutorProcess() as executor:
        results.record("machine", date=datetime.now(UTC).isoformat(timespec="seconds"), **executor.device)
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    packages = {name: version_of(name) for name in ("cuda-bindings", "nvidia-cuda-cupti", "numpy", "ml_dtypes")}
    results.record("versions", driver=driver, **packages)
    results.write()


@pytest.mark.skipif(not BUNDLE, reason="PTXBENCH_SILICON_BUNDLE names no bundle (see silicon_bundle.py)")
@pytest.mark.parametrize("name", NAMES)
def test_the_simulator_agrees_with_the_gpu(
    name: str, cases: dict[str, SiliconCase], measured: dict[str, Future[Measured]], results: Any
) -> None:
    case, seen = cases[name], measured[name].result()
    outputs = {
        key: np.frombuffer(content, case.outputs[key].simulated.dtype).reshape(case.outputs[key].simulated.shape)
        for key, content in seen.outputs.items()
    }
    found = comparison(case, outputs, seen.counts)
    results.record("kernels", **{name: {**found.report(), **seen.notes}})
    results.write()
    assert found.disagreements() == []
    assert seen.notes["stray_writes"] == seen.notes["changed_inputs"] == []
