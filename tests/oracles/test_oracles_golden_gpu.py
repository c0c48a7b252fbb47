"""Runs the probe kernels on a GPU and writes their results, the golden vectors; kinds of faults into ``faults.json``.

The folder that ``golden_bundle.py`` made is named by ``PTXBENCH_GOLDEN_BUNDLE``, the one to write to by
``PTXBENCH_GOLDEN_OUT``.
Imports nothing that needs a compiler.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ptxbench.core import RunOptions
from ptxbench.devices.cuda import CudaDevice, read_bundle

pytestmark = pytest.mark.gpu

BUNDLE = os.environ.get("PTXBENCH_GOLDEN_BUNDLE", "")
OUT = os.environ.get("PTXBENCH_GOLDEN_OUT", "")
NAMES = sorted(path.parent.name for path in Path(BUNDLE).glob("*/plan.json")) if BUNDLE else []


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    with CudaDevice(spares=1) as opened:
        yield opened


@pytest.mark.skipif(not BUNDLE or not OUT, reason="PTXBENCH_GOLDEN_BUNDLE and PTXBENCH_GOLDEN_OUT name no folders")
@pytest.mark.parametrize("name", NAMES)
def test_probe(name: str, device: CudaDevice) -> None:
    case = read_bundle(Path(BUNDLE))[name]
    rows = (Path(BUNDLE) / name / "rows.txt").read_text().splitlines()
    sizes = {buffer.name: buffer.bytes for buffer in case.plan.buffers}
    held = {buffer: bytearray(content) for buffer, content in case.inputs.items()} | {"out": bytearray(sizes["out"])}
    views = {buffer: memoryview(content) for buffer, content in held.items()}
    seen = device.run(case.artifact, case.plan, views, RunOptions())
    Path(OUT).mkdir(parents=True, exist_ok=True)
    if seen.fault is not None:
        faults = Path(OUT, "faults.json")
        known = json.loads(faults.read_text()) if faults.exists() else {}
        faults.write_text(json.dumps({**known, "device": device.name, name: seen.fault.kind}, indent=1) + "\n")
        return
    values = np.frombuffer(held["out"], np.uint64).reshape(sum("|" in row for row in rows), -1)
    assert len(np.unique(values)) > 1
    np.savez_compressed(Path(OUT, f"{name}.npz"), values=values, rows=np.array(rows), device=np.array(device.name))
