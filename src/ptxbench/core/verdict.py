"""The outcome table and the verdict record (JSON schema 1: extend, never rename)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, model_validator

from ptxbench.core.artifact import Remark
from ptxbench.core.observation import FaultKind, Hazard
from ptxbench.core.record import Record
from ptxbench.core.targets import Target
from ptxbench.core.task import sizes_text


class Outcome(StrEnum):
    """What became of a candidate, in the order in which the conditions are tried: the first that holds is the
    outcome.
    """

    COMPILE_ERROR = "compile_error"
    CONTRACT_ERROR = "contract_error"
    LAUNCH_ERROR = "launch_error"
    TIMEOUT = "timeout"
    INTEGRITY_VIOLATION = "integrity_violation"
    WRONG_RESULT = "wrong_result"
    INSTRUCTION_MISSING = "instruction_missing"
    CORRECT_UNTIMED = "correct_untimed"
    PASSED = "passed"

    @property
    def accepted(self) -> bool:
        """Correct and carried, whether or not the device could time it."""
        return self in (Outcome.CORRECT_UNTIMED, Outcome.PASSED)

    @property
    def exit_code(self) -> int:
        """0 for an accepted candidate, 1 for a failed one (2 is kept for usage and infrastructure errors)."""
        return 0 if self.accepted else 1


FAULT_OUTCOMES: dict[FaultKind, Outcome] = {
    FaultKind.IMPOSSIBLE_LAUNCH: Outcome.LAUNCH_ERROR,
    FaultKind.ILLEGAL_ADDRESS: Outcome.LAUNCH_ERROR,
    FaultKind.MISALIGNED_ADDRESS: Outcome.LAUNCH_ERROR,
    FaultKind.ILLEGAL_INSTRUCTION: Outcome.LAUNCH_ERROR,
    FaultKind.TRAP: Outcome.LAUNCH_ERROR,
    FaultKind.OUT_OF_MEMORY: Outcome.LAUNCH_ERROR,
    FaultKind.DEADLOCK: Outcome.TIMEOUT,
    FaultKind.TIME_LIMIT: Outcome.TIMEOUT,
    FaultKind.STRAY_WRITE: Outcome.INTEGRITY_VIOLATION,
}


class Rejection(Record):
    """A stage refused the candidate. ``reason`` is one sentence; ``remarks`` are the compiler's own words."""

    outcome: Outcome
    reason: str
    advice: str = ""
    source_line: int = 0
    remarks: tuple[Remark, ...] = ()

    def at(self, sizes: Mapping[str, int]) -> Rejection:
        """The same refusal with the sizes that it came at, for those that depend on them."""
        return self.model_copy(update={"reason": f"{self.reason.rstrip('.')} (at {sizes_text(sizes)})."})


class OutputReport(Record):
    """One output tensor against the truth.

    ``rms_ratio`` and ``max_ratio`` are errors divided by the earned yardstick (1 is an honest kernel); ``bad_share``
    is the share of elements beyond the maximum bound; ``worst_block_ratio`` the largest per-block RMS ratio.
    ``first_bad`` is an index.
    """

    ok: bool
    rms_ratio: float | None
    max_ratio: float | None
    worst_block_ratio: float | None = None
    bad_share: float
    first_bad: tuple[int, ...] = ()
    pattern: str = ""


class WorkloadReport(Record):
    """All outputs of one workload under one input distribution and schedule."""

    sizes: dict[str, int]
    tier: str
    distribution: str
    schedule: str = ""
    outputs: dict[str, OutputReport]


class CorrectnessReport(Record):
    """Tier 1."""

    workloads: tuple[WorkloadReport, ...] = ()


class FamilyReport(Record):
    """The four numbers of one instruction family. ``carried`` is a share of the task's FLOPs (or of input bytes for
    copies).
    """

    claimed: int
    compiled: int
    executed: int
    carried: float | None = None


class InstructionReport(Record):
    """Tier 2, at ``sizes``. ``perturbation_followed`` is the share of output blocks that followed the perturbed truth
    (simulator only), at sizes of its own.
    """

    families: dict[str, FamilyReport] = {}
    other_math_share: float | None = None
    perturbation_followed: float | None = None
    sizes: dict[str, int] = {}
    source: str = ""


class Interval(Record):
    """An estimate with its 95 % interval; ``median`` is the estimate: a median, or over several places the mean of
    their medians.
    """

    median: float
    low: float
    high: float


class LibraryTime(Record):
    """How fast one library did the task on the same device; ``ms`` is a median and ``tflops`` follows from it."""

    name: str
    version: str
    ms: float
    tflops: float


class TimingReport(Record):
    """Tier 3. ``speedup`` is baseline time over candidate time; ``speed_of_light`` a fraction of the measured
    ceiling.

    ``libraries`` are all that were timed (the fastest is the baseline, and the only one timed in turns with the
    candidate), ``absent`` says why others were not. ``samples`` counts timed calls of the candidate; ``conditions``
    holds clocks, power, temperature and throttle reasons seen meanwhile.
    """

    speedup: Interval
    baseline: str
    ms: float
    tflops: float
    speed_of_light: float
    libraries: tuple[LibraryTime, ...] = ()
    absent: dict[str, str] = {}
    samples: int = 0
    conditions: dict[str, Any] = {}


class Verdict(Record):
    """The answer about one candidate. ``source_line`` is the 1-based line that the reason is about, 0 if unknown."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    outcome: Outcome
    reason: str
    advice: str = ""
    source_line: int = 0
    task: str
    target: Target
    origin: str = ""
    source_digest: str = ""
    device: dict[str, Any]
    strict: bool = False
    correctness: CorrectnessReport = CorrectnessReport()
    instructions: InstructionReport = InstructionReport()
    hazards: tuple[Hazard, ...] = ()
    remarks: tuple[Remark, ...] = ()
    detail: tuple[str, ...] = ()
    timing: TimingReport | None = None
    plan_digest: str = ""
    artifact_digest: str = ""
    seeds: tuple[int, ...] = ()
    stages_s: dict[str, float] = {}
    versions: dict[str, str] = {}

    model_config = Record.model_config | {"populate_by_name": True, "serialize_by_alias": True}

    @model_validator(mode="after")
    def _no_impossible_combination(self) -> Verdict:
        if self.outcome is Outcome.PASSED and self.timing is None:
            raise ValueError("a passed verdict needs a timing report")
        if self.timing is not None and self.outcome is not Outcome.PASSED:
            raise ValueError("only a passed verdict carries a timing report")
        if self.outcome.accepted:
            outputs = [o for w in self.correctness.workloads for o in w.outputs.values()]
            if not outputs or not all(o.ok for o in outputs):
                raise ValueError("an accepted verdict needs workloads whose outputs are all right")
            if not self.plan_digest or not self.artifact_digest:
                raise ValueError("an accepted verdict names its plan and artifact")
        return self
