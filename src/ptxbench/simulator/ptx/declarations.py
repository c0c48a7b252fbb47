"""Declarations: registers, variables and parameters."""

from __future__ import annotations

import re
from typing import Final

from ptxbench.simulator.ptx.ir import Operand, Registers, Variable
from ptxbench.simulator.ptx.operands import OperandParser
from ptxbench.simulator.ptx.text import Cursor

_WORD = re.compile(r"\.([A-Za-z_]\w*+)")
_NAME = re.compile(r"[A-Za-z_$%][\w$]*+")
_NUMBER = re.compile(r"[0-9]++")
_RANGE = re.compile(r"<\s*+([0-9]++)\s*+>")
_DIMENSION = re.compile(r"\[\s*+([0-9]*+)\s*+\]")
_VECTOR = re.compile(r"v([248])")
_EQUALS = re.compile(r"=")
_INITIALIZER = re.compile(r"[^;]++")
_COMMA = re.compile(r",")
_SEMICOLON = re.compile(r";")
_MAX_DIGITS = 12

SPACES: Final = frozenset({"global", "const", "shared", "local", "param"})
LINKAGES: Final = frozenset({"visible", "extern", "weak", "common"})


def parse_registers(cursor: Cursor, line: int) -> Registers:
    """``.reg`` up to and with its semicolon; the cursor stands behind the word."""
    type_name, vector = _type(cursor)
    names: list[tuple[str, int | None]] = []
    while True:
        name = cursor.expect(_NAME, "a register name")[0]
        count = cursor.accept(_RANGE)
        names.append((name, _integer(cursor, count[1]) if count else None))
        if cursor.accept(_COMMA) is None:
            break
    cursor.expect(_SEMICOLON, "';' behind the registers")
    return Registers(type_name, tuple(names), vector, line)


def parse_variables(cursor: Cursor, space: str, linkage: str, line: int, operands: OperandParser) -> list[Variable]:
    """The variables of one statement, up to and with its semicolon; the cursor stands behind the state space."""
    align, pointer, type_name, vector = _attributes(cursor)
    found: list[Variable] = []
    while True:
        name, dims = _name(cursor)
        initializer = _initializer(cursor, line, operands) if cursor.accept(_EQUALS) else None
        found.append(Variable(space, type_name, name, align, vector, dims, initializer, linkage, pointer, line))
        if initializer is not None or cursor.accept(_COMMA) is None:
            break
    cursor.expect(_SEMICOLON, "';' behind the variable")
    return found


def parse_parameter(cursor: Cursor, line: int) -> Variable | Registers:
    """One parameter of a function; the cursor stands before ``.param`` or ``.reg``."""
    word = cursor.expect(_WORD, ".param")[1]
    if word == "reg":
        type_name, vector = _type(cursor)
        return Registers(type_name, ((cursor.expect(_NAME, "a register name")[0], None),), vector, line)
    if word != "param":
        cursor.fail(f"expected .param, found .{word}")
    align, pointer, type_name, vector = _attributes(cursor)
    name, dims = _name(cursor)
    return Variable("param", type_name, name, align, vector, dims, None, "", pointer, line)


def _type(cursor: Cursor) -> tuple[str, int]:
    _, _, type_name, vector = _attributes(cursor)
    return type_name, vector


def _attributes(cursor: Cursor) -> tuple[int | None, tuple[str, int | None] | None, str, int]:
    """The words between the state space and the name: alignment, ``.ptr`` attributes, type and vector length."""
    align: int | None = None
    pointer_space = ""
    pointer_align: int | None = None
    type_name = ""
    vector = 1
    while word := cursor.accept(_WORD):
        if word[1] == "align":
            value = _integer(cursor, cursor.expect(_NUMBER, "an alignment")[0])
            if pointer_space:
                pointer_align = value
            else:
                align = value
        elif word[1] == "ptr":
            pointer_space = "generic"
        elif word[1] in SPACES and pointer_space:
            pointer_space = word[1]
        elif found := _VECTOR.fullmatch(word[1]):
            vector = int(found[1])
        elif type_name:
            cursor.fail(f"unexpected .{word[1]} behind .{type_name}")
        else:
            type_name = word[1]
    if not type_name:
        cursor.fail(f"expected a type, found {cursor.ahead()}")
    return align, (pointer_space, pointer_align) if pointer_space else None, type_name, vector


def _name(cursor: Cursor) -> tuple[str, tuple[int | None, ...]]:
    name = cursor.expect(_NAME, "a name")[0]
    dims: list[int | None] = []
    while found := cursor.accept(_DIMENSION):
        dims.append(_integer(cursor, found[1]) if found[1] else None)
    return name, tuple(dims)


def _initializer(cursor: Cursor, line: int, operands: OperandParser) -> Operand:
    operands.line = line
    return operands.parse(cursor.expect(_INITIALIZER, "an initialiser")[0].strip())


def _integer(cursor: Cursor, digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        cursor.fail(f"number {digits[:_MAX_DIGITS]}... is too large")
    return int(digits)
