"""What the parser makes of single statements, and how it refuses what is not PTX."""

from __future__ import annotations

import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.simulator import ptx

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def kernel(body: str, parameters: str = "") -> str:
    return f"{HEADER}.visible .entry k({parameters})\n{{\n{body}\n}}\n"


def body_of(body: str) -> tuple[ptx.Statement, ...]:
    statements = ptx.parse(kernel(body)).function("k").body
    assert statements is not None
    return statements


def operands_of(text: str) -> tuple[ptx.Operand, ...]:
    (statement,) = body_of(f"op {text};")
    assert isinstance(statement, ptx.Instruction)
    return statement.operands


def test_instruction_with_guard() -> None:
    (statement,) = body_of("@!%p1 add.rn.f32 %f1, %f2, 0f3F800000;")
    assert statement == ptx.Instruction(
        "add.rn.f32",
        (ptx.Name("%f1"), ptx.Name("%f2"), ptx.Immediate(0x3F800000, "f32")),
        ptx.Guard("%p1", negated=True),
    )


@pytest.mark.parametrize(
    ("text", "operand"),
    [
        ("-7", ptx.Immediate(-7)),
        ("0x1F", ptx.Immediate(31)),
        ("0xffffffffU", ptx.Immediate(0xFFFFFFFF)),
        ("0b101", ptx.Immediate(5)),
        ("017", ptx.Immediate(15)),
        ("(16*4 + (1<<3))/2 - 1", ptx.Immediate(35)),
        ("-7/2", ptx.Immediate(-3)),
        ("-7 % 4", ptx.Immediate(-3)),
        ("~0", ptx.Immediate(-1)),
        ("6 & 3 | 8", ptx.Immediate(10)),
        ("0d3FF8000000000000", ptx.Immediate(0x3FF8000000000000, "f64")),
        ("1.5", ptx.Immediate(0x3FF8000000000000, "f64")),
        ("!%p1", ptx.Not(ptx.Name("%p1"))),
        ("%p1|%p2", ptx.Pair(ptx.Name("%p1"), ptx.Name("%p2"))),
        ("%r1 | _", ptx.Pair(ptx.Name("%r1"), ptx.Name("_"))),
        ("%tid.x", ptx.Name("%tid.x")),
        ("{%r1, 2}", ptx.Vector((ptx.Name("%r1"), ptx.Immediate(2)))),
        ("[%rd1]", ptx.Address(ptx.Name("%rd1"))),
        ("[%rd1+-16]", ptx.Address(ptx.Name("%rd1"), -16)),
        ("[tile + 4*8]", ptx.Address(ptx.Name("tile"), 32)),
        ("[16]", ptx.Address(ptx.Immediate(16))),
        (
            "[%rd1, {%r1, %r2}]",
            ptx.Address(ptx.Name("%rd1"), 0, (ptx.Vector((ptx.Name("%r1"), ptx.Name("%r2"))),)),
        ),
        ("tile+8", ptx.Offset(ptx.Name("tile"), 8)),
        ("(%r1)", ptx.Group((ptx.Name("%r1"),))),
    ],
)
def test_operands(text: str, operand: ptx.Operand) -> None:
    assert operands_of(text) == (operand,)


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1))
def test_constant_expressions_agree_with_python(a: int, b: int) -> None:
    assert operands_of(f"({a}) ^ (({b}) & 255), ({a}) < ({b})") == (
        ptx.Immediate(a ^ (b & 255)),
        ptx.Immediate(int(a < b)),
    )


@settings(deadline=None)
@given(st.floats(width=64, allow_nan=False, allow_infinity=False))
def test_decimal_floats_are_f64_patterns(value: float) -> None:
    (operand,) = operands_of(f"{value:.20e}")
    assert operand == ptx.Immediate(struct.unpack("<Q", struct.pack("<d", value))[0], "f64")


def test_scopes_labels_registers_and_comments() -> None:
    statements = body_of(
        """{ // a comment; with a semicolon
            .reg .b32 %t<3>, single; /* one
            more */
            LOOP: bra LOOP;
        }"""
    )
    assert statements == (
        ptx.Scope((
            ptx.Registers("b32", (("%t", 3), ("single", None))),
            ptx.Label("LOOP"),
            ptx.Instruction("bra", (ptx.Name("LOOP"),)),
        )),
    )  # fmt: skip


def test_lines_count_through_comments() -> None:
    text = kernel("/* one\n two */ add.u32 a, b, c;\n\n// three\nret;")
    function = ptx.parse(text).function("k")
    assert [statement.line for statement in function.body or () if isinstance(statement, ptx.Instruction)] == [7, 10]


def test_locations() -> None:
    (location,) = body_of(".loc 1 13 72, function_name $L__info_string0, inlined_at 2 52 5\n")
    assert location == ptx.Location(1, 13, 72, "$L__info_string0", (2, 52, 5))


def test_variables_with_initialisers() -> None:
    module = ptx.parse(
        HEADER + ".visible .global .align 4 .b8 table[2][3] = {{1, 2, 3}, {4}};\n.const .f32 c = 0f3F800000;\n"
    )
    assert module.items == (
        ptx.Variable(
            "global", "b8", "table", 4, 1, (2, 3),
            ptx.Vector((ptx.Vector(tuple(map(ptx.Immediate, (1, 2, 3)))), ptx.Vector((ptx.Immediate(4),)))), "visible",
        ),
        ptx.Variable("const", "f32", "c", initializer=ptx.Immediate(0x3F800000, "f32")),
    )  # fmt: skip


def test_parameters_and_directives() -> None:
    text = f"""{HEADER}.entry k(.param .align 64 .b8 map[128], .param .u64 .ptr .global .align 16 data)
.maxntid 128, 1, 1
.reqnctapercluster 2
{{ ret; }}"""
    function = ptx.parse(text).function("k")
    assert function.parameters == (
        ptx.Variable("param", "b8", "map", 64, 1, (128,)),
        ptx.Variable("param", "u64", "data", pointer=("global", 16)),
    )
    assert function.directives == (ptx.Directive(".maxntid", "128, 1, 1"), ptx.Directive(".reqnctapercluster", "2"))


def test_file_names_may_hold_comment_marks() -> None:
    module = ptx.parse(HEADER + '.file 1 "/a//b/*c.cu"\n')
    assert module.files() == {1: "/a//b/*c.cu"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("nonsense", 1),
        (kernel("add.u32 a, b"), 6),
        (kernel("ret;\nadd.u32 a, {b, c;"), 7),
        (kernel("ret;\n add.u32 a,, c;"), 7),
        (kernel("ld.u32 a, [b"), 6),
        (kernel("mov.u32 a, 1 +;"), 6),
        (kernel("mov.f32 a, 0f3F;"), 6),
        (kernel(".loc one\n"), 6),
        (kernel("/* no end"), 6),
        (kernel(".reg .b32;"), 6),
        (kernel("%%%;"), 6),
        (HEADER + ".mystery x;\n", 4),
        (HEADER + ".entry k() { ret;", 4),
        (HEADER + ".global .b32 x", 4),
    ],
)
def test_errors_name_the_line(text: str, line: int) -> None:
    with pytest.raises(ptx.PtxSyntaxError, match=f"line {line}:") as caught:
        ptx.parse(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    "body",
    [
        "{" * 100_000,
        "add.u32 " + "(" * 100_000 + ";",
        "add.u32 " + "{" * 100_000 + ";",
        "add.u32 " + "-" * 100_000 + ";",
        "add.u32 " + "1+" * 100_000 + ";",
        "/*" * 100_000,
        '"' * 100_000,
        "a" * 300_000,
        "a:" * 300_000 + ":",
        "@" * 300_000,
        "." * 300_000,
        " " * 300_000 + "?",
        "add.u32 a, b" + "\n" * 300_000,
        "mov.u32 a, " + "9" * 300_000 + ";",
        "x\n" * 100_000 + "{",
    ],
)
def test_hostile_text_ends_quickly_with_a_syntax_error(body: str) -> None:
    start = time.process_time()
    with pytest.raises(ptx.PtxSyntaxError):
        ptx.parse(kernel(body))
    assert time.process_time() - start < 2.0


@settings(deadline=None)
@given(st.text(alphabet="add.u32 %r1,[]{}()|!@;:.loc\n/*\"'0x9-+<>_$", max_size=60))
def test_arbitrary_text_is_parsed_or_refused(body: str) -> None:
    try:
        module = ptx.parse(kernel(body))
    except ptx.PtxSyntaxError:
        return
    assert ptx.parse(ptx.emit(module)) == module
