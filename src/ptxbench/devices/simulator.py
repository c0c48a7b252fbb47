"""The simulator as a device."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ptxbench.core import Artifact, Capabilities, LaunchPlan, Observation, RunOptions, Target
from ptxbench.simulator import Program, execute, load, machine_library

KEPT_PROGRAMS = 8
"""Lowered programs kept for further runs; a judge needs one for each candidate in flight."""


class SimulatorDevice:
    """Replays plans on the CPU: exact counts and hazards, no times. Safe to use from several threads.

    Setting ``stop`` ends the runs of all threads within a fraction of a second, with `Cancelled`.
    """

    def __init__(self, stop: threading.Event | None = None) -> None:
        self.stop = stop or threading.Event()
        self._lock = threading.Lock()
        self._programs: dict[tuple[str, tuple[str, ...]], Program] = {}

    def capabilities(self) -> Capabilities:
        """Both targets; everything but time."""
        return Capabilities(
            name="simulator",
            targets=tuple(Target),
            counts=True,
            times=False,
            hazards=True,
            exact_perturbation=True,
        )

    def prepare(self) -> str:
        """Builds the machine's library if it is not in the cache; returns its path."""
        return machine_library()._name

    def run(
        self, artifact: Artifact, plan: LaunchPlan, buffers: Mapping[str, memoryview], options: RunOptions
    ) -> Observation:
        """See `core.Device`. `UnsupportedError` names an instruction that the simulator does not implement."""
        return execute(self._program(artifact, plan), artifact, plan, buffers, options, self.stop)

    def _program(self, artifact: Artifact, plan: LaunchPlan) -> Program:
        key = (artifact.digest, plan.kernels())
        with self._lock:
            if key not in self._programs:
                while len(self._programs) >= KEPT_PROGRAMS:
                    del self._programs[next(iter(self._programs))]
                self._programs[key] = load(artifact.ptx, plan.kernels())
            return self._programs[key]
