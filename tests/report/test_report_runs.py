from __future__ import annotations

import csv
import functools
import io
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from report_runs import FORWARD, GEMM, Turn, run_record, source_name, speed, trajectory, write_run

from ptxbench.cli.console import guarded
from ptxbench.cli.program import run_command
from ptxbench.core import Outcome, PromptUse, ReplyOutcome, StopReason, Target, UsageError
from ptxbench.report import compare, measures, published, read_run

PASSED, WRONG, UNTIMED = 0.9, Outcome.WRONG_RESULT, Outcome.CORRECT_UNTIMED
Turns = dict[tuple[str, int], list[Turn]]

GOOD: Turns = {
    (GEMM, 1): [WRONG, PASSED], (GEMM, 2): [PASSED],
    (FORWARD, 1): [ReplyOutcome.NO_CODE, PASSED], (FORWARD, 2): [WRONG],
}  # fmt: skip
BAD: Turns = {sample: [WRONG, WRONG] for sample in GOOD}


def write(folder: Path, name: str, attempts: Turns, **changes: Any) -> Path:
    record = run_record(name, **changes)
    return write_run(folder, record, [trajectory(record, *sample, turns) for sample, turns in attempts.items()])


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert guarded(functools.partial(run_command, arguments, threading.Event())) == 0
    return capsys.readouterr().out


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert guarded(functools.partial(run_command, arguments, threading.Event())) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    return said.err


def test_rows_hold_the_numbers_of_the_trajectories(tmp_path: Path) -> None:
    rows = {(row.task, row.label): row for row in measures(read_run(write(tmp_path, "good", GOOD)))}
    assert rows["all", "executed@1"].value == 0.25
    assert rows["all", "executed@4"].value == 0.75
    assert rows[GEMM, "executed@4"].value == 1.0
    assert rows["all", "pass@2"].value == 1.0
    assert rows["all", "fast_0.8"].value == 0.75 and rows["all", "fast_1.0"].value == 0.0
    assert rows["all", "tokens per solved"].value == 6000 / 3
    assert rows["all", "dollars per solved"].value == 2.0
    assert all(row.count == 2 for (task, label), row in rows.items() if task == GEMM and "@" in label)


def test_tables_are_the_same_whenever_they_are_printed(tmp_path: Path) -> None:
    folder = write(tmp_path, "good", GOOD)
    assert measures(read_run(folder)) == measures(read_run(folder))


def test_without_timing_there_are_no_speedups(tmp_path: Path) -> None:
    folder = write(tmp_path, "sim", {(GEMM, 1): [UNTIMED]}, tasks=(GEMM,), epochs=1)
    names = {row.measure for row in measures(read_run(folder))}
    assert names == {"correct", "executed", "clean", "pass", "tokens_per_solved", "dollars_per_solved"}


def test_a_finding_makes_a_kernel_unclean(tmp_path: Path) -> None:
    record = run_record("found", tasks=(GEMM,))
    attempts = [trajectory(record, GEMM, epoch, [UNTIMED]) for epoch in (1, 2)]
    run = read_run(write_run(tmp_path, record, attempts, hazards={source_name("found", GEMM, 1, 1)}))
    rows = {row.label: row.value for row in measures(run) if row.task == "all"}
    assert (rows["executed@4"], rows["clean@4"]) == (1.0, 0.5)


def test_a_chosen_maximum_is_not_shown_until_it_was_measured_again(tmp_path: Path) -> None:
    several: Turns = {(GEMM, 1): [0.9, 1.1], (GEMM, 2): [WRONG]}
    run = read_run(write(tmp_path, "chosen", several, tasks=(GEMM,)))
    assert not [row for row in measures(run) if row.measure in ("fast", "speedup", "best_speedup")]
    assert "in 1 of 2 trajectories the fastest of several kernels was not measured again" in run.notes()[0]
    record = run_record("again", tasks=(GEMM,))
    attempts = [trajectory(record, GEMM, 1, [0.9, 1.1], remeasured=speed(0.97)), trajectory(record, GEMM, 2, [WRONG])]
    again = read_run(write_run(tmp_path, record, attempts))
    rows = {(row.task, row.label): row.value for row in measures(again)}
    assert (rows["all", "fast_0.8"], rows["all", "fast_1.0"], rows[GEMM, "best speedup"]) == (0.5, 0.0, 0.97)


def test_notes_say_what_numbers_do_not(tmp_path: Path) -> None:
    record = run_record("noted", trained_on_evaluation_tasks=(GEMM,))
    failed = trajectory(record, GEMM, 1, [ReplyOutcome.PROVIDER_ERROR], stop=StopReason.PROVIDER_ERROR)
    unjudged = trajectory(record, FORWARD, 1, [ReplyOutcome.EXTRACTED])
    run = read_run(write_run(tmp_path, record, [failed, unjudged]))
    trained, incomplete, judged, provider = run.notes()
    assert f"adapted on solutions of {GEMM}" in trained
    assert "2 of 4 trajectories have not ended" in incomplete
    assert "1 of 2 turns have a kernel without a verdict" in judged
    assert "1 of 2 trajectories ended in errors of the provider" in provider
    assert run.outcomes == {"not_judged": 1, "provider_error": 1}


def test_a_run_that_has_just_begun_can_be_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(["show", str(write(tmp_path, "new", {}))], capsys)
    assert "4 of 4 trajectories have not ended" in out


def test_runs_are_compared_on_what_both_have(tmp_path: Path) -> None:
    partly = {sample: turns for sample, turns in BAD.items() if sample != (FORWARD, 2)}
    found = compare([read_run(write(tmp_path, "good", GOOD)), read_run(write(tmp_path, "bad", partly, turns=1))])
    assert found.turns == 1 and [run.missing for run in found.runs] == [0, 1]
    assert {row.count for row in found.rows if row.task == "all" and "@" in row.label} == {3}
    rows = {(row.run, row.label): row.value for row in found.rows if row.task == "all"}
    assert rows["good", "executed@1"] == pytest.approx(1 / 3)
    assert any("3 trajectories (task and epoch) that all runs have" in note for note in found.notes)
    assert "bad differs from good besides the model also in turns (1 instead of 4)." in found.notes


def test_differences_are_of_the_later_run_and_corrected(tmp_path: Path) -> None:
    found = compare([read_run(write(tmp_path, name, turns)) for name, turns in (("good", GOOD), ("bad", BAD))])
    by_label = {row.label: row for row in found.differences}
    assert list(by_label) == ["correct@4", "executed@4"]
    executed = by_label["executed@4"]
    assert (executed.run, executed.reference, executed.value) == ("bad", "good", -0.75)
    # GEMM 2 of 2 against 0 of 2, attention 1 of 2 against 0 of 2: (1 + 1) / (6 * 2), both tails.
    assert executed.p == pytest.approx(1 / 6)
    assert executed.p_adjusted == pytest.approx(1 / 3)


def test_every_further_run_is_compared_with_the_first(tmp_path: Path) -> None:
    runs = [read_run(write(tmp_path, name, turns)) for name, turns in (("a", GOOD), ("b", BAD), ("c", BAD))]
    found = compare(runs).differences
    assert [(row.run, row.reference) for row in found] == [("b", "a"), ("b", "a"), ("c", "a"), ("c", "a")]
    assert found[1].p_adjusted == pytest.approx(4 / 6)


def test_a_second_measurement_stays_only_with_its_kernel(tmp_path: Path) -> None:
    record = run_record("cut", tasks=(GEMM,), epochs=1, turns=2)
    run = read_run(write_run(tmp_path, record, [trajectory(record, GEMM, 1, [0.9, 1.1], remeasured=speed(1.0))]))
    samples = {(GEMM, 1)}
    assert run.of(samples, 2).trajectories[0].remeasured == speed(1.0)
    assert run.of(samples, 1).trajectories[0].remeasured is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"target": Target.SM_100A}, "they differ in target (sm_90a; sm_100a)"),
        ({"device": {"name": "simulator"}}, "they differ in the judging device (NVIDIA H200; simulator)"),
        ({"tiers": ("small",)}, "they differ in the tiers judged (small, heldout; small)"),
        ({"strict": True}, "they differ in strictness (False; True)"),
        ({"tasks": ("mha_bwd_d128",)}, "have no finished (task, epoch) in common"),
    ],
)
def test_runs_that_were_judged_differently_are_refused(
    changes: dict[str, Any], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = write(tmp_path, "good", GOOD)
    turns: Turns = {("mha_bwd_d128", 1): [WRONG]} if "tasks" in changes else BAD
    assert says in refused(["compare", str(first), str(write(tmp_path, "bad", turns, **changes))], capsys)


def test_a_run_is_not_compared_with_itself(tmp_path: Path) -> None:
    run = read_run(write(tmp_path, "good", GOOD))
    with pytest.raises(UsageError, match="given twice"):
        compare([run, run])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"condition": "none"}, "also in condition (none instead of docs)."),
        ({"versions": {"code": "beef"}}, "also in versions (code)."),
        ({"without": ("ptx",), "headers": False}, "headers (False instead of True), without (ptx instead of none)."),
        ({"prompts": {GEMM: PromptUse(digest="e", tokens=1, parts=())}}, "also in the texts of that condition."),
        ({"model": "provider/good", "condition": "none"}, "bad differs from good in condition (none instead of docs)."),
    ],
)  # fmt: skip
def test_what_else_differs_is_said(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    found = compare([read_run(write(tmp_path, "good", GOOD)), read_run(write(tmp_path, "bad", BAD, **changes))])
    assert found.notes[-1].endswith(says)


def test_json_and_csv_hold_every_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(write(tmp_path, name, turns)) for name, turns in (("good", GOOD), ("bad", BAD))]
    found = json.loads(printed(["compare", *paths, "--json", "--published"], capsys))
    lines = list(csv.DictReader(io.StringIO(printed(["compare", *paths, "--csv", "--published"], capsys))))
    assert found["schema"] == 1 and [run["record"]["run"] for run in found["runs"]] == ["good", "bad"]
    assert len(found["rows"]) == len(lines)
    for row, line in zip(found["rows"], lines, strict=True):
        assert {name: "" if value is None else str(value) for name, value in row.items()} == line
    assert {row["reference"] for row in found["rows"] if row["p"] is not None} == {"good"}
    assert found["published"]["source"] == published().source


def test_terminal_output_shows_both_sides(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    paths = [str(write(tmp_path, name, turns)) for name, turns in (("good", GOOD), ("bad", BAD))]
    out = " ".join(printed(["compare", *paths, "--published"], capsys).split())
    assert "bad − good" in out and "[" in out
    assert "published: Claude Opus 4.8, H100" in out and "B200" not in out
    assert all(sentence[:60] in out for sentence in published().differences)


def test_published_numbers_are_marked_and_complete() -> None:
    hopper, blackwell = (published().rows(target) for target in Target)
    rows = {(row.run, row.label): row.value for row in (*hopper, *blackwell) if row.task == "all"}
    assert all(row.run.startswith("published: ") and row.low is None and row.p is None for row in hopper)
    assert rows["published: Claude Opus 4.8, H100", "executed@1"] == 0.40
    assert rows["published: Claude Opus 4.8, B200", "executed@8"] == 0.50
    assert rows["published: GLM-5.2, B200", "correct@4"] == 0.65
    assert ("published: Qwen3.6-27B, fine-tuned on 158 repairs (best of seven), H100", "executed@4") not in rows
    best = {row.task: row.value for row in hopper if row.measure == "best_speedup"}
    assert best == {"gemm_n7168_k5120": 0.976, "mha_fwd_d128": 0.839, "mha_fwd_d128_causal": 0.806,
                    "mha_bwd_d128": 0.607, "mha_bwd_d128_causal": 0.639}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "nowhere"], "give the folder of a run"),
        (["compare", "good"], "needs two runs or more"),
        (["show", "good", "--json", "--csv"], "exclude each other"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "good", GOOD)
    monkeypatch.chdir(tmp_path)
    assert says in refused(arguments, capsys)


def test_a_damaged_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, "good", GOOD)
    (folder / "trajectories" / f"{GEMM}@1.json").write_text("{}")
    assert f"{GEMM}@1.json is not a TrajectoryRecord" in refused(["show", str(folder)], capsys)
