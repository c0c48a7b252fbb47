"""Turns what the tools print into remarks about the candidate's own text.

Only lines in the tools' own diagnostic formats count; anything else that a source makes a tool print is ignored. Source
text that the tools quote is dropped, and paths are reduced to names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from ptxbench.build.positions import PtxPositions
from ptxbench.core import Remark

Severity = Literal["error", "warning", "remark"]

MAX_REMARKS = 50
MAX_MESSAGE = 1000
# A source decides how long these get, and some patterns are quadratic in them.
_MAX_LINE = 4000
_MAX_DETAILS = 200

_ORDER: tuple[Severity, ...] = ("error", "warning", "remark")
_SEVERITIES: dict[str, Severity] = {
    "error": "error", "fatal": "error", "catastrophic error": "error", "fatal error": "error",
    "warning": "warning", "remark": "remark", "info": "remark",
}

_FRONT_END = re.compile(
    r"(?:At end of source|(?P<file>[^\s()][^()]*)\((?P<line>\d+)\)): "
    r"(?P<severity>catastrophic error|error|warning|remark)(?: #[\w-]+)?: (?P<text>.*)"
)
_HOST = re.compile(
    r"(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?P<severity>fatal error|error|warning): (?P<text>.*)",
    re.IGNORECASE,
)
_PTXAS_LINE = re.compile(r"ptxas \S+, line (?P<line>\d+); (?P<severity>fatal|error|warning|info)\s*: (?P<text>.*)")
_PTXAS = re.compile(r"ptxas (?P<severity>fatal|error|warning|info)\s*: (?P<text>.*)")
_LINKER = re.compile(r"\S*ld: (?:\S+: )*?(?P<text>(?:multiple definition|undefined reference|relocation|duplicate).*)")

_PROPERTIES = re.compile(r"ptxas info\s*: Function properties for (?P<name>\S+)")
_SPILLS = re.compile(r"\s+\d+ bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
_FUNCTION = re.compile(r"[Ff]unction '(?P<name>[\w$]+)'")
_AROUND = re.compile(r"(?:around )?line (?P<line>\d+)")
_CARET = re.compile(r"\s*\^~*\s*$")
_CONTINUES = re.compile(r" {10}")
_AT_LINE = re.compile(r'at line (?P<line>\d+) of "?(?P<file>[^"\s]+)"?')
# Of ptxas's notes only those with a number are advice; the rest is statistics, and the aborting line repeats an error.
_ADVICE = re.compile(r"\(C\d+\)")
_SCRATCH = re.compile(r"cc\w+\.s")
_FOLDERS = re.compile(r"(?<![\w.+-])(?:/[\w.+-]+)+/")
_REPETITION = re.compile(r"Ptx assembly aborted|collect2|ld returned")


class Diagnostic(NamedTuple):
    """A message with its place; ``file`` is normalised, and empty where the tool named none.

    ``context`` is the front end's account of the instantiations that led there.
    """

    file: str
    line: int
    severity: Severity
    text: str
    tool: str
    context: str = ""

    @property
    def sentence(self) -> str:
        """The message with its line, as a clause."""
        return f"line {self.line}: {self.text}" if self.line else self.text


def diagnostics(
    output: str, normalise: Callable[[str], str], positions: PtxPositions, source: str
) -> list[Diagnostic]:
    """Every diagnostic in the tools' combined output, each once; those of ptxas are placed in ``source``."""
    lines = [line[:_MAX_LINE] for line in output.splitlines()]
    found = [*_front_end(lines, normalise, source), *_host(lines, normalise), *_ptxas(lines, positions, source)]
    unique = dict.fromkeys(item._replace(text=_FOLDERS.sub("", item.text)) for item in found)
    return [item for item in unique if not _REPETITION.search(item.text)]


def to_remarks(found: list[Diagnostic], source: str) -> tuple[Remark, ...]:
    """The diagnostics that are located in ``source``, errors first, at most `MAX_REMARKS`."""
    own = sorted((item for item in found if item.file == source), key=lambda item: _ORDER.index(item.severity))
    made = (
        Remark(severity=item.severity, line=item.line, message=item.text[:MAX_MESSAGE], tool=item.tool) for item in own
    )
    return tuple(dict.fromkeys(made))[:MAX_REMARKS]


def _front_end(lines: list[str], normalise: Callable[[str], str], source: str) -> Iterator[Diagnostic]:
    """Messages of nvcc's C++ front end: a line, explanations, a quotation and caret, instantiations, a blank line."""
    for number, line in enumerate(lines):
        match = _FRONT_END.match(line)
        if not match:
            continue
        file, place = normalise(match["file"] or source), int(match["line"] or 0)
        start = match["text"] if match["file"] else f"at the end of the source: {match['text']}"
        explanation, context = _details(lines, number + 1)
        # An error inside a header belongs to the line of the candidate that made the compiler go there.
        for called in _AT_LINE.finditer(context) if file not in (source, "") else ():
            if normalise(called["file"]) == source:
                file, place = source, int(called["line"])
        yield Diagnostic(
            file, place, _SEVERITIES[match["severity"]], " ".join([start, *explanation]), "nvcc", context
        )


def _details(lines: list[str], start: int) -> tuple[list[str], str]:
    """What follows a front-end message up to a blank line: its explanations, and the account of instantiations."""
    limit = min(start + _MAX_DETAILS, len(lines))
    end = next((index for index in range(start, limit) if not lines[index].strip()), limit)
    explanation: list[str] = []
    index = start
    while index < end and _CONTINUES.match(lines[index]) and "detected during" not in lines[index]:
        # The line above a caret is quoted source text, however far it is indented.
        if index + 1 < end and _CARET.match(lines[index + 1]):
            break
        explanation.append(lines[index].strip())
        index += 1
    during = next((index for index in range(index, end) if "detected during" in lines[index]), end)
    return explanation, " ".join(line.strip() for line in lines[during:end])


def _host(lines: list[str], normalise: Callable[[str], str]) -> Iterator[Diagnostic]:
    """Messages of the host compiler, assembler and linker."""
    for line in lines:
        if match := _HOST.match(line):
            severity = _SEVERITIES[match["severity"].lower()]
            # The assembler names a scratch file where it knows no line of the source.
            scratch = _SCRATCH.fullmatch(normalise(match["file"]))
            file, place = ("", 0) if scratch else (normalise(match["file"]), int(match["line"]))
            yield Diagnostic(file, place, severity, match["text"], "g++")
        elif match := _LINKER.match(line):
            yield Diagnostic("", 0, "error", match["text"], "ld")


def _ptxas(lines: list[str], positions: PtxPositions, source: str) -> Iterator[Diagnostic]:
    """Messages of ptxas, whose line numbers are lines of PTX."""
    function = ""
    for line in lines:
        if match := _PTXAS_LINE.match(line):
            place = positions.of_line(int(match["line"]))
            yield Diagnostic(source, place, _SEVERITIES[match["severity"]], match["text"], "ptxas")
        elif match := _PROPERTIES.match(line):
            function = match["name"]
        elif match := _SPILLS.match(line):
            if int(match["stores"]) or int(match["loads"]):
                text = f"{function} spills registers: {match['stores']} bytes stored, {match['loads']} bytes loaded"
                yield Diagnostic(source, positions.of_function(function), "remark", text, "ptxas")
        elif (match := _PTXAS.match(line)) and (match["severity"] != "info" or _ADVICE.match(match["text"])):
            place, text = _placed(match["text"], positions)
            yield Diagnostic(source, place, _SEVERITIES[match["severity"]], text, "ptxas")


def _placed(text: str, positions: PtxPositions) -> tuple[int, str]:
    """The source line that a message of ptxas is about, and the message with its PTX line turned into that line."""
    around = _AROUND.search(text)
    if around:
        place = positions.of_line(int(around["line"]))
        if place:
            return place, text[: around.start()] + f"line {place}" + text[around.end() :]
    function = _FUNCTION.search(text)
    return (positions.of_function(function["name"]) if function else 0), text
