"""What is refused before a compiler sees it: unreadable text, foreign headers, ways to read other files."""

from __future__ import annotations

import re

from ptxbench.core import Outcome, Rejection

MAX_SOURCE_BYTES = 1 << 20

_OFFERED = "Include headers of CUDA and of the C++ standard library, or <ptxbench/ptx/...> where it is offered."

_STANDARD = frozenset((
    "algorithm", "array", "atomic", "bit", "bitset", "cassert", "cfloat", "charconv", "chrono", "climits", "cmath",
    "complex", "concepts", "cstdarg", "cstddef", "cstdint", "cstdio", "cstdlib", "cstring", "cwchar", "exception",
    "functional", "initializer_list", "iomanip", "ios", "iosfwd", "iostream", "iterator", "limits", "list", "map",
    "memory", "mutex", "new", "numeric", "optional", "ostream", "queue", "random", "ratio", "set", "span", "sstream",
    "stack", "stdexcept", "string", "string_view", "tuple", "type_traits", "typeindex", "typeinfo", "unordered_map",
    "unordered_set", "utility", "valarray", "variant", "vector", "assert.h", "float.h", "limits.h", "math.h",
    "stdarg.h", "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h", "string.h", "inttypes.h", "cinttypes",
    "cooperative_groups.h", "mma.h", "vector_types.h", "vector_functions.h", "builtin_types.h",
    "device_launch_parameters.h", "driver_types.h", "math_constants.h", "device_functions.h",
    "device_atomic_functions.h", "nv/target",
))
_FAMILIES = re.compile(
    r"cuda(_\w+)?\.h|cudaTypedefs\.h|cuda_(fp|bf)\w+\.hpp|sm_\d+_\w+\.h|cuda/[\w/]+|cub/[\w/.]+|cooperative_groups/[\w/.]+"
    r"|ptxbench/ptx(/\w+)*(\.\w+)?"
)

# A comment, or what may hold the beginning of one and is kept (strings, raw strings, numbers with digit separators,
# characters, of which there may be several): whichever starts first. What is never closed reaches to the end of its
# line or of the text, so that no text takes quadratic time.
_TEXT = re.compile(
    r"""
      (?P<comment> //[^\n]* | /\*.*?(?:\*/|\Z) )
    | \b(?:u8|[uUL])?R"(?P<tag>[^\s()\\]{0,16})\(.*?(?:\)(?P=tag)"|\Z)
    | "(?:\\.|[^"\\\n])*"?
    | \b\d(?:'?[\w.])*
    | '(?:\\.|[^'\\\n])*'?
    """,
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(
    r"^\ufeff?[ \t\f\v]*(?:#|%:|\?\?=)[ \t\f\v]*(?P<name>\w+)[ \t\f\v]*(?P<rest>[^\n]*)", re.MULTILINE
)
_INCLUDE = re.compile(r'(?:<(?P<angle>[^>\n]+)>|"(?P<quote>[^"\n]+)")[ \t]*')
_HARMLESS_GCC = re.compile(r"GCC\s+(diagnostic|unroll|ivdep)\b")
# Adjacent string literals are one.
_JOINT = r'(?:"\s*")?'
_READS_FILES = re.compile(rf"\.{_JOINT}(?:{_JOINT.join('incbin')}|{_JOINT.join('include')})\b")
_PRAGMA_OPERATOR = re.compile(r'_Pragma\s*\(\s*L?"(?P<rest>[^"\n]*)"')

# Directives that read other files or falsify positions, and what to say of them.
_FORBIDDEN = {
    "include_next": "#include_next is not allowed",
    "import": "#import is not allowed",
    "embed": "#embed is not allowed",
    "line": "#line is not allowed, because it falsifies source positions",
}


def check_source(source: str) -> Rejection | None:
    """The first reason to refuse ``source`` unseen, or None.

    The sandbox, not this check, is what protects the machine; this check makes the rules plain and the messages clear.
    """
    if not source.strip():
        return _refuse("The source is empty.")
    if "\0" in source:
        return _refuse("The source contains a NUL character; it must be plain text.", _line(source, source.index("\0")))
    try:
        size = len(source.encode())
    except UnicodeEncodeError as error:
        return _refuse("The source is not valid UTF-8 text.", _line(source, error.start))
    if size > MAX_SOURCE_BYTES:
        return _refuse(f"The source has {size} bytes; at most {MAX_SOURCE_BYTES} are accepted.")
    text = _without_comments(_spliced(source))
    for match in _DIRECTIVE.finditer(text):
        reason = _directive(match["name"], match["rest"].strip())
        if reason:
            return _refuse(reason, _line(text, match.start("name")))
    for match in _PRAGMA_OPERATOR.finditer(text):
        reason = _pragma(match["rest"])
        if reason:
            return _refuse(reason, _line(text, match.start()))
    reading = _READS_FILES.search(text)
    if reading:
        name = re.sub(_JOINT, "", reading[0])
        return _refuse(f"The assembler directive {name} is not allowed.", _line(text, reading.start()))
    return None


def _directive(name: str, rest: str) -> str:
    if name.isdigit():  # a line marker, as preprocessors write them
        name = "line"
    if name in _FORBIDDEN:
        return f"{_FORBIDDEN[name]}."
    if name == "pragma":
        return _pragma(rest)
    if name != "include":
        return ""
    match = _INCLUDE.fullmatch(rest)
    if match is None:
        return "The name of an #include must be written out, not computed by macros."
    header = (match["angle"] or match["quote"]).strip()
    if header.startswith("/") or ".." in header:
        return f"The include path {header!r} leaves the offered headers. {_OFFERED}"
    if header not in _STANDARD and not _FAMILIES.fullmatch(header):
        return f"The header <{header}> is not offered. {_OFFERED}"
    return ""


def _pragma(rest: str) -> str:
    if rest.split(None, 1)[:1] == ["GCC"] and not _HARMLESS_GCC.match(rest):
        return "#pragma GCC may set diagnostics and unrolling only, not compiler options."
    return ""


def _spliced(source: str) -> str:
    """Joins lines that end in a backslash, and keeps the line count by moving the line ends behind the joined line."""
    lines: list[str] = []
    pending, count = "", 0
    for line in source.replace("\r\n", "\n").split("\n"):
        stripped = line.rstrip(" \t\f\v")
        if stripped.endswith("\\"):
            pending, count = pending + stripped[:-1], count + 1
        else:
            lines += [pending + line, *[""] * count]
            pending, count = "", 0
    return "\n".join([*lines, pending])


def _without_comments(text: str) -> str:
    def blank(match: re.Match[str]) -> str:
        return " " + "\n" * match[0].count("\n") if match["comment"] else match[0]

    return _TEXT.sub(blank, text)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _refuse(reason: str, line: int = 0) -> Rejection:
    return Rejection(outcome=Outcome.COMPILE_ERROR, reason=reason, source_line=line)
