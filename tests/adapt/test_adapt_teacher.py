"""Explanations by a teacher model: what is asked, what counts, and what becomes of the rest."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from adapt_verdicts import Judge

from ptxbench.adapt import Lesson, Recipe, build
from ptxbench.adapt.data.card import data_card
from ptxbench.adapt.data.judged import Say
from ptxbench.adapt.data.recipe import Explanations
from ptxbench.adapt.data.statistics import describe
from ptxbench.adapt.data.teacher import objection
from ptxbench.cli.data import answers
from ptxbench.core import UsageError
from ptxbench.solutions import include_dir

KNOWN = "constexpr int TILE = 128; wgmma m64n128k16, 65,536 bytes, STAGES = 4, 0.5 of fp32"
WANTED = Explanations(teacher="a/b", words=(5, 20))
FINE = "A tile has 128 rows and 65536 bytes in `TILE`; m64n128k16 sums in fp32."


@contextmanager
def silent(title: str, total: int) -> Generator[Say]:
    yield lambda line: None


def a_recipe(teacher: str) -> Recipe:
    return Recipe.model_validate({
        "name": "test", "kind": "expert", "explanations": {"teacher": teacher, "words": (5, 40)},
        "sources": {"families": ["backward_hopper"], "tasks": ["mha_bwd_d64"], "per_task": 3},
        "shapes": {"attention_backward": [{"B": 2, "H": 32, "S": 2048}]},
    })  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (FINE, ""),
        ("1. Tiles of 128 rows come first.\n2. Then half, 0.50, of the 65,536 bytes.", ""),
        ("", "no answer"),
        ("Too short.", "too short or too long"),
        ("word " * 21, "too short or too long"),
        (FINE + "\n```cuda\nint x;\n```", "quotes code"),
        ("The loop calls `cp_async` in every round of it.", "names what is not in the kernel"),
        ("A tile has 192 rows of fp32 in it.", "numbers that are not the kernel's"),
        ("Products of m64n256k16 fill the tile in fp32.", "numbers that are not the kernel's"),
        ("A ring of 4 stages in bf16 is filled.", "numbers that are not the kernel's"),
    ],
)
def test_an_explanation_speaks_only_of_what_is_known(answer: str, problem: str) -> None:
    assert objection(answer, KNOWN, WANTED) == problem


def test_what_counts_replaces_the_template_and_the_rest_does_not() -> None:
    lessons: list[Lesson] = []

    def teacher(asked: Sequence[Lesson]) -> list[str]:
        lessons.extend(asked)
        good = "Each CTA keeps its rows, walks over the others and never needs an atomic."
        return [good, "It uses 12345 bytes, which is a number of nobody's.", *[""] * (len(asked) - 2)]

    recipe = a_recipe("openai/some-model")
    built = build(recipe, Judge(), include_dir(), jobs=1, display=silent, teacher=teacher)
    assert [lesson.number for lesson in lessons] == list(range(1, len(lessons) + 1))
    assert "**Shared memory.**" in lessons[0].user  # the facts
    assert "#include <cuda_bf16.h>" in lessons[0].user
    first, second = built.rows[0], built.rows[1]
    assert first.messages[-1].reasoning_content.startswith("Each CTA keeps its rows")
    assert first.licence == "Apache-2.0; explanation: output of openai/some-model"
    assert "**Shared memory.**" in second.messages[-1].reasoning_content
    assert second.licence == "Apache-2.0"
    numbers = describe(built)
    assert numbers.fallbacks["numbers that are not the kernel's"] == 1
    assert sum(numbers.fallbacks.values()) == len(lessons) - 1
    assert numbers.licences["Apache-2.0"] == len(built.rows) - 1
    card = data_card(built, "0", numbers)
    assert "license: other" in card
    assert "Explanations are those of openai/some-model where the licence says so" in card


def test_a_teacher_that_cannot_be_asked_is_an_error() -> None:
    with pytest.raises(UsageError, match="names the teacher a/b, which cannot be asked here"):
        build(a_recipe("a/b"), Judge(), include_dir(), jobs=1, display=silent)
    with pytest.raises(UsageError, match="answered nothing"):
        build(a_recipe("a/b"), Judge(), include_dir(), jobs=1, display=silent, teacher=lambda asked: [""] * len(asked))


def test_lessons_go_through_the_providers_of_runs(tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai")
    path = tmp_path / "teacher.jsonl"
    replies = [
        {"schema_version": 1, "task": "mha_bwd_d64", "epoch": 1, "call": 1, "text": "A plan."},
        {"schema_version": 1, "task": "mha_bwd_d64", "epoch": 2, "call": 1, "text": "", "error": "429 too many calls"},
    ]
    path.write_text("\n".join(map(json.dumps, replies)))
    lessons = [Lesson("mha_bwd_d64", number, "You explain.", "Explain this.") for number in (1, 2)]
    assert answers(f"replay:{path}", lessons) == ["A plan.", ""]
    with pytest.raises(UsageError, match="has no replies for mha_bwd_d64, epoch 3"):
        answers(f"replay:{path}", [Lesson("mha_bwd_d64", 3, "", "")])
    with pytest.raises(UsageError, match="there is no model 'teacher'"):
        answers("teacher", lessons)
