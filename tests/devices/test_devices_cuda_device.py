"""The GPU does what every device must do, and survives what candidates do to it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from devices_prepared import Prepared

from ptxbench.core import FaultKind, Mode, RunOptions
from ptxbench.devices import CudaDevice
from ptxbench.devices.conformance import BASE, CASES, Case, run_case, run_once

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_gpu_conforms(gpu: CudaDevice, prepared: Prepared, case: Case, results: Any) -> None:
    artifact, plan = prepared(case, gpu.target)
    began = time.perf_counter()
    problem = run_case(gpu, case, artifact, plan)
    middle = time.perf_counter()
    after = run_case(gpu, BASE, *prepared(BASE, gpu.target))
    results.record("conformance", **{case.name: {
        "problem": problem, "s": middle - began, "then_s": time.perf_counter() - middle, "then": after,
    }})
    assert problem == ""
    assert after == ""


def test_samples_are_taken_in_mode_time(gpu: CudaDevice, prepared: Prepared) -> None:
    artifact, plan = prepared(BASE, gpu.target)
    seen = run_once(gpu, artifact, plan, RunOptions(mode=Mode.TIME)).observation
    assert seen.fault is None and len(seen.samples_ms) == 10
    assert all(0 < sample < 10 for sample in seen.samples_ms)


def test_faults_have_advice_and_the_kernels_name(gpu: CudaDevice, prepared: Prepared) -> None:
    case = next(case for case in CASES if case.launcher == "launch_wild_address")
    fault = run_once(gpu, *prepared(case, gpu.target), RunOptions()).observation.fault
    assert fault is not None and fault.kind is FaultKind.ILLEGAL_ADDRESS
    assert fault.advice and fault.kernel
