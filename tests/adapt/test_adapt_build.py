"""The flow of a build with a judge that answers at once; the real judge is asked in test_adapt_judged."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from adapt_verdicts import Judge, a_verdict, as_kernel, some_variants

from ptxbench.adapt import Recipe, build
from ptxbench.adapt.data.conversation import Prompter
from ptxbench.adapt.data.judged import GoodKernel, Say, judge_good
from ptxbench.adapt.data.kernels import select, spread_order
from ptxbench.adapt.data.rows import Dropped
from ptxbench.adapt.data.statistics import describe
from ptxbench.core import Outcome, Target, ToolchainError, UsageError, in_parallel
from ptxbench.prompts import extract_kernel
from ptxbench.solutions import include_dir
from ptxbench.tasks import get_task

SHAPES = {"gemm": [{"M": 4096, "N": 4096, "K": 4096}], "attention_forward": [{"B": 2, "H": 8, "S": 2048}]}
SEMICOLON = a_verdict("", Outcome.COMPILE_ERROR, reason="expected a ';'")


@contextmanager
def silent(title: str, total: int) -> Generator[Say]:
    yield lambda line: None


def a_recipe(**fields: object) -> Recipe:
    values = {"name": "test", "kind": "expert", "shapes": SHAPES, **fields}
    sources = {"families": ["backward_hopper"], "tasks": ["mha_bwd_d64", "mha_bwd_d64_causal"], "per_task": 3}
    return Recipe.model_validate({"sources": sources, **values})


def test_expert_rows_hold_the_task_a_plan_and_the_judged_kernel() -> None:
    judge = Judge()
    built = build(a_recipe(), judge, include_dir(), jobs=2, display=silent)
    assert len(built.rows) == len(judge.asked) > 1
    row = built.rows[0]
    assert [message.role for message in row.messages] == ["system", "user", "assistant"]
    _, user, answer = row.messages
    assert get_task(row.task).title in user.content
    assert "**Shared memory.**" in answer.reasoning_content
    extracted = extract_kernel(answer.content)
    assert extracted.usable
    assert row.provenance.verdicts == {"good": "correct_untimed"}
    assert row.provenance.origin in judge.asked
    assert row.tokens > 1000
    assert row.licence == "Apache-2.0"


def test_reasoning_can_stand_before_the_code() -> None:
    built = build(a_recipe(reasoning="inline"), Judge(), include_dir(), jobs=1, display=silent)
    answer = built.rows[0].messages[-1]
    assert not answer.reasoning_content
    assert answer.content.index("**Shared memory.**") < answer.content.index("```cuda")
    assert extract_kernel(answer.content).usable


def test_what_the_judge_refuses_is_dropped_with_its_reason() -> None:
    (variant,) = some_variants("backward_hopper", "mha_bwd_d64", 1)
    wrong = a_verdict("", Outcome.WRONG_RESULT, reason="Output dQ is wrong.")
    result = judge_good(Judge({"gradients_of_keys": wrong}), as_kernel(variant), 0.15)
    assert isinstance(result, Dropped)
    assert (result.gate, result.detail) == ("refused", "wrong_result: Output dQ is wrong.")


def test_solutions_of_evaluation_tasks_need_to_be_asked_for() -> None:
    sources = {"solutions": True, "families": ["backward_blackwell"], "per_task": 50}
    closed = select(a_recipe(sources=sources), include_dir())
    assert not [kernel for kernel in closed.kernels if kernel.solution]
    assert sum(item.gate == "evaluation_family" for item in closed.dropped) >= 20
    asked = a_recipe(sources=sources, evaluation_tasks=["gemm_n7168_k5120"])
    opened = [kernel for kernel in select(asked, include_dir()).kernels if kernel.solution]
    assert {kernel.task.name for kernel in opened} == {"gemm_n7168_k5120"}
    built = build(asked, Judge(), include_dir(), jobs=1, display=silent)
    assert describe(built).evaluation_tasks == ("gemm_n7168_k5120",)
    solved = next(row for row in built.rows if row.kernel_family == "solutions")
    assert "TILE_M = 64" in solved.messages[-1].reasoning_content


def test_prompts_do_not_show_timed_sizes_of_evaluation_tasks() -> None:
    recipe = a_recipe(shapes={})
    sizes = Prompter(recipe, include_dir()).sizes(get_task("gemm_f16"), "x")
    assert sizes == {"M": 8192, "N": 7168, "K": 5120}
    sources = {"families": ["gemm_blackwell"], "tasks": ["gemm_f16"], "per_task": 1}
    built = build(a_recipe(sources=sources, shapes=SHAPES), Judge(), include_dir(), jobs=1, display=silent)
    assert "M=4096, N=4096, K=4096" in built.rows[0].messages[1].content
    assert "N=7168" not in built.rows[0].messages[1].content
    shown = build(a_recipe(sources=sources, shapes={}), Judge(), include_dir(), jobs=1, display=silent)
    assert not shown.rows
    assert [item.gate for item in shown.dropped][-1] == "evaluation_shape"


def test_rows_that_are_too_long_are_dropped_whole() -> None:
    built = build(a_recipe(gates={"max_tokens": 5000}), Judge(), include_dir(), jobs=1, display=silent)
    long = [item for item in built.dropped if item.gate == "too_long"]
    assert long
    assert long[0].detail.endswith("tokens, at most 5000")
    assert all(row.tokens <= 5000 for row in built.rows)


def test_long_kernels_are_passed_over_before_anything_is_judged() -> None:
    everything = select(a_recipe(), include_dir()).kernels
    lengths = sorted(len(kernel.source.encode()) for kernel in everything)
    judge = Judge()
    built = build(a_recipe(gates={"max_source_bytes": lengths[0]}), judge, include_dir(), jobs=1, display=silent)
    assert len(built.rows) == len(judge.asked) == lengths.count(lengths[0])
    long = [item for item in built.dropped if item.gate == "long_kernel"]
    assert long
    assert all(item.detail.endswith(f"bytes, at most {lengths[0]}") for item in long)


def test_whole_families_are_held_back_for_validation() -> None:
    sources = {"families": ["backward_hopper", "forward_blackwell"], "per_task": 2}
    built = build(a_recipe(sources=sources, validation=["mha_bwd_d64"]), Judge(), include_dir(), jobs=1, display=silent)
    split = {row.task: row.split for row in built.rows}
    assert split["mha_bwd_d64"] == split.get("mha_bwd_d64_causal", "validation") == "validation"
    assert split["mha_fwd_d64"] == "train"


def test_repair_rows_hold_the_real_feedback_and_the_way_back() -> None:
    judge = Judge({"ptx::fence_mbarrier_init()\n": SEMICOLON})
    faults = {"names": ["missing_semicolon", "missing_release"], "per_fault": 2, "tries": 2,
              "minimum": {"compile_error": 2, "timeout": 1, "slow": 1}}  # fmt: skip
    built = build(a_recipe(kind="repair", faults=faults), judge, include_dir(), jobs=2, display=silent)
    assert [row.failure for row in built.rows] == ["compile_error"] * 2
    row = built.rows[0]
    assert [message.role for message in row.prompt] == ["system", "user", "assistant", "user"]
    assert row.prompt[3].content.startswith("## Verdict: compile_error")
    (fix,) = row.completion
    faulty, good = (extract_kernel(text).source for text in (row.prompt[2].content, fix.content))
    assert "ptx::fence_mbarrier_init()\n" in faulty
    assert faulty.replace("ptx::fence_mbarrier_init()\n", "ptx::fence_mbarrier_init();\n") == good
    assert "A statement ends without a semicolon." in fix.reasoning_content
    assert row.provenance.faulty != row.provenance.good
    assert built.missing == {"timeout": 1, "slow": 1}
    numbers = describe(built)
    assert "needs a device that times" in numbers.missing["slow"]
    assert numbers.operators["missing_semicolon"].bases == 2
    assert numbers.operators["missing_release"].confirmed == 0


def test_what_is_short_is_filled_from_further_kernels() -> None:
    judge = Judge({"ptx::fence_mbarrier_init()\n": SEMICOLON})
    faults = {"names": ["missing_semicolon"], "per_fault": 1, "tries": 1, "minimum": {"compile_error": 3}}
    built = build(a_recipe(kind="repair", faults=faults), judge, include_dir(), jobs=1, display=silent)
    assert len(built.rows) == 3
    assert not built.missing


def test_operators_begin_with_different_kernels() -> None:
    judge = Judge({"ptx::fence_mbarrier_init()\n": SEMICOLON})
    faults = {"names": ["missing_semicolon", "missing_full_wait", "missing_release"], "per_fault": 1, "tries": 1}
    build(a_recipe(kind="repair", faults=faults), judge, include_dir(), jobs=1, display=silent)
    tried = [origin.partition(" + ")[2] for origin in judge.asked if " + " in origin]
    assert len(set(tried)) == len(tried) == 2


def test_no_good_kernel_is_an_error() -> None:
    judge = Judge({"gradients_of_keys": a_verdict("", Outcome.WRONG_RESULT)})
    with pytest.raises(UsageError, match="accepted none of the kernels"):
        build(a_recipe(kind="repair"), judge, include_dir(), jobs=1, display=silent)


def test_a_fault_that_breaks_nothing_makes_no_row() -> None:
    faults = {"names": ["missing_semicolon"], "per_fault": 1, "tries": 2}
    built = build(a_recipe(kind="repair", faults=faults), Judge(), include_dir(), jobs=1, display=silent)
    assert not built.rows
    assert [item.gate for item in built.dropped if " + " in item.name] == ["not_broken"] * 2


def test_nothing_to_judge_is_an_error() -> None:
    sources = {"families": ["forward_hopper"], "tasks": ["gemm_f16"]}
    with pytest.raises(UsageError, match="leaves no kernel to judge"):
        build(a_recipe(sources=sources), Judge(), include_dir(), jobs=1, display=silent)
    with pytest.raises(UsageError, match="unknown kernel family 'nothing'"):
        build(a_recipe(sources={"families": ["nothing"]}), Judge(), include_dir(), jobs=1, display=silent)


def test_the_first_failure_of_the_machinery_ends_the_work() -> None:
    done: list[int] = []

    def work(item: int) -> int:
        if item == 2:
            raise ToolchainError("no compiler")
        time.sleep(0.01)
        return item

    with pytest.raises(ToolchainError):
        in_parallel(work, range(10_000), 1, done.append)
    assert 2 not in done
    assert len(done) < 9_999


def test_good_kernels_keep_their_verdict() -> None:
    (variant,) = some_variants("backward_hopper", "mha_bwd_d64", 1)
    result = judge_good(Judge(), as_kernel(variant), 0.15)
    assert isinstance(result, GoodKernel)
    assert result.verdict.target is Target.SM_90A


def test_kernels_are_spread_and_a_larger_limit_takes_the_same_and_more() -> None:
    assert spread_order(8) == [0, 4, 2, 6, 1, 5, 3, 7]
    assert sorted(spread_order(11)) == list(range(11))
    assert spread_order(1) == [0]
    few, more = (
        [kernel.name for kernel in select(a_recipe(sources={"families": ["backward_hopper"], "per_task": limit}),
                                          include_dir()).kernels]
        for limit in (1, 3)
    )  # fmt: skip
    assert set(few) < set(more)
