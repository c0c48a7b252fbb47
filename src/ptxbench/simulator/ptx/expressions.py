"""Constant expressions of integers, as inline assembly writes them: ``16*4+(1<<3)``. Arithmetic is 64-bit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NoReturn

from ptxbench.simulator.ptx.errors import PtxSyntaxError

_TOKEN = re.compile(r"\s*+(?:(0[xX][0-9a-fA-F]++|0[bB][01]++|[0-9]++)U?|(<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!()<>]))")
_SPACE = re.compile(r"\s*+")
_MAX_DEPTH = 50
_MAX_DIGITS = 66


def _divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int) -> int:
    return a - b * _divide(a, b)


# Operators by rising precedence, as in C.
_LEVELS: Final[tuple[dict[str, Callable[[int, int], int]], ...]] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": lambda a, b: a | b},
    {"^": lambda a, b: a ^ b},
    {"&": lambda a, b: a & b},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
    },
    {"<<": lambda a, b: a << (b & 63), ">>": lambda a, b: a >> (b & 63)},
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": _divide, "%": _remainder},
)


def evaluate(text: str, line: int) -> int:
    """The value of a constant expression, wrapped to 64 bits (signed unless it only fits unsigned)."""
    return _Evaluator(text, line).run()


class _Evaluator:
    def __init__(self, text: str, line: int) -> None:
        self._text = text
        self._line = line
        self._tokens = self._scan(text)
        self._next = 0
        self._depth = 0

    def run(self) -> int:
        value = self._binary(0)
        if self._next != len(self._tokens):
            self._fail()
        return value

    def _scan(self, text: str) -> list[str]:
        tokens: list[str] = []
        position = 0
        while found := _TOKEN.match(text, position):
            tokens.append(found[1] or found[2])
            position = found.end()
        if not tokens or text[position:].strip():
            self._fail()
        return tokens

    def _binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self._unary()
        value = self._binary(level + 1)
        operators = _LEVELS[level]
        while self._next < len(self._tokens) and self._tokens[self._next] in operators:
            symbol = self._tokens[self._next]
            self._next += 1
            right = self._binary(level + 1)
            if symbol in "/%" and right == 0:
                self._fail()
            value = _wrap(operators[symbol](value, right))
        return value

    def _unary(self) -> int:
        if self._next == len(self._tokens):
            self._fail()
        token = self._tokens[self._next]
        self._next += 1
        if token[0].isdigit():
            return self._number(token)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail()
        if token == "(":
            value = self._binary(0)
            if self._next == len(self._tokens) or self._tokens[self._next] != ")":
                self._fail()
            self._next += 1
        elif token == "-":
            value = _wrap(-self._unary())
        elif token == "~":
            value = ~self._unary()
        elif token == "!":
            value = int(not self._unary())
        elif token == "+":
            value = self._unary()
        else:
            self._fail()
        self._depth -= 1
        return value

    def _number(self, token: str) -> int:
        if len(token) > _MAX_DIGITS:
            self._fail()
        if token[0] == "0" and token.isdigit() and len(token) > 1:
            if not set(token) <= set("01234567"):
                self._fail()
            return _wrap(int(token, 8))
        return _wrap(int(token, 0))

    def _fail(self) -> NoReturn:
        raise PtxSyntaxError(self._line, f"cannot read operand {self._text.strip()[:60]!r}")


def _wrap(value: int) -> int:
    if -(2**63) <= value < 2**64:
        return value
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value
