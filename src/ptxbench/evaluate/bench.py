"""What happens on the GPU itself, behind calls that may come from other processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ptxbench.core import (
    Artifact,
    Capabilities,
    LaunchPlan,
    Observation,
    OutputReport,
    RunOptions,
    Task,
    Workload,
)
from ptxbench.devices import Arena, Check, CudaDevice, OutputStatistics, Race, Session, stray_write
from ptxbench.evaluate.stages import Stages, silent
from ptxbench.judge import (
    MAX_FACTOR,
    BlockStatistics,
    Ceilings,
    Evidence,
    Run,
    blocks_for,
    judge_instructions,
    judge_statistics,
    judge_timing,
    refusal,
    with_simulated,
    worst_of,
)
from ptxbench.native import Cache
from ptxbench.tasks import OPERATIONS, make_problem

FULL_LIMIT_S = 10.0
"""Seconds of one run at full size; an honest kernel of one thread per output needs about two."""

COUNTABLE_S = 0.05
"""Longest run that is counted at full size. Counting makes a kernel about 150 times slower (measured on an H200)."""

COUNT_LIMIT_S = 30.0
"""Seconds of one counted kernel."""

TIMED_BASES = 2
"""Base sets that timed inputs are made of."""


Request = tuple[LaunchPlan, Mapping[str, bytes], RunOptions]
"""A plan, the bytes of every input, output and workspace, and how to run it."""


class Bench:
    """One GPU with its verifier and its baselines; one candidate at a time has it. Safe for several threads."""

    def __init__(self, cache: Path, cubin: Path) -> None:
        """Starts the first processes; ``cubin`` holds the verifier's kernels. `DeviceError` without a usable GPU."""
        self.device = CudaDevice(Cache(cache))
        self.arena = Arena(self.device, cubin)

    def capabilities(self) -> Capabilities:
        """See `core.Device`."""
        return self.device.capabilities()

    def libraries(self) -> dict[str, str]:
        """See `CudaDevice.libraries`."""
        return self.device.libraries()

    def busy_s(self) -> float:
        """See `CudaDevice.busy_s`."""
        return self.device.busy_s

    def replay(self, artifact: Artifact, requests: Sequence[Request]) -> list[tuple[Observation, dict[str, bytes]]]:
        """Observations and outputs of one artifact's replays, one after the other, up to the first that faults.

        The device is the artifact's for all of them.
        """
        answers: list[tuple[Observation, dict[str, bytes]]] = []
        with self.device.alone:
            for plan, buffers, options in requests:
                views = {name: bytearray(content) for name, content in buffers.items()}
                seen = self.device.run(artifact, plan, {name: memoryview(v) for name, v in views.items()}, options)
                answers.append((seen, {b.name: bytes(views[b.name]) for b in plan.buffers if b.role == "output"}))
                if seen.fault:
                    break
        return answers

    def dismiss(self, artifact_digest: str) -> None:
        """Ends the executor that ran an artifact."""
        self.device.dismiss(artifact_digest)

    def full(self, evidence: Evidence, workload: Workload) -> tuple[Evidence, dict[str, float]]:
        """The core workload: compared, counted, timed, each only if nothing speaks against the candidate so far.

        The last plan of ``evidence`` is the workload's. Returns the evidence with what was seen, and seconds by stage.
        """
        stages = Stages(silent)
        with self.arena.opened(evidence.task, workload.sizes) as session:
            for name, step in (("running", self._run), ("counting", self._count), ("timing", self._time)):
                with stages(f"{name} at full size"):
                    evidence = step(evidence, workload, session)
                if refusal(evidence):
                    break
        return evidence, stages.seconds

    def close(self) -> None:
        """Ends every process."""
        self.arena.close()
        self.device.close()

    def _run(self, evidence: Evidence, workload: Workload, session: Session) -> Evidence:
        session.make(evidence.task.distributions[0], _seed(evidence, 2))
        full = session.run(evidence.built, evidence.plans[-1], seconds=FULL_LIMIT_S, bad_above=MAX_FACTOR)
        reports = {} if full.check is None else _reports(evidence.task, workload.sizes, full.check)
        return _with_run(evidence, workload, full.observation, reports)

    def _count(self, evidence: Evidence, workload: Workload, session: Session) -> Evidence:
        """Counts at full size; a kernel so slow that it would hold the device for minutes, at the first small size."""
        task, artifact = evidence.task, evidence.built
        if evidence.runs[-1].observation.seconds <= COUNTABLE_S:
            plan = evidence.plans[-1]
            seen = session.count(artifact, plan, seconds=COUNT_LIMIT_S)
        else:
            plan, workload = evidence.plans[0], _workload_of(task, evidence.plans[0])
            drawn = make_problem(task, workload, task.distributions[0], _seed(evidence, 1)).inputs
            inputs = {name: tensor.tobytes() for name, tensor in drawn.items()}
            seen = self.device.count(artifact, plan, inputs, seconds=COUNT_LIMIT_S)
        if "fault" in seen:
            return _with_run(evidence, workload, Observation(device=self.device.name, fault=seen["fault"]), {})
        report = judge_instructions(task, evidence.candidate, artifact, plan, seen["counts"])
        known = with_simulated(report, evidence.instructions, evidence.candidate.target)
        return replace(evidence, instructions=known)

    def _time(self, evidence: Evidence, workload: Workload, session: Session) -> Evidence:
        task, sizes = evidence.task, workload.sizes
        libraries, absent = self.arena.libraries(task, sizes)
        if not libraries:
            why = "; ".join(f"{name}: {reason}" for name, reason in absent.items()) or "the task names no library"
            return replace(evidence, notes=(*evidence.notes, f"Not timed, for want of a baseline. {why}"))
        for number in range(1, TIMED_BASES):
            session.make(task.distributions[0], _seed(evidence, 2 + number))
        race = session.race(
            evidence.built, evidence.plans[-1], libraries[0], blocks=blocks_for(libraries[0].ms), bad_above=MAX_FACTOR
        )
        reports = worst_of([_reports(task, sizes, check) for check in race.checks]) if race.checks else {}
        timed = _with_run(evidence, workload, _timed_calls(self.device, race), reports)
        if refusal(timed):
            return timed
        timing = judge_timing(
            task, sizes, races=[(turns.a, turns.b) for turns in race.turns],
            libraries=[(library.name, library.version, library.ms) for library in libraries], absent=absent,
            ceilings=Ceilings(**self.arena.ceilings()), conditions={**race.conditions, "graph": race.graph},
        )
        return replace(timed, timing=timing)


def _workload_of(task: Task, plan: LaunchPlan) -> Workload:
    return next(workload for workload in task.workloads if workload.sizes == plan.sizes)


def _seed(evidence: Evidence, number: int) -> int:
    """A seed of its own for each base set (62 bits)."""
    return int(np.random.default_rng((evidence.seeds[0], number)).integers(1 << 62))


def _reports(task: Task, sizes: dict[str, int], check: Check) -> dict[str, OutputReport]:
    blocks = OPERATIONS[task.operation].blocks(task)
    return {
        a.name: judge_statistics(a, _in_blocks(check.outputs[a.name], blocks[a.name], a.dims(sizes)))
        for a in task.outputs
    }


def _in_blocks(found: OutputStatistics, block: tuple[int, ...], shape: tuple[int, ...]) -> BlockStatistics:
    """The verifier's statistics, whose block arrays are [matrices, rows, columns], along the output's own axes."""
    counts = tuple(-(-extent // of) for extent, of in zip(shape, block, strict=True))
    rms, largest = (None if a is None else a.reshape(counts) for a in (found.rms_blocks, found.max_blocks))
    return BlockStatistics(
        elements=found.elements, rms=found.rms, worst_rms=found.worst_rms_block, largest=found.max, bad=found.bad,
        unwritten=found.unwritten, not_finite=found.not_finite, first_bad=found.first_bad, block=block,
        rms_blocks=rms, max_blocks=largest,
    )


def _with_run(
    evidence: Evidence, workload: Workload, observation: Observation, reports: dict[str, OutputReport]
) -> Evidence:
    run = Run(
        workload.sizes, workload.tier, evidence.task.distributions[0], observation,
        {} if observation.fault else reports,
    )
    return replace(evidence, runs=(*evidence.runs, run))


def _timed_calls(device: CudaDevice, race: Race) -> Observation:
    """All timed calls as one observation."""
    stray = dict.fromkeys(name for check in race.checks for name in check.stray_writes)
    changed = dict.fromkeys(name for check in race.checks for name in check.changed_inputs)
    return Observation(
        device=device.name, fault=race.fault or stray_write(tuple(stray)), changed_inputs=tuple(changed),
        samples_ms=tuple(ms for turns in race.turns for pair in turns.a for ms in pair),
    )
