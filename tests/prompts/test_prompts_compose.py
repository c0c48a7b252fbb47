"""Prompts: what conditions show, what can be left out, and that nothing held out gets in."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from ptxbench.build import find_toolchain
from ptxbench.core import Target, Task, UsageError
from ptxbench.judge.instructions import CARRIED_LOWER, OTHER_MATH_UPPER
from ptxbench.judge.yardstick import MAX_FACTOR, RMS_FACTOR
from ptxbench.prompts import Prompt, compose, documents, estimate_tokens, load_conditions, load_parts
from ptxbench.tasks import get_task, load_tasks

HEADERS = "// the text of the headers\n"
FILES = Path(compose.__code__.co_filename).parent / "parts"
VERSIONS = Path(__file__).parent / "part_versions.toml"


def prompt(
    task: str = "gemm_n7168_k5120",
    target: Target = Target.SM_90A,
    condition: str = "full",
    without: Sequence[str] = (),
    header_text: str | None = HEADERS,
) -> Prompt:
    return compose(get_task(task), target, condition, without=without, header_text=header_text)


def names(made: Prompt) -> list[str]:
    return [part.name for part in made.parts]


def test_conditions_are_ordered_by_what_they_show() -> None:
    shown = {name: set(names(prompt(condition=name))) for name in load_conditions()}
    assert list(shown) == ["bare", "sheet", "docs", "headers", "techniques", "full", "repair"]
    assert shown["bare"] == {"system", "statement", "answer"}
    assert shown["bare"] < shown["sheet"] < shown["docs"] < shown["techniques"] < shown["full"] < shown["repair"]
    assert shown["headers"] - shown["sheet"] == {"headers"}
    assert shown["repair"] - shown["full"] == {"repair_checklist"}


@pytest.mark.parametrize("target", list(Target))
@pytest.mark.parametrize("task", load_tasks().values(), ids=lambda task: task.name)
def test_every_task_has_every_prompt(task: Task, target: Target) -> None:
    for condition in load_conditions():
        made = compose(task, target, condition, header_text=HEADERS)
        assert made.user.startswith("# Task:")
        assert not re.search(r"<\$|\$>|<%|%>|\n{4,}", made.system + made.user)
        assert made.tokens == pytest.approx(estimate_tokens(made.system + made.user), rel=0.02)


@pytest.mark.parametrize("task", load_tasks().values(), ids=lambda task: task.name)
def test_the_statement_gives_the_contract_and_the_public_sizes(task: Task) -> None:
    text = compose(task, Target.SM_90A, "bare").user
    for c_type, name in task.parameters():
        assert f"{c_type} {name}" in text
    for workload in task.of_tier("core", "small"):
        assert ", ".join(f"{size}={value}" for size, value in workload.sizes.items()) in text
    for size, multiple in task.size_rules.items():
        assert f"`{size}` is a positive multiple of {multiple}" in text
    for argument in task.arguments:
        assert f"| `{argument.name}` | {argument.role} |" in text


@pytest.mark.parametrize("task", load_tasks().values(), ids=lambda task: task.name)
def test_held_out_sizes_are_nowhere(task: Task) -> None:
    """Every size that only a held-out workload has, and every such row as a whole."""
    shown = {(name, value) for w in task.of_tier("core", "small") for name, value in w.sizes.items()}
    text = compose(task, Target.SM_90A, "repair", header_text="").user
    for workload in task.of_tier("heldout"):
        assert ", ".join(f"{size}={value}" for size, value in workload.sizes.items()) not in text
        for name, value in set(workload.sizes.items()) - shown:
            assert not re.search(rf"\b{name} ?= ?{value}\b", text)


def test_the_statement_states_the_gates_that_the_judge_applies() -> None:
    text = prompt(condition="bare").user
    assert f"at least {CARRIED_LOWER * 100:.0f} %" in text
    assert f"at most {OTHER_MATH_UPPER * 100:.0f} %" in text
    assert f"up to {RMS_FACTOR} units" in text
    assert f"up to {MAX_FACTOR:g} times the honest kernel's largest" in text


def test_the_statement_names_the_compilers_standard() -> None:
    command = find_toolchain().nvcc(Target.SM_90A)
    standard = next(option for option in command if option.startswith("-std="))
    assert f"`{standard} -O3`" in prompt(condition="bare").user


def test_formulas_follow_the_layout_of_the_row() -> None:
    assert "C[m, n] = Σ_k A[m, k] · B[n, k]." in prompt(condition="bare").user
    assert "C[m, n] = Σ_k A[k, m] · B[k, n]." in prompt("gemm_a_km_b_kn", condition="bare").user
    assert "C[l, m, n] = Σ_k A[l, m, k] · B[l, n, k]." in prompt("gemm_batched", condition="bare").user
    assert "plus `bias[n]`, then GELU" in prompt("gemm_bias_gelu", condition="bare").user


def test_causal_tasks_say_so() -> None:
    mask = "for j ≤ i"
    assert mask in prompt("mha_fwd_d128_causal", condition="bare").user
    assert mask in prompt("mha_bwd_d128_causal", condition="bare").user
    assert mask not in prompt("mha_fwd_d128", condition="bare").user


def test_parts_follow_target_operation_and_options() -> None:
    hopper, blackwell = names(prompt()), names(prompt(target=Target.SM_100A))
    assert "wgmma" in hopper
    assert "tcgen05" not in hopper
    assert "tcgen05" in blackwell
    assert "wgmma" not in blackwell
    assert "multicast" in hopper
    assert "causal" not in names(prompt("mha_fwd_d128"))
    causal = names(prompt("mha_bwd_d128_causal"))
    assert {"attention_backward", "causal"} <= set(causal)
    assert not {"attention_forward", "multicast"} & set(causal)


def test_parts_of_a_group_have_an_order() -> None:
    assert names(prompt(condition="docs")) == [
        "system", "statement", "data_sheet", "mbarrier", "tma", "wgmma", "async_proxy", "clusters", "setmaxnreg",
        "epilogue", "answer",
    ]  # fmt: skip


def test_a_part_or_a_group_can_be_left_out() -> None:
    docs = set(names(prompt(condition="docs")))
    assert docs - set(names(prompt(condition="docs", without=["sheet"]))) == {"data_sheet"}
    assert set(names(prompt())) - set(names(prompt(without=["wgmma", "data_sheet"]))) == {"wgmma", "data_sheet"}
    assert names(prompt(condition="docs", without=["ptx"])) == names(prompt(condition="sheet"))
    assert prompt(condition="docs", without=["ptx"]).digest == prompt(condition="sheet").digest


def test_headers_are_offered_only_where_they_are_shown() -> None:
    assert HEADERS.strip() in prompt(condition="headers").user
    assert prompt(condition="headers").offers_headers
    assert "ptxbench/ptx" in prompt(condition="headers").user
    for made in (prompt(condition="docs"), prompt(without=["headers"])):
        assert not made.offers_headers
        assert "ptxbench/ptx" not in made.user
        assert HEADERS.strip() not in made.user


@pytest.mark.parametrize(
    ("condition", "without", "header_text", "message"),
    [
        ("ful", [], HEADERS, "unknown prompt condition 'ful'; did you mean full"),
        ("full", ["wgma"], HEADERS, "unknown part 'wgma'; did you mean wgmma"),
        ("bare", ["wgmma"], HEADERS, "has no part 'wgmma'"),
        ("bare", ["statement"], HEADERS, "cannot be left out"),
        ("bare", ["task"], HEADERS, "cannot be left out"),
        ("headers", [], None, "give its text"),
    ],
)
def test_impossible_requests_are_usage_errors(
    condition: str, without: list[str], header_text: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        prompt(condition=condition, without=without, header_text=header_text)


def test_the_digest_names_the_texts() -> None:
    made = prompt()
    assert made.digest == hashlib.sha256(json.dumps([made.system, made.user]).encode()).hexdigest()
    assert made.digest == prompt().digest
    assert made.digest != prompt(without=["multicast"]).digest
    assert Prompt.model_validate_json(made.model_dump_json()) == made


def test_versions_grow_with_the_texts() -> None:
    """Records of runs name parts by version, so a text must not change under its version.

    After a change: increase the part's version and write the file anew (`python tests/prompts/part_versions.py`).
    """
    recorded = tomllib.loads(VERSIONS.read_text())
    current = {
        part.name: {"version": part.version, "sha256": hashlib.sha256(part.template.encode()).hexdigest()}
        for part in load_parts().values()
    }
    assert current == recorded


def test_documents_are_the_knowledge_without_the_task() -> None:
    found = documents(get_task("mha_fwd_d128"), Target.SM_100A)
    assert {"data_sheet", "tcgen05", "attention_forward", "repair_checklist"} <= set(found)
    assert not {"statement", "system", "answer", "headers", "wgmma"} & set(found)
    assert found["tcgen05"].startswith("## tcgen05")


def test_documents_are_worth_their_room() -> None:
    """Everything but the header set stays small beside a model's window, and no document is a stub."""
    for task in load_tasks("core").values():
        for target in Target:
            assert all(150 < estimate_tokens(text) < 2500 for text in documents(task, target).values())
            assert compose(task, target, "repair", header_text="").tokens < 15_000


def test_tokens_are_not_underestimated_for_code() -> None:
    """A vocabulary of 150 thousand words needs one token for 2.95 bytes of such code (measured)."""
    assert estimate_tokens("") == 0
    assert estimate_tokens("x" * 29) == 10
    assert estimate_tokens("é") == 1
