"""The launcher of a source file, read off its declaration."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ptxbench.core import UsageError

Kind = Literal["input", "output", "size", "scalar", "workspace", "stream"]

DEFAULT = "launch"

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ALIAS = re.compile(r"\busing\s+(\w+)\s*=\s*([\w:\s]+?)\s*;|\btypedef\s+([\w:\s]+?)\s+(\w+)\s*;")
_EXTERN = re.compile(r'extern\s*"C"\s+(?!__global__)[\w:\s*]*?\b(\w+)\s*\([^(){};]*\)\s*(?:noexcept\s*)?\{')
_NOISE = re.compile(r"\b(__restrict__|__restrict|restrict|volatile|struct)\b")
_PARAMETER = re.compile(r"(?P<type>.*?[\s*&])(?P<name>\w+)", re.DOTALL)
_INTEGER = re.compile(
    r"(unsigned|signed|short|int|long|char|bool|size_t|ptrdiff_t|u?int(8|16|32|64)_t)"
    r"(\s+(unsigned|signed|short|int|long))*"
)
_NOTE = re.compile(r"//\s*ptxbench check:\s*(launcher|shapes|sizes)\s+(\S[^\n]*)")


@dataclass(frozen=True)
class Parameter:
    """One parameter: ``type`` as C text without ``__restrict__``, ``element`` what a pointer points to."""

    name: str
    type: str
    kind: Kind
    element: str = ""


@dataclass(frozen=True)
class Launcher:
    """A host function that launches kernels."""

    name: str
    returns: str
    parameters: tuple[Parameter, ...]

    def of_kind(self, *kinds: Kind) -> tuple[Parameter, ...]:
        """The parameters of these kinds, in order."""
        return tuple(parameter for parameter in self.parameters if parameter.kind in kinds)


@dataclass(frozen=True)
class Notes:
    """What the source says of itself in lines ``// ptxbench check: shapes ...``; empty where it says nothing."""

    launcher: str = ""
    shapes: str = ""
    sizes: str = ""


def read_notes(source: str) -> Notes:
    """The notes of a source; several of one kind are joined."""
    found: dict[str, str] = {}
    for kind, text in _NOTE.findall(source):
        found[kind] = f"{found.get(kind, '')} {text.strip()}".strip()
    return Notes(**found)


def find_launcher(source: str, name: str) -> Launcher:
    """The launcher called ``name``; if that is empty, ``launch`` or the only host function with C linkage.

    `UsageError` if there is none, or if its declaration cannot be read.
    """
    text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), source)
    name = name or _only_launcher(text)
    returned, listed = r"(?P<returns>[\w:\"]+(?:\s+[\w:\"]+)*[\s*&]+)", r"\((?P<parameters>[^(){};]*)\)"
    definition = re.search(rf"{returned}\b{re.escape(name)}\s*{listed}\s*(noexcept\s*)?\{{", text)
    if definition is None:
        raise UsageError(f"the source defines no function {name}(...); name its launcher with --launcher")
    returns = re.sub(r'\b(static|inline|__host__|extern|C)\b|"', "", definition["returns"]).strip()
    if "__global__" in returns:
        raise UsageError(f"{name} is a kernel; --launcher takes the host function that launches it")
    aliases = _aliases(text)
    parts = [part.strip() for part in definition["parameters"].split(",") if part.strip() not in ("", "void")]
    return Launcher(name, returns, tuple(_parameter(part, aliases) for part in parts))


def _only_launcher(text: str) -> str:
    if re.search(rf"\b{DEFAULT}\s*\([^(){{}};]*\)\s*(noexcept\s*)?\{{", text):
        return DEFAULT
    names = [name for name in dict.fromkeys(_EXTERN.findall(text)) if name != "workspace_bytes"]
    if len(names) != 1:
        found = f"functions with C linkage: {', '.join(names)}" if names else "no host function with C linkage"
        raise UsageError(f"the source has no function {DEFAULT}, and {found}; name its launcher with --launcher")
    return names[0]


def _aliases(text: str) -> dict[str, str]:
    return {new or old_new: " ".join((target or old).split()) for new, target, old, old_new in _ALIAS.findall(text)}


def _parameter(text: str, aliases: dict[str, str]) -> Parameter:
    clean = " ".join(_NOISE.sub(" ", text.split("=")[0]).split())
    found = _PARAMETER.fullmatch(clean)
    if found is None:
        raise UsageError(f"cannot read the launcher's parameter {text!r}; write a type and a name")
    type_, name = found["type"].strip(), found["name"]
    base = _resolved(type_.replace("const", " ").replace("*", " ").replace("&", " "), aliases)
    pointers = type_.count("*")
    if base == "cudaStream_t" or base == "CUstream":
        return Parameter(name, type_, "stream")
    if pointers == 1:
        constant = re.match(r"(.*\bconst\b.*)\*", type_) is not None
        workspace = base == "void" and not constant
        return Parameter(name, type_, "workspace" if workspace else "input" if constant else "output", base)
    if not pointers and _INTEGER.fullmatch(base):
        return Parameter(name, type_, "size")
    if not pointers and base in ("float", "double"):
        return Parameter(name, type_, "scalar")
    raise UsageError(
        f"the launcher's parameter {text!r} is neither a pointer to elements, nor a number, nor a stream; "
        "write a launcher that takes only those"
    )


def _resolved(base: str, aliases: dict[str, str]) -> str:
    name = " ".join(base.split())
    for _ in range(len(aliases) + 1):
        name = aliases.get(name, name).removeprefix("std::").removeprefix("::")
    return name
