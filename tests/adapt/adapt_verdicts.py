"""Verdicts and kernels for tests that need no judge."""

from __future__ import annotations

import hashlib
from typing import Any

from ptxbench.adapt.data.families import Variant, load_families, variants
from ptxbench.adapt.data.kernels import Kernel
from ptxbench.core import (
    Candidate,
    CorrectnessReport,
    Hazard,
    Outcome,
    OutputReport,
    Target,
    Verdict,
    WorkloadReport,
)
from ptxbench.solutions import include_dir
from ptxbench.tasks import get_task

RIGHT = CorrectnessReport(
    workloads=(
        WorkloadReport(
            sizes={"M": 256, "N": 256, "K": 1536}, tier="small", distribution="normal",
            outputs={"C": OutputReport(ok=True, rms_ratio=1.0, max_ratio=1.0, bad_share=0.0)},
        ),
    )
)  # fmt: skip


def a_verdict(source: str, outcome: Outcome, *, task: str = "gemm_f16", target: Target = Target.SM_90A,
              **fields: Any) -> Verdict:  # fmt: skip
    accepted = {"correctness": RIGHT, "plan_digest": "p", "artifact_digest": "a"} if outcome.accepted else {}
    values: dict[str, Any] = {
        "reason": "because", "device": {"name": "simulator"}, "versions": {"code": "0123"},
        "source_digest": hashlib.sha256(source.encode()).hexdigest(), **accepted, **fields,
    }  # fmt: skip
    return Verdict(outcome=outcome, task=task, target=target, **values)


def a_hazard(kind: str) -> Hazard:
    return Hazard(severity="rule", kind=kind, message="a rule", advice="obey it", kernel="gemm")


def some_variants(family: str, task: str, count: int = 4) -> list[Variant]:
    row = next(row for row in load_families() if row.name == family)
    found: list[Variant] = []
    for variant in variants(row, get_task(task), include_dir()):
        found.append(variant)
        if len(found) == count:
            break
    return found


def unlike_variants(family: str, task: str) -> list[Variant]:
    """The first kernel of every structure, whatever its constants."""
    found: dict[tuple[object, ...], Variant] = {}
    for variant in some_variants(family, task, 10_000):
        if not variant.design.get("standalone"):
            keys = ("schedule", "store", "cluster", "persistent", "weights", "recompute", "correction")
            found.setdefault(tuple(variant.design.get(key) for key in keys), variant)
    return list(found.values())


def as_kernel(variant: Variant) -> Kernel:
    return Kernel(variant.name, get_task(variant.task), variant.target, variant.source, variant.family,
                  tuple(variant.plan.techniques), variant=variant)  # fmt: skip


class Judge:
    """Accepts every source but those with a known mistake; counts what it was asked."""

    def __init__(self, mistakes: dict[str, Verdict] | None = None) -> None:
        self.mistakes = mistakes or {}
        self.asked: list[str] = []

    def evaluate(self, candidate: Candidate) -> Verdict:
        self.asked.append(candidate.origin)
        for text, verdict in self.mistakes.items():
            if text in candidate.source:
                return verdict.model_copy(update={"source_digest": candidate.digest, "task": candidate.task,
                                                  "target": candidate.target})  # fmt: skip
        return a_verdict(candidate.source, Outcome.CORRECT_UNTIMED, task=candidate.task, target=candidate.target)
