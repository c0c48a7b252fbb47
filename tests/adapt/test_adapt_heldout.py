"""What is told of replies that were written elsewhere."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from adapt_verdicts import a_verdict
from training_data import kernel

from ptxbench.adapt.training.heldout import judge_trainings
from ptxbench.adapt.training.samples import FILE, Sample
from ptxbench.adapt.training.saved import TrainingRecord, write_record
from ptxbench.core import Candidate, Outcome, Target, UsageError, Verdict
from ptxbench.prompts import extract_kernel


class Judge:
    """Finds every kernel wrong but one that does not compile."""

    def evaluate(self, candidate: Candidate) -> Verdict:
        broken = "scale_3" in candidate.source
        return a_verdict(candidate.source, Outcome.COMPILE_ERROR if broken else Outcome.WRONG_RESULT)


def digest(number: int) -> str:
    """Of the kernel's source, as a reply with it is judged."""
    return hashlib.sha256(extract_kernel(kernel(number)).source.encode()).hexdigest()


def sample(data: str, reply: str, faulty: str = "", *, ended: bool = True) -> Sample:
    return Sample(
        data=data, row="0", faulty=faulty, task="gemm_f16", task_family="gemm_f16", target=Target.SM_90A, reply=reply,
        tokens=len(reply), ended=ended,
    )


def training(folder: Path, *samples: Sample) -> Path:
    folder.mkdir()
    write_record(folder, TrainingRecord(
        recipe={"name": "arm", "seed": 3}, recipe_digest="r", finished=True, losses={"repair": 0.5}
    ))  # fmt: skip
    (folder / FILE).write_text("".join(one.model_dump_json() + "\n" for one in samples))
    return folder


def test_a_kernel_given_back_as_it_was_is_counted(tmp_path: Path) -> None:
    folder = training(
        tmp_path / "one",
        sample("repair", f"The scale is right now.\n{kernel(1)}", digest(1)),
        sample("repair", kernel(2), digest(1)),
        sample("repair", kernel(3), digest(1)),
        sample("repair", "I do not know.", digest(1), ended=False),
        sample("expert", kernel(2)),
    )
    (arm,) = judge_trainings([folder], Judge(), "none", lambda _stage: None).arms
    repair, expert = arm.replies["repair"], arm.replies["expert"]
    assert (repair.number, repair.ended, repair.unchanged) == (4, 0.75, 0.25)
    assert [repair.reached[tier].value for tier in ("code", "complete", "compiles", "correct")] == [0.75, 0.75, 0.5, 0]
    assert (expert.number, expert.unchanged) == (1, None)


def test_a_training_without_replies_is_refused(tmp_path: Path) -> None:
    folder = training(tmp_path / "one")
    (folder / FILE).unlink()
    with pytest.raises(UsageError, match="write them with `ptxbench sample`"):
        judge_trainings([folder], Judge(), "none", lambda _stage: None)
