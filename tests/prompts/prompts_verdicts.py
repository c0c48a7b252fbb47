"""Verdicts for tests: of the task `gemm_n7168_k5120`, in the form in which the judge makes them."""

from __future__ import annotations

from typing import Any

from ptxbench.core import (
    CorrectnessReport,
    FamilyReport,
    Hazard,
    InstructionReport,
    Interval,
    Outcome,
    OutputReport,
    Target,
    TimingReport,
    Verdict,
    Workload,
    WorkloadReport,
)
from ptxbench.tasks import get_task

TASK = get_task("gemm_n7168_k5120")
SMALL, OTHER = TASK.of_tier("small")
HIDDEN = TASK.of_tier("heldout")
SOURCE = "\n".join(f"line_{number}();" for number in range(1, 101))
SCHEDULES = ("eager copies, eager products, forward", "late copies, late products, forward")
SEED = 918273645546372819


def output(*, ok: bool = True, pattern: str = "", ratio: float = 1.0) -> OutputReport:
    if ok:
        return OutputReport(ok=True, rms_ratio=ratio, max_ratio=1.0, bad_share=0.0)
    return OutputReport(
        ok=False, rms_ratio=ratio, max_ratio=ratio, bad_share=0.25, first_bad=(17, 5), pattern=pattern
    )


def run(
    workload: Workload, report: OutputReport, *, distribution: str = "normal", schedule: str = SCHEDULES[0]
) -> WorkloadReport:
    return WorkloadReport(
        sizes=workload.sizes, tier=workload.tier, distribution=distribution, schedule=schedule, outputs={"C": report}
    )


def place(workload: Workload, distribution: str = "normal", schedule: str = SCHEDULES[0]) -> str:
    """Sizes, inputs and schedule as `judge` words them."""
    sizes = ", ".join(f"{name}={value}" for name, value in workload.sizes.items())
    return f"at {sizes} on {distribution} inputs with {schedule}"


def hazard(line: int = 7, message: str = "stmatrix reads shared byte 4096.", severity: Any = "rule") -> Hazard:
    return Hazard(
        severity=severity, kind="missing_async_proxy_fence", message=message, advice="Put a fence.", source_line=line
    )


def timing(speedup: float) -> TimingReport:
    return TimingReport(
        speedup=Interval(median=speedup, low=speedup - 0.01, high=speedup + 0.01),
        baseline="cublas", ms=0.8123, tflops=740, speed_of_light=0.76,
    )  # fmt: skip


FAMILIES = {
    "mbarrier": FamilyReport(claimed=3, compiled=4, executed=968),
    "wgmma": FamilyReport(claimed=4, compiled=4, executed=3072, carried=1.0),
    "tma_load": FamilyReport(claimed=2, compiled=2, executed=384, carried=3.0),
    "stmatrix": FamilyReport(claimed=2, compiled=0, executed=0),
}


def verdict(outcome: Outcome, *runs: WorkloadReport, **more: Any) -> Verdict:
    fields: dict[str, Any] = {
        "reason": "A reason.",
        "task": TASK.name,
        "target": Target.SM_90A,
        "device": {"name": "a device of ours", "properties": {"serial": 4711}},
        "correctness": CorrectnessReport(workloads=runs),
        "instructions": InstructionReport(
            families=FAMILIES, other_math_share=0.02, perturbation_followed=1.0, sizes=SMALL.sizes
        ) if runs else InstructionReport(),
        "plan_digest": "d" * 64,
        "artifact_digest": "a" * 64,
        "source_digest": "5" * 64,
        "seeds": (SEED,),
        "stages_s": {"compiling": 1.5},
        "versions": {"nvcc": "13.0.88"},
    }
    return Verdict(outcome=outcome, **(fields | more))
