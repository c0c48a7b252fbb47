"""How a device answers the three questions about a candidate that compiles: the seam between simulator and GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ptxbench.core import Device, Task, Tier, Workload
from ptxbench.evaluate.replay import replay_all, weigh
from ptxbench.evaluate.stages import Stages
from ptxbench.evaluate.trials import simulator_trials
from ptxbench.judge import Evidence


class Examiner(Protocol):
    """Gathers what one device has to say. Safe to use from several threads."""

    def workloads(self, task: Task, tiers: Sequence[Tier]) -> tuple[Workload, ...]:
        """The workloads to record, in the order in which they are tried."""
        ...

    def versions(self) -> dict[str, str]:
        """Name and version of what this device's answers depend on, beyond what the device itself tells."""
        ...

    def examine(self, evidence: Evidence, tiers: Sequence[Tier], stages: Stages) -> Evidence:
        """``evidence`` (with artifact and one plan per workload) and what was observed, as far as it had to go."""
        ...


@dataclass(frozen=True)
class SimulatorExaminer:
    """Replays under several schedules on the CPU, ``threads`` at a time; counts and knock-out on the same runs."""

    device: Device
    threads: int

    def workloads(self, task: Task, tiers: Sequence[Tier]) -> tuple[Workload, ...]:
        """Those of the tiers, in the row's order."""
        return task.of_tier(*tiers)

    def versions(self) -> dict[str, str]:
        """Nothing: the simulator is part of this package."""
        return {}

    def examine(self, evidence: Evidence, tiers: Sequence[Tier], stages: Stages) -> Evidence:
        """See `Examiner`."""
        (seed,), task = evidence.seeds, evidence.task
        with stages("simulating"):
            trials = simulator_trials(task, tiers, seed)
            replays = replay_all(self.device, evidence.built, evidence.plans, task, trials, self.threads)
        with stages("judging"):
            return weigh(evidence, replays)
