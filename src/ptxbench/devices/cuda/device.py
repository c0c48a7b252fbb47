"""One GPU as a device: plans replayed and counted in processes of their own."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any

from ptxbench.core import (
    Artifact,
    Capabilities,
    DeviceError,
    Fault,
    FaultKind,
    LaunchPlan,
    Mode,
    Observation,
    RunOptions,
    Target,
)
from ptxbench.devices.cuda.bundle import executable
from ptxbench.devices.cuda.counters import counters_library, site_counts
from ptxbench.devices.cuda.counting import count_plan
from ptxbench.devices.cuda.executors import Executors
from ptxbench.devices.cuda.process import ExecutorProcess, stray_write
from ptxbench.devices.cuda.turnstile import Turnstile
from ptxbench.native import Cache

SPARES = 4
"""Processes started ahead: one to replay the next candidate, and one to count each kernel of a plan of three."""

STEP_SECONDS = 60.0
"""Allowed for loading a plan and for moving a buffer, which no kernel can prolong."""

LIBRARIES = ("torch", "nvidia-cublas", "nvidia-cudnn-cu13", "flash-attn-4")

_TIMED_SAMPLES = 10
_ADVICE = {
    FaultKind.ILLEGAL_ADDRESS: "Look for an index or a tensor map that leaves its buffer, and for unset pointers.",
    FaultKind.MISALIGNED_ADDRESS: "Vector accesses and bulk copies need addresses that are multiples of their size.",
    FaultKind.ILLEGAL_INSTRUCTION: "Check descriptors, shapes and operands of the asynchronous instructions.",
    FaultKind.TRAP: "The kernel executed a trap or a failed assertion.",
    FaultKind.IMPOSSIBLE_LAUNCH: "Check grid, block, cluster and dynamic shared memory against the device's limits.",
    FaultKind.OUT_OF_MEMORY: "Ask for less workspace and fewer allocations.",
}


class CudaDevice:
    """The first visible GPU (`core.Device`); safe to use from several threads.

    ``alone`` is held while a plan runs, so that one candidate has the device at a time; hold it for longer to keep the
    device over several steps. Use it in a ``with`` statement: leaving it ends every process.
    """

    def __init__(self, cache: Cache | None = None, *, spares: int = SPARES) -> None:
        """Starts the first executors. `DeviceError` without a GPU, its driver or the bindings."""
        self.cache = cache or Cache()
        self.alone = Turnstile()
        self.executors = Executors(spares)
        try:
            self.properties: dict[str, Any] = self.executors.of("").device
        except BaseException:
            self.executors.close()
            raise
        self.executors.dismiss("")

    @property
    def busy_s(self) -> float:
        """Seconds for which some candidate has had the device."""
        return self.alone.held_s

    @property
    def name(self) -> str:
        """The GPU's name."""
        return str(self.properties["name"])

    def libraries(self) -> dict[str, str]:
        """Versions of the installed packages that candidates may be timed against (`LIBRARIES`)."""
        found: dict[str, str] = {}
        for package in LIBRARIES:
            with suppress(importlib.metadata.PackageNotFoundError):
                found[package] = importlib.metadata.version(package)
        return found

    @property
    def target(self) -> Target:
        """The target whose code this GPU runs; `DeviceError` for a GPU of another kind."""
        capability = tuple(self.properties["compute_capability"])
        for target in Target:
            if target.sheet.compute_capability == capability:
                return target
        raise DeviceError(f"{self.properties['name']} runs none of the targets {', '.join(Target)}; use --device sim.")

    @cached_property
    def counters(self) -> Path:
        """The counting library, built once per machine."""
        return counters_library(self.cache)

    def capabilities(self) -> Capabilities:
        """Counts and times on hardware; hazards are the simulator's business."""
        return Capabilities(
            name=self.name,
            targets=(self.target,),
            counts=True,
            times=True,
            hazards=False,
            exact_perturbation=False,
            properties={name: value for name, value in self.properties.items() if name not in ("name", "pci_bus_id")},
        )

    def run(
        self, artifact: Artifact, plan: LaunchPlan, buffers: Mapping[str, memoryview], options: RunOptions
    ) -> Observation:
        """See `core.Device`. One artifact's runs share a process until `dismiss`, as long as none faults."""
        given = {b.name: bytes(buffers[b.name]) for b in plan.buffers if b.role == "input"}
        with self.alone:
            observation = self._replay(artifact, plan, buffers, options)
            if observation.fault is None and options.mode is Mode.COUNT:
                counted = self.count(artifact, plan, given, seconds=options.time_limit_s)
                return observation.model_copy(update=counted)
        return observation

    def count(
        self,
        artifact: Artifact,
        plan: LaunchPlan,
        inputs: Mapping[str, bytes],
        *,
        imports: Mapping[str, Mapping[str, Any]] | None = None,
        seconds: float = STEP_SECONDS,
    ) -> dict[str, Any]:
        """What counting adds to an observation: ``counts``, or ``fault``."""
        counted = count_plan(
            artifact, plan, inputs, self.counters, seconds, imports=imports, fresh=self.executors.fresh
        )
        if isinstance(counted, Fault):
            return {"fault": self.explain(counted, plan)}
        return {"counts": site_counts(artifact, (row for kernel in counted for row in kernel.rows))}

    def load(
        self, artifact: Artifact, plan: LaunchPlan, imports: Mapping[str, Mapping[str, Any]] | None = None
    ) -> tuple[ExecutorProcess, Fault | None]:
        """The artifact's executor with ``plan`` loaded; ``imports`` maps buffers that another process holds."""
        executor = self.executors.of(artifact.digest)
        reply = executor.request(
            "load", STEP_SECONDS, artifact=executable(artifact).model_dump(mode="json"),
            plan=plan.model_dump(mode="json"), imports=dict(imports or {}),
        )
        return executor, reply.fault and self.explain(reply.fault, plan)

    def dismiss(self, artifact_digest: str) -> None:
        """Has the artifact's executor ended as soon as no candidate has the device; does not wait for that."""
        self.alone.when_free(partial(self.executors.dismiss, artifact_digest))

    def close(self) -> None:
        """Ends every process."""
        self.executors.close()

    def explain(self, fault: Fault, plan: LaunchPlan) -> Fault:
        """The fault with its kernel, where the plan has only one, and with advice."""
        kernels = plan.kernels()
        return fault.model_copy(update={
            "kernel": fault.kernel or (kernels[0] if len(kernels) == 1 else ""),
            "advice": fault.advice or _ADVICE.get(fault.kind, ""),
        })  # fmt: skip

    def _replay(
        self, artifact: Artifact, plan: LaunchPlan, buffers: Mapping[str, memoryview], options: RunOptions
    ) -> Observation:
        executor, fault = self.load(artifact, plan)
        if fault is not None:
            return self._observed(fault=fault)
        for name, content in buffers.items():
            executor.request("write", STEP_SECONDS, content, buffer=name)
        reply = executor.request("run", options.time_limit_s, graph=False, keep=True)
        fault = reply.fault or stray_write(reply.header["stray_writes"])
        samples: tuple[float, ...] = ()
        if fault is None and options.mode is Mode.TIME:
            timed = executor.request("time", options.time_limit_s, graph=True, samples=_TIMED_SAMPLES)
            fault = timed.fault
            samples = tuple(float(sample["event_ms"]) for sample in timed.header.get("samples", ()))
        if fault is not None:
            return self._observed(fault=self.explain(fault, plan))
        for buffer in plan.buffers:
            if buffer.role == "output":
                buffers[buffer.name][:] = executor.request("read", STEP_SECONDS, buffer=buffer.name).blob
        header = reply.header
        return self._observed(
            changed_inputs=tuple(header["changed_inputs"]), seconds=header["seconds"], samples_ms=samples
        )

    def _observed(self, **fields: Any) -> Observation:
        return Observation(device=self.name, **fields)

    def __enter__(self) -> CudaDevice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

