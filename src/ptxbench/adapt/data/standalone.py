"""Kernels that do without the header set: the functions that they use are copied into the source."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_INCLUDE = re.compile(r"^#include <ptxbench/ptx/(\w+)\.cuh>\n", re.MULTILINE)
_USE = re.compile(r"\bptx::(\w+)")
_MACRO = re.compile(r"^#define (\w+)(?:.*\\\n)*.*\n", re.MULTILINE)


@dataclass(frozen=True)
class Definition:
    """One item of the header set: its text with the comment above it, and the words in it."""

    name: str
    text: str
    words: frozenset[str]


def stand_alone(source: str, include: Path) -> str:
    """``source`` with its includes of the header set replaced by the definitions that it uses, in one namespace.

    Raises `ValueError` if it uses something that the header set does not define, or a definition made by a macro.
    """
    known = definitions(include, tuple(_INCLUDE.findall(source)))
    wanted: dict[str, Definition] = {}
    names = list(dict.fromkeys(_USE.findall(source)))
    while names:
        name = names.pop()
        if name in wanted:
            continue
        if name not in known:
            raise ValueError(f"ptx::{name} is not a plain definition of the header set")
        wanted[name] = known[name]
        names += [word for word in known[name].words if word in known]
    body = "\n\n".join(item.text for item in known.values() if item.name in wanted)
    system = "#include <cuda.h>\n#include <cuda_runtime.h>\n#include <cstdint>\n"
    block = f"{system}\nnamespace ptx {{\n\n{body}\n\n}}  // namespace ptx\n"
    first = _INCLUDE.search(source)
    if first is None:
        return source
    rest = _INCLUDE.sub("", source[first.start() :]).lstrip("\n")
    return source[: first.start()].rstrip("\n") + "\n" + block + "\n" + rest


@functools.cache
def definitions(include: Path, headers: tuple[str, ...]) -> Mapping[str, Definition]:
    """Functions, enumerations and macros of the named headers by name, each behind what it uses."""
    found: dict[str, Definition] = {}
    for header in sorted(headers, key=lambda name: (name != "address", name)):
        text = (include / "ptxbench" / "ptx" / f"{header}.cuh").read_text(encoding="utf-8")
        inside = text.partition("namespace ptx {")[2].rpartition("}  // namespace ptx")[0]
        for macro in _MACRO.finditer(inside):
            found[macro[1]] = _definition(macro[1], macro[0])
        inside = _MACRO.sub("\n", inside)
        for paragraph in re.split(r"\n\s*\n", inside):
            name = _defined(paragraph)
            if name:
                found[name] = _definition(name, paragraph)
    return found


def _definition(name: str, text: str) -> Definition:
    return Definition(name, text.strip("\n"), frozenset(re.findall(r"\w+", text)) - {name})


def _defined(paragraph: str) -> str:
    """The name that a paragraph of a header defines; empty if it defines nothing by itself."""
    code = "\n".join(line for line in paragraph.splitlines() if not line.startswith(("//", "#", "template")))
    if not code.strip() or code.startswith(("PTX_", " ", "\t", '"')):
        return ""
    if match := re.match(r"enum class (\w+)", code):
        return match[1]
    head = code.partition("{")[0].partition("(")[0]
    words = re.findall(r"\w+", head)
    return words[-1] if words and "(" in code else ""
