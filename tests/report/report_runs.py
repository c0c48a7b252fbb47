"""Folders of runs as the store writes them, with trajectories that a test describes by their outcomes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ptxbench.core import (
    CorrectnessReport,
    Hazard,
    Interval,
    Outcome,
    OutputReport,
    PromptUse,
    ReplyOutcome,
    RunMode,
    RunRecord,
    StopReason,
    Target,
    TimingReport,
    TrajectoryRecord,
    TurnRecord,
    Usage,
    Verdict,
    WorkloadReport,
)
from ptxbench.store import RunFolder, VerdictKey

GEMM, FORWARD = "gemm_n7168_k5120", "mha_fwd_d128"
HAZARD = Hazard(severity="rule", kind="missing_async_proxy_fence", message="A store reads a generic write.", advice="")
RIGHT = CorrectnessReport(workloads=(
    WorkloadReport(sizes={"M": 256, "N": 256, "K": 1024}, tier="small", distribution="normal",
                   outputs={"C": OutputReport(ok=True, rms_ratio=1.0, max_ratio=1.0, bad_share=0.0)}),
))  # fmt: skip

Turn = Outcome | ReplyOutcome | float
"""An outcome; a float is the speedup of a kernel that passed."""


def run_record(name: str, **changes: Any) -> RunRecord:
    tasks = changes.pop("tasks", (GEMM, FORWARD))
    fields: dict[str, Any] = {
        "run": name, "started": "2026-11-29T12:00:00Z", "model": f"provider/{name}", "mode": RunMode.MULTI_TURN,
        "condition": "docs", "target": Target.SM_90A, "tasks": tasks, "epochs": 2, "turns": 4, "feedback_tokens": 2000,
        "device": {"name": "NVIDIA H200"}, "tiers": ("small", "heldout"), "headers": True, "versions": {"code": "c0de"},
        "prompts": {task: PromptUse(digest="d", tokens=100, parts=()) for task in tasks},
    }  # fmt: skip
    return RunRecord(**fields | changes)


def trajectory(record: RunRecord, task: str, epoch: int, turns: Sequence[Turn], **changes: Any) -> TrajectoryRecord:
    """Each turn cost 1000 tokens and one dollar."""
    fields: dict[str, Any] = {
        "run": record.run, "task": task, "target": record.target, "epoch": epoch, "prompt_digest": "d",
        "turns": tuple(_turn(record, task, epoch, index, turn) for index, turn in enumerate(turns, start=1)),
        "stop": StopReason.TURNS_USED, "started": record.started, "seconds": 10.0,
    }  # fmt: skip
    return TrajectoryRecord(**fields | changes)


def speed(value: float) -> Interval:
    return Interval(median=value, low=value * 0.99, high=value * 1.01)


def write_run(
    folder: Path, record: RunRecord, trajectories: Sequence[TrajectoryRecord], hazards: Collection[str] = ()
) -> Path:
    """Writes a run; ``hazards`` names the sources, as `source_name` does, whose verdict has one."""
    store = RunFolder(folder / record.run)
    store.create(record, {})
    for one in trajectories:
        stored = []
        for turn in one.turns:
            key = None
            if turn.outcome is not None:
                found = (HAZARD,) if turn.source_digest in hazards else ()
                key = store.put_verdict(_key(one, turn), _verdict(one, turn, found))
            stored.append(turn.model_copy(update={"verdict_key": key}))
        store.put_trajectory(one.model_copy(update={"turns": tuple(stored)}), [])
    return store.root


def source_name(run: str, task: str, epoch: int, turn: int) -> str:
    """What stands in place of a source's digest."""
    return f"{run}-{task}-{epoch}-{turn}"


def _turn(record: RunRecord, task: str, epoch: int, index: int, turn: Turn) -> TurnRecord:
    reply = turn if isinstance(turn, ReplyOutcome) else ReplyOutcome.EXTRACTED
    outcome = Outcome.PASSED if isinstance(turn, float) else turn if isinstance(turn, Outcome) else None
    return TurnRecord(
        index=index, reply=reply, outcome=outcome, speedup=speed(turn) if isinstance(turn, float) else None,
        source_digest=source_name(record.run, task, epoch, index) if outcome else "",
        usage=Usage(input_tokens=800, output_tokens=200, cost=1.0),
    )  # fmt: skip


def _key(one: TrajectoryRecord, turn: TurnRecord) -> VerdictKey:
    return VerdictKey(task=one.task, target=one.target, source_digest=turn.source_digest, workloads=("small",),
                      strict=False, device="NVIDIA H200", versions={})  # fmt: skip


def _verdict(one: TrajectoryRecord, turn: TurnRecord, hazards: tuple[Hazard, ...]) -> Verdict:
    assert turn.outcome is not None
    timing = turn.speedup and TimingReport(speedup=turn.speedup, baseline="cublas", ms=1.0, tflops=600.0,
                                           speed_of_light=0.7)  # fmt: skip
    return Verdict(outcome=turn.outcome, reason="as described", task=one.task, target=one.target,
                   device={"name": "NVIDIA H200"}, correctness=RIGHT, plan_digest="p", artifact_digest="a",
                   hazards=hazards, timing=timing)  # fmt: skip
