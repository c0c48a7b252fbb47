"""Which instructions a source text claims to use: opcodes in its string literals, comments apart."""

from __future__ import annotations

import re
from collections import Counter

from ptxbench.core import Family

# One alternative per lexical element that can hide another; the first group is the body of a string literal.
_TOKEN = re.compile(
    r"""R"(?P<fence>[^()\s\\]{0,16})\((?P<raw>.*?)\)(?P=fence)" | "(?P<plain>(?:[^"\\\n]|\\.)*)" | '(?:[^'\\\n]|\\.)+'
    | //[^\n]* | /\*.*?\*/ | (?P<space>\s+) | (?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_OPCODE = re.compile(r"(?<![\w.%$])[a-z][a-z0-9_]*(?:(?:\.|::)[a-zA-Z0-9_]+)+")


def claimed_opcodes(source: str) -> list[str]:
    """Every dotted PTX opcode that stands in a string literal of C++ ``source``; adjacent literals are joined first."""
    return _OPCODE.findall(" \n ".join(_literals(source)))


def claimed_counts(source: str, ptx: str, families: tuple[Family, ...]) -> Counter[str]:
    """How often each family's PTX opcodes stand in the source; the first row that matches an opcode counts it.

    Instructions of headers stand in the compiled ``ptx`` only, which counts for families that the source's own text
    does not name. Not for ordinary arithmetic (``other_math``), which the compiler writes by itself.
    """
    own, compiled = _per_family(claimed_opcodes(source), families), _per_family(_OPCODE.findall(ptx), families)
    return Counter(
        {f.name: own[f.name] or (compiled[f.name] if f.role != "other_math" else 0) for f in families}
    )


def _per_family(opcodes: list[str], families: tuple[Family, ...]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for opcode, times in Counter(opcodes).items():
        family = next((f for f in families if f.matches_ptx(opcode)), None)
        if family is not None:
            counts[family.name] += times
    return counts


def _literals(source: str) -> list[str]:
    """Bodies of string literals, adjacent ones joined, with escapes for white space turned into blanks."""
    bodies: list[str] = []
    adjacent = False
    for token in _TOKEN.finditer(source):
        body = token["raw"] if token["plain"] is None else re.sub(r"\\[nrtv]", " ", token["plain"])
        if body is not None:
            if adjacent:
                bodies[-1] += body
            else:
                bodies.append(body)
            adjacent = True
        elif token["other"] is not None:
            adjacent = False
    return bodies
