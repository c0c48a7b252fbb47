"""What one compile of a candidate produced: PTX, machine code and host library of the same source, one digest."""

from __future__ import annotations

import hashlib
from typing import Literal

from ptxbench.core.record import Record
from ptxbench.core.targets import Target

SourceFrame = tuple[str, int]
"""(file, line), 1-based. A chain of frames reads innermost (inlined) first."""


class Candidate(Record):
    """One source file for one task on one target. ``digest`` is the SHA-256 of the source text, hexadecimal."""

    task: str
    target: Target
    source: str
    digest: str
    origin: str = ""


def make_candidate(source: str, *, task: str, target: Target, origin: str) -> Candidate:
    """A candidate from source text; ``origin`` is a name for people."""
    digest = hashlib.sha256(source.encode()).hexdigest()
    return Candidate(task=task, target=target, source=source, digest=digest, origin=origin)


class Remark(Record):
    """A compiler diagnostic that concerns the candidate's own text. ``line`` is 1-based, 0 where unknown."""

    severity: Literal["error", "warning", "remark"]
    line: int
    message: str
    tool: str = "nvcc"


class ParameterSlot(Record):
    """Where a kernel parameter lies in the parameter block; offset and size in bytes."""

    offset: int
    size: int


class KernelFacts(Record):
    """What the cubin says of one kernel. Sizes in bytes; ``required_cluster`` is the compiled-in cluster shape."""

    name: str
    parameters: tuple[ParameterSlot, ...]
    registers: int
    static_shared: int
    local: int
    max_threads: int | None = None
    required_cluster: tuple[int, int, int] | None = None


class SassInstruction(Record):
    """One machine instruction. ``offset`` is its byte address in the kernel; ``frames`` its source, innermost first."""

    offset: int
    opcode: str
    operands: str
    predicate: str = ""
    frames: tuple[SourceFrame, ...] = ()


class KernelSass(Record):
    """The disassembly of one kernel."""

    kernel: str
    instructions: tuple[SassInstruction, ...]


class Artifact(Record):
    """One compile. ``digest`` covers cubin, PTX and host library; every executor loads images of this record only.

    ``versions`` names the tools (nvcc, ptxas, nvdisasm, host compiler).
    """

    schema_version: Literal[1] = 1
    digest: str
    source_digest: str
    target: Target
    ptx: str
    cubin: bytes
    host_library: bytes
    kernels: tuple[KernelFacts, ...]
    sass: tuple[KernelSass, ...]
    remarks: tuple[Remark, ...]
    versions: dict[str, str]

    def kernel(self, name: str) -> KernelFacts:
        """The facts of a kernel by its mangled name; `KeyError` if the artifact has none of that name."""
        for facts in self.kernels:
            if facts.name == name:
                return facts
        raise KeyError(name)
