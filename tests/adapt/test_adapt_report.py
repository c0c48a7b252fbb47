from __future__ import annotations

import xml.dom.minidom
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from adapt_verdicts import Judge, a_verdict

from ptxbench.adapt import Built, Recipe, build, report_page, rows_digest
from ptxbench.adapt.data.card import data_card
from ptxbench.adapt.data.charts import bars, grid, histogram
from ptxbench.adapt.data.files import BuildRecord
from ptxbench.adapt.data.judged import Say
from ptxbench.adapt.data.statistics import BINS, describe, good_sources
from ptxbench.core import Outcome
from ptxbench.solutions import include_dir


@contextmanager
def silent(title: str, total: int) -> Generator[Say]:
    yield lambda line: None


@pytest.fixture(scope="module")
def built() -> Built:
    recipe = Recipe.model_validate({
        "name": "test", "kind": "repair", "about": "A test.",
        "sources": {"families": ["backward_hopper", "backward_blackwell"], "per_task": 3},
        "faults": {"names": ["missing_semicolon", "missing_release"], "minimum": {"compile_error": 2, "slow": 1}},
        "shapes": {"attention_backward": [{"B": 2, "H": 8, "S": 2048}]},
    })  # fmt: skip
    judge = Judge({"ptx::fence_mbarrier_init()\n": a_verdict("", Outcome.COMPILE_ERROR, reason="expected a ';'")})
    return build(recipe, judge, include_dir(), jobs=1, display=silent)


def test_numbers_agree_with_the_rows(built: Built) -> None:
    numbers = describe(built)
    assert numbers.rows == len(built.rows) == sum(numbers.splits.values())
    assert sum(numbers.axes["task"].counts.values()) == numbers.rows
    assert numbers.axes["failure"].counts == {"compile_error": numbers.rows}
    assert numbers.kernels == len(good_sources(built.rows)) == len({row.provenance.good for row in built.rows})
    assert sum(numbers.evaluation_similarity) == numbers.kernels
    assert len(numbers.pair_similarity) == BINS
    assert numbers.distinct["0.95"] >= numbers.distinct["0.70"] >= 1
    assert numbers.tokens["least"] <= numbers.tokens["median"] <= numbers.tokens["most"]
    assert set(numbers.missing) == {"slow"}
    assert numbers.devices == {"simulator": numbers.rows}
    assert numbers.judges == {"0123": numbers.rows}
    assert numbers.distinct_by_technique["recomputation"] == numbers.kernels


def test_rows_whose_kernels_were_judged_in_two_places_name_both(built: Built) -> None:
    row = built.rows[0]
    devices = {"good": "NVIDIA H200", "faulty": "simulator"}
    moved = row.model_copy(update={"provenance": row.provenance.model_copy(update={"devices": devices})})
    both = describe(replace(built, rows=[moved, *built.rows[1:]]))
    assert both.devices == {"NVIDIA H200 and simulator": 1, "simulator": len(built.rows) - 1}


def test_the_page_is_whole_and_self_contained(built: Built) -> None:
    record = BuildRecord(
        recipe="test", kind="repair", digest=rows_digest(built.rows), statistics=describe(built),
        dropped=tuple(built.dropped),
    )  # fmt: skip
    page = report_page(record)
    assert "missing semicolon" in page
    assert "needs a device that times kernels" in page
    assert page.count("<svg") == page.count("</svg>") > 6
    assert "<script" not in page
    assert "src=" not in page
    assert "http" not in page


def test_charts_are_well_formed_and_escaped() -> None:
    for text in (bars({"a<b": 3, "c": 0}, marks={"a<b": 2}), histogram([0, 3, 1], limit=0.5), grid({"x": {"y&z": 2}})):
        xml.dom.minidom.parseString(text)
    assert "a&lt;b" in bars({"a<b": 3})


def test_the_card_names_files_digest_and_what_is_missing(built: Built) -> None:
    card = data_card(built, "d1gest", describe(built))
    assert card.startswith("---\n")
    assert "license: apache-2.0" in card
    assert "path: train.parquet" in card
    assert "d1gest" in card
    assert "- slow: 1 of 1 rows are missing" in card
    assert "The families of all evaluation tasks are held out" in card


def test_a_card_says_that_evaluation_tasks_were_asked_for(built: Built) -> None:
    recipe = built.recipe.model_copy(update={"evaluation_tasks": ("mha_fwd_d128",)})
    asked = Built(recipe, built.rows, built.dropped, built.trials)
    assert "because the recipe asks for them: mha_fwd_d128." in data_card(asked, "d", describe(asked))
