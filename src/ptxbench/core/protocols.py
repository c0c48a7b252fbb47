"""The small protocols between rooms. Implementations never import each other; the composition root joins them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ptxbench.core.artifact import Artifact, Candidate
from ptxbench.core.observation import Observation, RunOptions
from ptxbench.core.plan import LaunchPlan
from ptxbench.core.record import Record
from ptxbench.core.targets import Target
from ptxbench.core.verdict import Verdict


class Capabilities(Record):
    """What a device can answer. ``exact_perturbation`` means that `RunOptions.perturbation` is honoured."""

    name: str
    targets: tuple[Target, ...]
    counts: bool
    times: bool
    hazards: bool
    exact_perturbation: bool
    properties: dict[str, Any] = {}


class Device(Protocol):
    """Replays plans. One device may be used from several threads; each call is independent of every other."""

    def capabilities(self) -> Capabilities:
        """What this device can answer, and what it is (for the verdict's ``device`` field)."""
        ...

    def run(
        self, artifact: Artifact, plan: LaunchPlan, buffers: Mapping[str, memoryview], options: RunOptions
    ) -> Observation:
        """Replays ``plan`` once.

        ``buffers`` maps every input, output and workspace buffer of the plan to writable bytes of its exact size;
        outputs are written there. Allocations are the device's own and start poisoned; symbols start at the
        artifact's initial values. A candidate's misbehaviour is a `Fault` in the observation; `DeviceError` is raised
        for anything else.
        """
        ...


class Evaluator(Protocol):
    """Judges a candidate: the local pipeline, a service client or a fleet."""

    def evaluate(self, candidate: Candidate) -> Verdict:
        """The verdict; raises `UsageError` or `InfrastructureError` where there can be none."""
        ...


class Progress(Protocol):
    """Receives the name of the stage that begins, for display."""

    def __call__(self, stage: str) -> None:
        """Announces that ``stage`` begins."""
        ...
