"""Numbers that a user writes: sizes by name, and arithmetic over them."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

from ptxbench.core import UsageError

LARGEST = 2**31 - 1
"""Sizes are ints of the launcher."""


def _divide(a: int, b: int) -> int:
    return a // b


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: _divide,
    ast.Div: _divide,
    ast.Mod: operator.mod,
}
_LONGEST = 200
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def evaluate(text: str, sizes: Mapping[str, int]) -> int:
    """The value of sums, products and (whole) quotients of numbers and sizes; `UsageError` names what is wrong."""
    if len(text) > _LONGEST:
        raise UsageError(f"the expression {text[:40]!r}... is longer than {_LONGEST} characters")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body, sizes, text)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"cannot read the expression {text!r}; write numbers, sizes and + - * / %") from error
    except ZeroDivisionError as error:
        raise UsageError(f"{text!r} divides by zero at these sizes") from error


def _value(node: ast.expr, sizes: Mapping[str, int], text: str) -> int:
    match node:
        case ast.Constant(value=int(value)):
            return value
        case ast.Name(id=name):
            if name not in sizes:
                known = ", ".join(sizes) or "none"
                raise UsageError(f"{name} in {text!r} has no value; give it with --sizes (known: {known})")
            return sizes[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, sizes, text), _value(right, sizes, text))
        case _:
            raise ValueError(text)


def parse_values(text: str) -> dict[str, float]:
    """Values such as ``M=256,alpha=0.5``: each name once."""
    values: dict[str, float] = {}
    for part in filter(None, re.split(r"[,\s]+", text.strip())):
        name, _, value = part.partition("=")
        if not name.isidentifier() or name in values or not _NUMBER.fullmatch(value):
            raise UsageError(f"--sizes takes NAME=NUMBER,..., each name once; {part!r} is not such")
        values[name] = float(value)
    return values


def parse_sizes(values: Mapping[str, float]) -> dict[str, int]:
    """Those of the values that are whole numbers from 0 to `LARGEST`."""
    return {name: int(value) for name, value in values.items() if value == int(value) and 0 <= value <= LARGEST}
