"""Runs without a command line, and a judge that knows its answers for what a CPU cannot measure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ptxbench.core import (
    Artifact,
    Candidate,
    CorrectnessReport,
    DeviceError,
    Interval,
    Outcome,
    OutputReport,
    Rejection,
    ReplyRecord,
    RunMode,
    RunRecord,
    Target,
    TimingReport,
    UnsupportedError,
    Usage,
    Verdict,
    WorkloadReport,
)
from ptxbench.runners import Bench, Pace, choose_tasks, make_prompts, open_run, prompt_uses
from ptxbench.store import RunFolder, VerdictKey

TASK = "gemm_n7168_k5120"
PACE = Pace(jobs=2)
AGAIN = 0.98


@dataclass
class Timing:
    """A judge on a device that times, whose answers are known: a kernel's first line is its speedup, its outcome, or
    what goes wrong with the judge. ``factor`` is that of another measurement of the same kernel.
    """

    seconds: float = 0.0
    factor: float = 1.0

    def key(self, candidate: Candidate) -> VerdictKey:
        return VerdictKey(
            task=candidate.task, target=candidate.target, source_digest=candidate.digest, workloads=("core",),
            strict=False, device="known answers", versions={},
        )  # fmt: skip

    def evaluate(self, candidate: Candidate) -> Verdict:
        time.sleep(self.seconds)
        word = candidate.source.splitlines()[0].removeprefix("// ")
        if word == "no device":
            raise DeviceError("the device was lost; try again")
        if word == "unsupported":
            raise UnsupportedError("the simulator does not implement `brkpt`")
        blank = Verdict(
            outcome=Outcome.WRONG_RESULT, reason="C is wrong.", task=candidate.task, target=candidate.target,
            origin=candidate.origin, source_digest=candidate.digest, device={},
        )  # fmt: skip
        if not word.replace(".", "").isdigit():
            return blank.model_copy(update={"outcome": Outcome(word)})
        speedup = float(word) * self.factor
        report = OutputReport(ok=True, rms_ratio=1.0, max_ratio=1.0, bad_share=0.0)
        run = WorkloadReport(sizes={}, tier="core", distribution="normal", outputs={"C": report})
        timing = TimingReport(
            speedup=Interval(median=speedup, low=speedup, high=speedup), baseline="cublas", ms=1.0, tflops=1.0,
            speed_of_light=0.5,
        )  # fmt: skip
        return blank.model_copy(
            update={
                "outcome": Outcome.PASSED, "correctness": CorrectnessReport(workloads=(run,)), "timing": timing,
                "plan_digest": "p", "artifact_digest": "a",
            }
        )  # fmt: skip

    def compile(self, candidate: Candidate) -> Artifact | Rejection:
        return Rejection(outcome=Outcome.COMPILE_ERROR, reason="This judge does not compile.")

    def bench(self) -> Bench:
        return Bench(self, self.key, replace(self, factor=AGAIN), self, self.compile, times=True)


def kernel(word: str) -> str:
    """A reply with a kernel that `Timing` knows the answer to."""
    return f'```cuda\n// {word}\n__global__ void k() {{}}\nextern "C" int launch() {{ return 0; }}\n```\n'


def replies(*texts: str, task: str = TASK, epoch: int = 1, **fields: Any) -> list[ReplyRecord]:
    usage = Usage(input_tokens=1000, output_tokens=500)
    return [
        ReplyRecord.model_validate(
            {"task": task, "epoch": epoch, "call": call, "text": text, "usage": usage} | fields
        )
        for call, text in enumerate(texts, 1)
    ]


def write_recording(path: Path, rows: Sequence[ReplyRecord]) -> Path:
    path.write_text("".join(f"{row.model_dump_json()}\n" for row in rows))
    return path


def begin(folder: Path, recording: Path | None, **changes: Any) -> RunFolder:
    """A run's folder in which nothing is done yet."""
    row: dict[str, Any] = {
        "mode": RunMode.MULTI_TURN, "condition": "bare", "without": (), "target": Target.SM_90A, "epochs": 1,
        "turns": 8, "tiers": ("small",), "versions": {}, "device": {"name": "simulator"},
    } | changes  # fmt: skip
    tasks = choose_tasks(TASK)
    prompts = make_prompts(
        tasks, row["target"], row["mode"], condition=row["condition"], without=row["without"], header_text=""
    )
    run = RunRecord.model_validate(
        {
            "run": folder.name, "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "model": f"replay:{recording}" if recording else "replay", "tasks": (TASK,), "feedback_tokens": 1500,
            "headers": False, "prompts": prompt_uses(prompts),
        }
        | row
    )  # fmt: skip
    made = RunFolder(folder)
    made.create(run, prompts)
    return made


def play(folder: RunFolder, bench: Bench, pace: Pace = PACE) -> RunFolder:
    open_run(folder.record(), pace)(folder, bench, lambda trajectory: None)
    return folder
