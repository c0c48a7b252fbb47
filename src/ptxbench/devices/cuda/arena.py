"""Full-size work on a GPU: the verifier's buffers, one candidate's executor, and the libraries it is timed against."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ptxbench.core import Artifact, DeviceError, Fault, LaunchPlan, Observation, Task
from ptxbench.devices.cuda.conditions import Condition, Conditions, summarised
from ptxbench.devices.cuda.device import STEP_SECONDS, CudaDevice
from ptxbench.devices.cuda.process import ExecutorProcess, stray_write
from ptxbench.devices.cuda.timing import Sample
from ptxbench.devices.cuda.turns import Faulted, Timer, Turns, take_valid_blocks, timer_of
from ptxbench.devices.cuda.verifier import Check, SharedBuffer, Verifier

BASELINE = "ptxbench.devices.cuda.baseline"
LOAD_SECONDS = 300.0
"""Allowed for readying the libraries: some compile their kernels first."""

PLACES = 6
"""In so many places of device memory a candidate and its baseline are timed: where buffers lie to each other changes
how a kernel's accesses meet in caches and channels, by up to 2 % of the time of kernels that are not tuned for it.
"""

RACE_SECONDS = 10.0
"""After so long, in all places, a race ends with the blocks that it has: slow work cannot hold the device."""


@dataclass(frozen=True)
class Library:
    """A library that was timed, ``ms`` alone; ``graph`` says whether its work is replayed as a graph."""

    name: str
    version: str
    ms: float
    graph: bool


@dataclass(frozen=True)
class FullRun:
    """One run on the verifier's buffers: what the device saw, and the comparison unless a fault left none."""

    observation: Observation
    check: Check | None


@dataclass(frozen=True)
class Race:
    """Times that candidate (A) and library (B) took in turns, by place in memory. ``checks`` are of every timed call of
    the candidate; ``fault`` ended the race early.
    """

    turns: tuple[Turns, ...] = ()
    checks: tuple[Check, ...] = ()
    conditions: dict[str, object] = field(default_factory=dict[str, object])
    graph: bool = True
    fault: Fault | None = None


class Arena:
    """Verifier and baselines of one device, kept for any number of candidates and tasks.

    Everything here needs the device alone (`CudaDevice.alone`), from `opened` to the end of its block.
    """

    def __init__(self, device: CudaDevice, cubin: Path) -> None:
        """``cubin`` holds the verifier's kernels (see `verifier_cubin`).

        The processes start when they are needed first.
        """
        self._device = device
        self._cubin = cubin
        self._verifier: Verifier | None = None
        self._baseline: ExecutorProcess | None = None
        self._place: tuple[str, dict[str, int]] | None = None
        self._loaded: tuple[tuple[Library, ...], dict[str, str]] | None = None
        self._ceilings: dict[str, float] = {}
        self.imports: tuple[dict[str, dict[str, Any]], ...] = ()

    @contextmanager
    def opened(self, task: Task, sizes: Mapping[str, int]) -> Generator[Session]:
        """The verifier's buffers for a task at its sizes; base sets made in the session are given back at its end."""
        with self._device.alone:
            try:
                session = Session(self, self._open(task, sizes))
                yield session
                session.close()
            except BaseException:
                self.close()  # whatever state the processes are in, the next candidate gets new ones
                raise

    def _open(self, task: Task, sizes: Mapping[str, int]) -> Verifier:
        place = (task.model_dump_json(), dict(sizes))
        if self._verifier is None:
            self._verifier = Verifier(self._cubin)
        if self._place != place:
            if self._baseline is not None:
                self._baseline.request("unload", STEP_SECONDS)
            self._place, self._loaded = None, None
            places = self._verifier.open(task, sizes, PLACES)
            self.imports = tuple(map(_imports, places))
            self._place = place
        return self._verifier

    @property
    def device(self) -> CudaDevice:
        """The device that all of this happens on."""
        return self._device

    def libraries(self, task: Task, sizes: Mapping[str, int]) -> tuple[tuple[Library, ...], dict[str, str]]:
        """Libraries that can do the task, the fastest first, and why others cannot. Something must have been staged."""
        if self._loaded is None:
            try:
                baseline = self.baseline()
            except DeviceError as error:
                self._loaded = ((), {name: str(error) for name in task.baselines})
                return self._loaded
            header = baseline.request(
                "load", LOAD_SECONDS, task=task.model_dump(mode="json"), sizes=dict(sizes), places=self.imports
            ).header
            self._loaded = (tuple(Library(**entry) for entry in header["libraries"]), header["absent"])
        return self._loaded

    def baseline(self) -> ExecutorProcess:
        """The baseline executor; `DeviceError` where PyTorch is missing."""
        if self._baseline is None or not self._baseline.alive:
            self._baseline = ExecutorProcess(BASELINE)
            self._loaded = None
        return self._baseline

    def ceilings(self) -> dict[str, float]:
        """Measured once: ``flops_per_second`` of bf16 products and ``bytes_per_second`` of copies."""
        if not self._ceilings:
            self._ceilings = self.baseline().request("ceilings", STEP_SECONDS).header
        return self._ceilings

    def close(self) -> None:
        """Ends both processes; they start again when they are needed."""
        if self._baseline is not None:
            self._baseline.close()
        if self._verifier is not None:
            self._verifier.close()
        self._baseline, self._verifier, self._place, self._loaded = None, None, None, None


class Session:
    """One candidate's stay in the arena. Sample numbers are used once, so that no timed input repeats."""

    def __init__(self, arena: Arena, verifier: Verifier) -> None:
        self._arena = arena
        self._verifier = verifier
        self._bases: list[int] = []
        self._samples = count()

    def make(self, distribution: str, seed: int) -> dict[str, float]:
        """Adds a base set; the seconds that its parts took."""
        made = self._verifier.make(distribution, seed)
        self._bases.append(made.base)
        return made.seconds

    def drop(self) -> None:
        """Gives the newest base set back."""
        self._verifier.drop(self._bases.pop())

    def stage(self, place: int = 0) -> None:
        """Fresh inputs from the base sets by turns, poisoned outputs."""
        number = next(self._samples)
        self._verifier.stage(self._bases[number % len(self._bases)], number, place)

    def run(self, artifact: Artifact, plan: LaunchPlan, *, seconds: float, bad_above: float) -> FullRun:
        """Replays ``plan`` once on fresh inputs and has every element compared (see `Verifier.check`)."""
        device = self._arena.device
        self.stage()
        executor, fault = device.load(artifact, plan, self._arena.imports[0])
        if fault is not None:
            return self._faulted(fault)
        reply = executor.request("run", seconds, graph=False)
        fault = reply.fault or stray_write(reply.header["stray_writes"])
        if fault is not None:
            return self._faulted(device.explain(fault, plan))
        check = self._verifier.check(bad_above, blocks=True)
        return FullRun(
            Observation(
                device=device.name, seconds=reply.header["seconds"],
                fault=stray_write(check.stray_writes), changed_inputs=check.changed_inputs,
            ),
            check,
        )

    def count(self, artifact: Artifact, plan: LaunchPlan, *, seconds: float) -> dict[str, Any]:
        """Executed counts of ``plan`` on fresh inputs, in processes of their own: see `CudaDevice.count`."""
        self.stage()
        inputs = {b.name for b in plan.buffers if b.role == "input"}
        imports = {name: source for name, source in self._arena.imports[0].items() if name in inputs}
        return self._arena.device.count(artifact, plan, {}, imports=imports, seconds=seconds)

    def check_library(self, name: str, bad_above: float) -> Check:
        """A library's results on fresh inputs, compared like a candidate's."""
        self.stage()
        self._arena.baseline().request("run", STEP_SECONDS, library=name)
        return self._verifier.check(bad_above, blocks=True)

    def race(
        self, artifact: Artifact, plan: LaunchPlan, library: Library, *, blocks: int, bad_above: float
    ) -> Race:
        """Times the candidate and the fastest library in turns on fresh inputs, in every place, ``blocks`` blocks or a
        few more in all, and compares the candidate's every result.
        """
        device, graph, places = self._arena.device, library.graph, len(self._arena.imports)
        checks, turns, seen = list[Check](), list[Turns](), list[Condition]()
        try:
            with Conditions(device.properties["pci_bus_id"]) as conditions:
                for place in range(places):
                    own = self._candidate_timer(artifact, plan, graph, place)

                    def candidate(own: Timer = own) -> Sample:
                        sample = own()
                        checks.append(self._verifier.check(bad_above))
                        return sample

                    taken, found = take_valid_blocks(
                        candidate, self.library_timer(library, graph, place), -(-blocks // places), conditions.read,
                        seconds=RACE_SECONDS / places,
                    )
                    turns.append(taken)
                    seen += found
        except Faulted as stopped:
            return Race(fault=device.explain(stopped.fault, plan), checks=tuple(checks), graph=graph)
        return Race(turns=tuple(turns), checks=tuple(checks), conditions=summarised(seen), graph=graph)

    def _candidate_timer(self, artifact: Artifact, plan: LaunchPlan, graph: bool, place: int) -> Timer:
        """Takes a sample of the candidate, loaded now for the buffers in ``place``, on fresh inputs; `Faulted` if it
        cannot be loaded.
        """
        executor, fault = self._arena.device.load(artifact, plan, self._arena.imports[place])
        if fault is not None:
            raise Faulted(fault)
        own = timer_of(executor, graph=graph)

        def candidate() -> Sample:
            self.stage(place)
            return own()

        return candidate

    def library_timer(self, library: Library, graph: bool, place: int = 0) -> Timer:
        """Takes a sample of a library on fresh inputs; elsewhere than in place 0, of the fastest library only."""
        other = timer_of(self._arena.baseline(), graph=graph, library=library.name, place=place)

        def baseline() -> Sample:
            self.stage(place)
            try:
                return other()
            except Faulted as error:
                raise DeviceError(f"The baseline {library.name} failed while it was timed: {error}") from error

        return baseline

    def close(self) -> None:
        """Gives the base sets back."""
        while self._bases:
            self.drop()

    def _faulted(self, fault: Fault) -> FullRun:
        return FullRun(Observation(device=self._arena.device.name, fault=fault), None)


def _imports(buffers: Mapping[str, SharedBuffer]) -> dict[str, dict[str, Any]]:
    """What an executor needs to map the buffers."""
    return {name: {"handle": buffer.handle, "offset": buffer.offset} for name, buffer in buffers.items()}
