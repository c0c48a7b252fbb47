"""Every instruction form that ptxas accepts is executed or refused by name, and the page says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from isa_forms import Section, Text, read_sections
from isa_probe import Row, page, rows

from ptxbench.core import Target

PAGE = Path(__file__).parents[2] / "docs" / "vocabulary.md"


@pytest.fixture(scope="module")
def found() -> list[tuple[Section, Sequence[Row]]]:
    return [(section, list(rows(section))) for section in read_sections()]


def test_every_pattern_exists(found: list[tuple[Section, Sequence[Row]]]) -> None:
    unknown = [row.pattern for _, lines in found for row in lines if not any(row.accepted.values())]
    assert not unknown


def test_the_page_is_current(found: list[tuple[Section, Sequence[Row]]]) -> None:
    assert page(found) == PAGE.read_text(), "run python tests/oracles/isa_probe.py docs/vocabulary.md"


def test_what_computes_on_registers_is_executed(found: list[tuple[Section, Sequence[Row]]]) -> None:
    refused = {section.title: sum(row.refused.total() for row in lines) for section, lines in found if section.computes}
    assert sum(row.accepted[Target.SM_90A] for _, lines in found for row in lines) > 2500
    assert refused["Bits"] == refused["Comparison and selection"] == refused["Lanes of a warp"] == 0


def test_forms_are_spelled_out() -> None:
    section = Section("s", computes=True, patterns=["mul.{lo,hi}{,.x}.<u16,s32> | W T 2*T !pred [g,2*s32]"])
    forms = list(section.forms())
    assert len(forms) == 8
    assert forms[1].opcode == "mul.lo.s32"
    text = Text(forms[0])
    assert text.instruction == "mul.lo.u16 x0, x1, {x2, x3}, !x4, [x5, {x6, x7}];"
    assert text.declarations.startswith(".reg .u32 x0; .reg .u16 x1;")
