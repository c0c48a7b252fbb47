"""The simulator does what every device must do."""

from __future__ import annotations

import threading
import time

import pytest
from devices_prepared import Prepared

from ptxbench.core import Cancelled, RunOptions, Target
from ptxbench.devices import SimulatorDevice, conformance
from ptxbench.devices.conformance import BASE, CASES, Case, run_case, run_once
from ptxbench.native import Cache


@pytest.fixture(scope="module")
def device(shared_cache: Cache) -> SimulatorDevice:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTXBENCH_CACHE", str(shared_cache.root))
        device = SimulatorDevice()
        device.prepare()
        return device


@pytest.mark.parametrize("target", Target)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_simulator_conforms(device: SimulatorDevice, prepared: Prepared, case: Case, target: Target) -> None:
    assert run_case(device, case, *prepared(case, target)) == ""
    # Whatever happened, the next run works.
    assert run_case(device, BASE, *prepared(BASE, target)) == ""


def test_every_launcher_has_a_case() -> None:
    named = {case.launcher for case in CASES}
    lines = conformance.source().splitlines()
    assert named == {line.split("(")[1].split(")")[0] for line in lines if line.startswith("LAUNCHER(")}
    assert len({case.name for case in CASES}) == len(CASES)


def test_a_device_that_does_nothing_fails(prepared: Prepared) -> None:
    """The checks themselves can fail: every case but those that only forbid something notices a device that idles."""

    class Idle(SimulatorDevice):
        def run(self, artifact, plan, buffers, options):  # type: ignore[no-untyped-def]
            nothing = plan.model_copy(update={"nodes": ()})
            return super().run(artifact, nothing, buffers, options)

    unnoticed = [case.name for case in CASES if not run_case(Idle(), case, *prepared(case, Target.SM_90A))]
    assert unnoticed == ["workspace is the caller's", "allocations are poisoned"]


def test_a_run_is_called_off_from_another_thread(shared_cache: Cache, prepared: Prepared) -> None:
    endless = next(case for case in CASES if case.launcher == "launch_endless")
    artifact, plan = prepared(endless, Target.SM_90A)
    stop = threading.Event()
    device = SimulatorDevice(stop)
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(Cancelled):
        run_once(device, artifact, plan, RunOptions(time_limit_s=60))
    assert 0.2 < time.monotonic() - begin < 2.0
