from __future__ import annotations

from pathlib import Path

from adapt_verdicts import a_hazard, a_verdict

from ptxbench.adapt import Recipe
from ptxbench.adapt.data.conversation import Prompter
from ptxbench.adapt.data.mine import mined_rows
from ptxbench.adapt.data.rows import Dropped, Row
from ptxbench.core import (
    Outcome,
    ReplyOutcome,
    RunMode,
    RunRecord,
    StopReason,
    Target,
    TrajectoryRecord,
    TurnRecord,
    Verdict,
)
from ptxbench.solutions import include_dir
from ptxbench.store import RunFolder, VerdictKey

WRONG = a_verdict("wrong", Outcome.WRONG_RESULT, reason="Output C is wrong.")
WORSE = a_verdict("worse", Outcome.TIMEOUT, reason="Deadlock.")
FOUND = a_verdict("found", Outcome.CORRECT_UNTIMED, hazards=(a_hazard("missing_async_proxy_fence"),))
RIGHT = a_verdict("right", Outcome.CORRECT_UNTIMED)


def a_run(root: Path, trajectories: dict[tuple[str, int], list[tuple[str, Verdict]]]) -> Path:
    """A run's folder with (source, verdict) per turn of every (task, epoch)."""
    folder = RunFolder(root)
    tasks = tuple(dict.fromkeys(task for task, _ in trajectories))
    run = RunRecord(
        run="r", started="2026-01-01T00:00:00Z", model="mock/one", mode=RunMode.MULTI_TURN, condition="sheet",
        target=Target.SM_90A, tasks=tasks, epochs=2, turns=8, feedback_tokens=1000, device={}, tiers=("small",),
        headers=False, prompts={}, versions={},
    )  # fmt: skip
    folder.create(run, {})
    for (task, epoch), turns in trajectories.items():
        records: list[TurnRecord] = []
        for index, (source, verdict) in enumerate(turns, 1):
            key = VerdictKey(task=task, target=Target.SM_90A, source_digest=folder.put_source(source), workloads=(),
                             strict=False, device="", versions={"turn": str(index)})  # fmt: skip
            digest = folder.put_verdict(key, verdict.model_copy(update={"task": task}))
            records.append(TurnRecord(index=index, reply=ReplyOutcome.EXTRACTED, source_digest=key.source_digest,
                                      verdict_key=digest, outcome=verdict.outcome))  # fmt: skip
        trajectory = TrajectoryRecord(
            run="r", task=task, target=Target.SM_90A, epoch=epoch, prompt_digest="", turns=tuple(records),
            stop=StopReason.TURNS_USED, started="2026-01-01T00:00:00Z", seconds=1.0,
        )  # fmt: skip
        folder.put_trajectory(trajectory, [])
    return root


def mined(kind: str, root: Path) -> list[Row | Dropped]:
    recipe = Recipe.model_validate({"name": "m", "kind": kind, "sources": {"trajectories": [str(root)]}})
    return mined_rows(recipe, Prompter(recipe, include_dir()))


def test_the_last_failing_turn_and_the_first_clean_one_make_a_repair(tmp_path: Path) -> None:
    turns = [("worse", WORSE), ("wrong", WRONG), ("right", RIGHT), ("later", RIGHT)]
    (row,) = mined("repair", a_run(tmp_path / "run", {("gemm_f16", 1): turns}))
    assert isinstance(row, Row)
    assert (row.kind, row.failure, row.fault) == ("repair", "wrong_result", "")
    assert "wrong" in row.prompt[2].content
    assert row.prompt[3].content.startswith("## Verdict: wrong_result")
    assert "right" in row.completion[0].content
    assert row.licence == "output of mock/one"
    assert row.provenance.origin == "r/gemm_f16@1"


def test_a_finding_that_was_repaired_is_a_hazard(tmp_path: Path) -> None:
    (row,) = mined("repair", a_run(tmp_path / "run", {("gemm_f16", 1): [("found", FOUND), ("right", RIGHT)]}))
    assert isinstance(row, Row)
    assert row.failure == "hazard"


def test_what_is_never_repaired_or_right_at_once_makes_no_repair(tmp_path: Path) -> None:
    root = a_run(tmp_path / "run", {("gemm_f16", 1): [("wrong", WRONG)], ("gemm_f16", 2): [("right", RIGHT)]})
    (dropped,) = mined("repair", root)
    assert isinstance(dropped, Dropped)
    assert dropped.gate == "never_repaired"


def test_passing_turns_are_expert_rows_without_an_explanation(tmp_path: Path) -> None:
    (row,) = mined("expert", a_run(tmp_path / "run", {("gemm_f16", 1): [("wrong", WRONG), ("right", RIGHT)]}))
    assert isinstance(row, Row)
    assert row.kind == "expert"
    assert row.messages[-1].reasoning_content == ""


def test_runs_on_evaluation_tasks_are_left_out(tmp_path: Path) -> None:
    (dropped,) = mined("repair", a_run(tmp_path / "run", {("gemm_n7168_k5120", 1): [("w", WRONG), ("r", RIGHT)]}))
    assert isinstance(dropped, Dropped)
    assert dropped.gate == "evaluation_family"
