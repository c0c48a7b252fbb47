"""One input of the simulator: PTX, a launch plan and how to run it; and what becomes of it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ptxbench.core import (
    Artifact,
    DeviceError,
    KernelFacts,
    KernelSass,
    LaunchPlan,
    ParameterSlot,
    Record,
    RunOptions,
    SassInstruction,
    Target,
    UnsupportedError,
)
from ptxbench.simulator import Program, execute, load

STEP_LIMIT = 20_000
TIME_LIMIT_S = 2.0
_KEPT = (SassInstruction(offset=0, opcode="USETMAXREG.DEALLOC.CTAPOOL", operands=""),)
_NUMBER = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}|%?\b[a-z_$]*\d+\b|-?\d+")
_OWN_FAULT = "The simulator's machine"  # how a DeviceError begins that is not the plan's


class Case(Record):
    """``registers`` and ``moves_registers`` are what a cubin would say; the other facts of a kernel follow from the
    PTX.
    """

    ptx: str
    plan: LaunchPlan
    options: RunOptions
    registers: int = 64
    moves_registers: bool = False

    def save(self, path: Path) -> None:
        """Writes the case as JSON."""
        path.write_text(self.model_dump_json(indent=1) + "\n")


def read_case(path: Path) -> Case:
    """A saved case."""
    return Case.model_validate_json(path.read_text())


def options(**changes: object) -> RunOptions:
    """Options with the limits of a fuzzed run."""
    return RunOptions(step_limit=STEP_LIMIT, time_limit_s=TIME_LIMIT_S).model_copy(update=changes)


def run_case(case: Case, machine: ctypes.CDLL | None = None) -> str:
    """Runs a case, on the plain machine or another. Says how it ended: a fault's kind, ``finished``, ``refused`` or
    ``unfit``, with the hazards or the reason without its numbers. Whatever is raised is a defect of the simulator, as
    is an end of the process.
    """
    try:
        program = load(case.ptx, case.plan.kernels(), machine)
        seen = execute(program, _artifact(program, case), case.plan, _buffers(case.plan), case.options)
    except UnsupportedError as error:
        return f"refused: {_without_numbers(str(error))}"
    except DeviceError as error:
        if str(error).startswith(_OWN_FAULT):
            raise
        return f"unfit: {_without_numbers(str(error))}"
    if seen.fault is not None:
        return f"{seen.fault.kind}: {_without_numbers(seen.fault.message)}"
    return " ".join(["finished", *sorted({hazard.kind for hazard in seen.hazards})])


def _without_numbers(message: str) -> str:
    return _NUMBER.sub("#", message)


def _artifact(program: Program, case: Case) -> Artifact:
    kernels = program.image.kernels
    facts = tuple(
        KernelFacts(
            name=kernel.name, parameters=(ParameterSlot(offset=0, size=kernel.param_bytes),),
            registers=case.registers, static_shared=kernel.static_shared, local=kernel.local_bytes,
            max_threads=kernel.max_threads, required_cluster=kernel.required_cluster,
        )
        for kernel in kernels
    )  # fmt: skip
    sass = tuple(KernelSass(kernel=kernel.name, instructions=_KEPT) for kernel in kernels if case.moves_registers)
    return Artifact(
        digest="", source_digest="", target=Target(program.image.target), ptx="", cubin=b"", host_library=b"",
        kernels=facts, sass=sass, remarks=(), versions={},
    )  # fmt: skip


def _buffers(plan: LaunchPlan) -> dict[str, memoryview]:
    rng = np.random.default_rng(0)
    return {
        buffer.name: memoryview(bytearray(rng.bytes(buffer.bytes)))
        for buffer in plan.buffers
        if buffer.role in ("input", "output", "workspace")
    }


def cases_in(folder: Path) -> Sequence[Path]:
    """The saved cases of a folder."""
    return sorted(folder.glob("*.json"))
