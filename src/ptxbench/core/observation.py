"""What a device saw while it replayed a plan. Observations hold facts; judging them is another room's work."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from ptxbench.core.artifact import SourceFrame
from ptxbench.core.record import Record


class Mode(StrEnum):
    """What a run is for: outputs only, outputs and executed counts, or timed samples."""

    RUN = "run"
    COUNT = "count"
    TIME = "time"


class Schedule(Record):
    """How the simulator orders what hardware may order freely.

    ``copies`` and ``products`` say when asynchronous bulk copies and asynchronous matrix products take effect:
    ``eager`` at issue, ``late`` when nothing else can proceed (late copies wait for late products too). ``reverse``
    runs warps and CTAs in descending order, completes the latest work first, and lets a warp pause after each of its
    signals (arrivals, integer atomics). ``seed`` 0 is the plain order; another value shuffles it.
    """

    copies: Literal["eager", "late"] = "eager"
    products: Literal["eager", "late"] = "eager"
    reverse: bool = False
    seed: int = 0

    @property
    def label(self) -> str:
        """A short name for messages, such as ``late copies, eager products, reversed``."""
        order = "reversed" if self.reverse else "forward"
        shuffle = f", seed {self.seed}" if self.seed else ""
        return f"{self.copies} copies, {self.products} products, {order}{shuffle}"


class RunOptions(Record):
    """How to run. ``perturbation`` multiplies every product of the target's matrix instruction before accumulation
    (simulator only; 1 leaves it exact). ``step_limit`` bounds the work, ``time_limit_s`` wall time.
    """

    mode: Mode = Mode.RUN
    schedule: Schedule = Schedule()
    perturbation: float = 1.0
    races: bool = False
    step_limit: int = 2_000_000_000
    time_limit_s: float = 60.0


class FaultKind(StrEnum):
    """How a run ended other than by finishing."""

    IMPOSSIBLE_LAUNCH = "impossible_launch"
    ILLEGAL_ADDRESS = "illegal_address"
    MISALIGNED_ADDRESS = "misaligned_address"
    ILLEGAL_INSTRUCTION = "illegal_instruction"
    TRAP = "trap"
    OUT_OF_MEMORY = "out_of_memory"
    DEADLOCK = "deadlock"
    TIME_LIMIT = "time_limit"
    STRAY_WRITE = "stray_write"


class Fault(Record):
    """Why a run stopped. ``message`` is one sentence with the place; ``advice`` says what to change."""

    kind: FaultKind
    message: str
    kernel: str = ""
    source_line: int = 0
    ptx_line: int = 0
    advice: str = ""
    detail: tuple[str, ...] = ()


class Hazard(Record):
    """A synchronisation fault that did not stop the run.

    ``kind`` is a stable identifier (``missing_async_proxy_fence``, ``uninitialised_shared_read``, ...); ``race``
    means that the result depends on timing or was undefined, ``rule`` that an ISA rule is broken without a visible
    effect so far.
    """

    severity: Literal["race", "rule"]
    kind: str
    message: str
    advice: str
    kernel: str = ""
    source_line: int = 0
    ptx_line: int = 0
    occurrences: int = 1


class SiteCount(Record):
    """Executions of one static instruction.

    ``opcode`` is the full PTX opcode on the simulator, the SASS opcode on a GPU; ``executed`` counts warp-level
    executions with at least one active lane, ``threads`` active lanes summed. ``flops`` and ``bytes`` are what the
    executions really did (matrix shape read from the instruction or its run-time descriptor; bytes moved by copies).
    """

    kernel: str
    opcode: str
    executed: int
    threads: int
    flops: int = 0
    bytes: int = 0
    operand_dtype: str = ""
    position: int = 0
    frames: tuple[SourceFrame, ...] = ()


class Observation(Record):
    """One replay of a plan. Output tensors are written into the caller's buffers, not kept here.

    ``changed_inputs`` names inputs whose bytes differ after the run. ``samples_ms`` is empty unless the mode was TIME.
    ``work`` (simulator only) is ``warp_instructions`` with products, copies and set-up weighed by their size, and
    ``memory_bytes`` the host memory that the state of the CTAs resident at once took at most.
    """

    device: str
    schedule: Schedule | None = None
    fault: Fault | None = None
    hazards: tuple[Hazard, ...] = ()
    counts: tuple[SiteCount, ...] = ()
    changed_inputs: tuple[str, ...] = ()
    samples_ms: tuple[float, ...] = ()
    warp_instructions: int = 0
    work: int = 0
    memory_bytes: int = 0
    seconds: float = 0.0
