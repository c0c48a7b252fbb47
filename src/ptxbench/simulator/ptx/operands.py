"""Operands: names, constants and constant expressions, vectors, pairs, addresses.

An instance remembers the operands it has seen by their text, because a kernel names the same registers over and over.
"""

from __future__ import annotations

import re
import struct
from typing import NoReturn

from ptxbench.simulator.ptx.errors import PtxSyntaxError
from ptxbench.simulator.ptx.expressions import evaluate
from ptxbench.simulator.ptx.ir import Address, Group, Immediate, Name, Not, Offset, Operand, Pair, Vector

NAME = r"[A-Za-z_$%][\w$]*+(?:\.[\w$]++)*+"

_NAME = re.compile(NAME)
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]*+)")
_BITS = re.compile(r"0([fFdD])([0-9a-fA-F]++)")
_REAL = re.compile(r"[-+]?[0-9]*+\.[0-9]*+(?:[eE][-+]?[0-9]++)?|[-+]?[0-9]++[eE][-+]?[0-9]++")
_DISPLACED = re.compile(rf"({NAME})\s*+([-+])(.++)", re.S)
_GENERIC = re.compile(rf"generic\s*+\(\s*+({NAME})\s*+\)(?:\s*+\+\s*+([0-9]++))?")
_BRACKETS = re.compile(r"[\[\]{}()]")
_BRACKET_OR_COMMA = re.compile(r"[\[\]{}(),]")
_MAX_NESTING = 4


class OperandParser:
    """Parses operand text. ``line`` is where errors are reported; the caller keeps it up to date."""

    __slots__ = ("_known", "line")

    def __init__(self) -> None:
        self.line = 1
        self._known: dict[str, Operand] = {}

    def parse_list(self, text: str, depth: int = 0) -> tuple[Operand, ...]:
        """A comma-separated list; empty text is an empty list."""
        if _BRACKETS.search(text) is None:
            parts = text.split(",")
            if len(parts) == 1 and not text.strip():
                return ()
        else:
            parts = self._split(text)
        known = self._known
        return tuple([known.get(part) or self._remember(part, depth) for part in parts])

    def parse(self, text: str, depth: int = 0) -> Operand:
        """One operand."""
        return self._known.get(text) or self._remember(text, depth)

    def _remember(self, text: str, depth: int) -> Operand:
        operand = self._operand(text.strip(), depth)
        self._known[text] = operand
        return operand

    def _split(self, text: str) -> list[str]:
        """Splits at the commas that stand outside brackets."""
        parts: list[str] = []
        start = depth = 0
        for found in _BRACKET_OR_COMMA.finditer(text):
            character = found[0]
            if character == ",":
                if depth == 0:
                    parts.append(text[start : found.start()])
                    start = found.end()
            elif character in "[{(":
                depth += 1
            else:
                depth -= 1
                if depth < 0:
                    self._fail(f"unexpected {character}")
        if depth:
            self._fail("a bracket does not close")
        parts.append(text[start:])
        return parts

    def _operand(self, text: str, depth: int) -> Operand:
        if not text:
            self._fail("an operand is missing")
        if depth > _MAX_NESTING:
            self._fail("brackets are nested too deeply")
        if _NAME.fullmatch(text):
            return Name(text)
        if _DECIMAL.fullmatch(text):
            return Immediate(self._number(text))
        first, last = text[0], text[-1]
        if first == "{" and last == "}":
            return Vector(self.parse_list(text[1:-1], depth + 1))
        if first == "[" and last == "]":
            return self._address(text[1:-1], depth)
        if first == "!":
            name = text[1:].strip()
            if not _NAME.fullmatch(name):
                self._fail(f"expected a predicate behind !, found {name!r}")
            return Not(Name(name))
        if first == "(" and last == ")" and "," in text:
            return Group(self.parse_list(text[1:-1], depth + 1))
        if "|" in text and (pair := self._pair(text, depth)) is not None:
            return pair
        return self._constant(text, depth)

    def _pair(self, text: str, depth: int) -> Pair | None:
        first, _, second = (part.strip() for part in text.partition("|"))
        if _NAME.fullmatch(first) and _NAME.fullmatch(second):
            return Pair(self.parse(first, depth), self.parse(second, depth))
        return None

    def _constant(self, text: str, depth: int) -> Operand:
        if found := _BITS.fullmatch(text):
            return self._float_bits(found[1].lower(), found[2])
        if _REAL.fullmatch(text) and any(character.isdigit() for character in text):
            return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], "f64")
        if found := _GENERIC.fullmatch(text):
            return Offset(Name(found[1]), evaluate(found[2] or "0", self.line), generic=True)
        if found := _DISPLACED.fullmatch(text):
            return Offset(Name(found[1]), evaluate(found[2] + found[3], self.line))
        if text[0] == "(" and text[-1] == ")" and (found := _NAME.fullmatch(text[1:-1].strip())):
            return Group((Name(found[0]),))
        return Immediate(evaluate(text, self.line))

    def _float_bits(self, kind: str, digits: str) -> Immediate:
        if len(digits) != (8 if kind == "f" else 16):
            self._fail(f"a 0{kind} constant has {len(digits)} digits")
        return Immediate(int(digits, 16), "f32" if kind == "f" else "f64")

    def _address(self, text: str, depth: int) -> Address:
        parts = self._split(text)
        extra = tuple(self.parse(part, depth + 1) for part in parts[1:])
        base = self.parse(parts[0], depth + 1)
        if isinstance(base, Name | Immediate):
            return Address(base, 0, extra)
        if isinstance(base, Offset) and not base.generic:
            return Address(base.base, base.offset, extra)
        return self._fail(f"[{text}] is not an address")

    def _number(self, text: str) -> int:
        if len(text) > 21:
            self._fail("a constant is too large")
        return int(text)

    def _fail(self, why: str) -> NoReturn:
        raise PtxSyntaxError(self.line, why)
