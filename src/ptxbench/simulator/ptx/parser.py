"""The parser: PTX text to `Module`, in one pass over the statements.

Inside a function one regular expression recognises a whole statement, so the cost is per statement and not per
character. Nested scopes are kept on an explicit stack. Every error is a `PtxSyntaxError` with its line.
"""

from __future__ import annotations

import re
from typing import Literal

from ptxbench.simulator.ptx.declarations import LINKAGES, SPACES, parse_parameter, parse_registers, parse_variables
from ptxbench.simulator.ptx.ir import (
    Directive,
    Function,
    Guard,
    Instruction,
    Item,
    Label,
    Location,
    Module,
    Registers,
    Scope,
    Section,
    Statement,
    Variable,
)
from ptxbench.simulator.ptx.operands import OperandParser
from ptxbench.simulator.ptx.text import Cursor, strip_comments

# Alternatives end in distinct groups, so that `lastgroup` names the kind of statement.
_STATEMENT = re.compile(
    r"""\s*+(?:
      (?P<location>\.loc\b[^\n]*+)
    | (?P<label>[A-Za-z_$%][\w$]*+)\s*+:(?!:)
    | (?:@\s*+(?P<negated>!?)\s*+(?P<guard>[A-Za-z_$%][\w$]*+)\s*+)?+
      (?P<opcode>[a-z]\w*+(?:(?:\.|::)\w++)*+)(?P<operands>[^;]*+);
    | (?P<open>\{)
    | (?P<close>\})
    | \.(?P<directive>[a-z]\w*+)
    | (?P<empty>;)
    )""",
    re.X,
)
_LOCATION = re.compile(
    r"\.loc\s++(\d{1,9})\s++(\d{1,9})\s++(\d{1,9})"
    r"(?:\s*+,\s*+function_name\s++([\w$.]++)(?:\s*+\+\s*+\d++)?)?"
    r"(?:\s*+,\s*+inlined_at\s++(\d{1,9})\s++(\d{1,9})\s++(\d{1,9}))?\s*+$"
)
_HEADER = re.compile(r"\.version\s++(\S++)\s++\.target\s++([^\n]++)\n\s*+\.address_size\s++(\d{1,3})\b")
_WORD = re.compile(r"\.([A-Za-z_]\w*+)")
_NAME = re.compile(r"[A-Za-z_$%][\w$]*+")
_OPEN = re.compile(r"\(")
_CLOSE = re.compile(r"\)")
_COMMA = re.compile(r",")
_BRACE = re.compile(r"\{")
_SEMICOLON = re.compile(r";")
_TO_SEMICOLON = re.compile(r"([^;]*+);")
_FILE = re.compile(r'[0-9]{1,9}\s++"[^"\n]*+"[^\n]*+')
_TO_BRACE = re.compile(r"([^{}]*+)\}")
_DIRECTIVE_TEXT = re.compile(r"[^.;{\n]*+")
_SECTION_NAME = re.compile(r"\.?[\w.$]++")
_MAX_NESTING = 64


def parse(text: str) -> Module:
    """Parses PTX text. Raises `PtxSyntaxError`; takes time linear in the length of the text."""
    return _Parser(strip_comments(text)).module()


class _Parser:
    def __init__(self, text: str) -> None:
        self._cursor = Cursor(text)
        self._operands = OperandParser()

    def module(self) -> Module:
        cursor = self._cursor
        header = cursor.expect(_HEADER, ".version, .target and .address_size")
        items: list[Item] = []
        while True:
            cursor.skip_space()
            if cursor.position == len(cursor.text):
                return Module(header[1], header[2].strip(), int(header[3]), tuple(items))
            items.extend(self._item())

    def _item(self) -> list[Item]:
        cursor = self._cursor
        line = cursor.line_at(cursor.position)
        if cursor.accept(_SEMICOLON):
            return []
        word = cursor.expect(_WORD, "a directive")[1]
        linkage = ""
        if word in LINKAGES:
            linkage, word = word, cursor.expect(_WORD, "a directive")[1]
        if word == "entry":
            return [self._function("entry", linkage, line)]
        if word == "func":
            return [self._function("func", linkage, line)]
        if word in SPACES:
            return [*parse_variables(cursor, word, linkage, line, self._operands)]
        if word == "section":
            return [self._section()]
        if word == "file":
            return [Directive(".file", cursor.expect(_FILE, "a file's number and path")[0].strip(), "", line)]
        if word in ("pragma", "alias"):
            return [Directive(f".{word}", cursor.expect(_TO_SEMICOLON, "';'")[1].strip(), "", line)]
        return cursor.fail(f"unknown directive .{word}")

    def _function(self, kind: Literal["entry", "func"], linkage: str, line: int) -> Function:
        cursor = self._cursor
        results = self._parameters() if kind == "func" else ()
        name = cursor.expect(_NAME, "the name of the function")[0]
        parameters = self._parameters()
        directives: list[Directive] = []
        while word := cursor.accept(_WORD):
            at = cursor.line_at(word.start())
            text = cursor.expect(_DIRECTIVE_TEXT, "a directive")[0].strip()
            directives.append(Directive(f".{word[1]}", text, "", at))
        body: tuple[Statement, ...] | None = None
        if cursor.accept(_SEMICOLON) is None:
            cursor.expect(_BRACE, "'{' or ';'")
            body = self._body()
        return Function(kind, name, linkage, parameters, results, tuple(directives), body, line)

    def _parameters(self) -> tuple[Variable | Registers, ...]:
        cursor = self._cursor
        found: list[Variable | Registers] = []
        if cursor.accept(_OPEN) is None or cursor.accept(_CLOSE):
            return ()
        while True:
            cursor.skip_space()
            found.append(parse_parameter(cursor, cursor.line_at(cursor.position)))
            if cursor.accept(_COMMA) is None:
                cursor.expect(_CLOSE, "')' behind the parameters")
                return tuple(found)

    def _body(self) -> tuple[Statement, ...]:
        """The statements of a function up to its closing brace."""
        cursor, operands = self._cursor, self._operands
        text, line_at, match = cursor.text, cursor.line_at, _STATEMENT.match
        stack: list[list[Statement]] = []
        current: list[Statement] = []
        while True:
            found = match(text, cursor.position)
            if found is None:
                cursor.skip_space()
                cursor.fail(f"cannot read the statement {cursor.ahead()}")
            cursor.position = found.end()
            kind = found.lastgroup
            if kind == "operands":
                negated, guard, opcode, rest = found.group("negated", "guard", "opcode", "operands")
                operands.line = line = line_at(found.start("opcode"))
                condition = Guard(guard, negated == "!") if guard else None
                current.append(Instruction(opcode, operands.parse_list(rest), condition, line))
            elif kind == "location":
                current.append(self._location(found["location"], found.start("location")))
            elif kind == "label":
                current.append(Label(found["label"], line_at(found.start("label"))))
            elif kind == "open":
                if len(stack) == _MAX_NESTING:
                    cursor.fail("scopes are nested too deeply")
                stack.append(current)
                current = []
            elif kind == "close":
                if not stack:
                    return tuple(current)
                scope = Scope(tuple(current))
                current = stack.pop()
                current.append(scope)
            elif kind == "directive":
                self._directive(found["directive"], line_at(found.start("directive")), current)

    def _location(self, text: str, position: int) -> Location:
        found = _LOCATION.match(text.rstrip())
        if found is None:
            self._cursor.position = position
            self._cursor.fail(f"cannot read {text.strip()!r}")
        file, line, column, function, *inlined = found.groups()
        at = (int(inlined[0]), int(inlined[1]), int(inlined[2])) if inlined[0] else None
        return Location(int(file), int(line), int(column), function or "", at)

    def _directive(self, word: str, line: int, current: list[Statement]) -> None:
        cursor = self._cursor
        if word == "reg":
            current.append(parse_registers(cursor, line))
            return
        linkage = ""
        if word in LINKAGES:
            linkage, word = word, cursor.expect(_WORD, "a state space")[1]
        if word in SPACES:
            current.extend(parse_variables(cursor, word, linkage, line, self._operands))
            return
        label = ""
        if word in ("branchtargets", "calltargets", "callprototype") and current and isinstance(current[-1], Label):
            label = current[-1].name
            current.pop()
        current.append(Directive(f".{word}", cursor.expect(_TO_SEMICOLON, "';'")[1].strip(), label, line))

    def _section(self) -> Section:
        cursor = self._cursor
        name = cursor.expect(_SECTION_NAME, "the name of the section")[0]
        cursor.expect(_BRACE, "'{'")
        body = cursor.expect(_TO_BRACE, "'}' of the section")[1]
        return Section(name, "\n".join(line.strip() for line in body.strip().split("\n")))
