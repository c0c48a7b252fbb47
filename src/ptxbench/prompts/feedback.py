"""A verdict in a model's words: what happened, where, why it may be, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ptxbench.core import Hazard, Outcome, Remark, Task, UsageError, Verdict
from ptxbench.prompts.comparison import correctness_lines
from ptxbench.prompts.disclosure import Disclosure
from ptxbench.prompts.hints import MEANINGS, REMARK_HINTS, hint
from ptxbench.prompts.measurements import instruction_lines, timing_lines
from ptxbench.prompts.tokens import estimate_tokens

MIN_TOKENS = 100
"""The least budget in which a verdict can be told."""

_LEFT_OUT = "\n(more is left out)\n"
_WIDTH = 160
_SHOWN = 12
"""Entries of a section that are shown at most."""

_DETAIL = re.compile(
    r"(?P<lines>line .*?) \(PTX line \d+\), CTA \([\d,]+\) (?P<warps>warps? [\d, ]+), lanes \w+: (?P<what>.*)"
)
_ADDRESS = re.compile(r"\(address 0x[0-9a-f]+\) ")


class Section(NamedTuple):
    """A title and its lines, the most useful first."""

    title: str
    lines: Sequence[str]


class Listing(NamedTuple):
    """The candidate's text, to quote from."""

    lines: tuple[str, ...]

    def quote(self, line: int) -> str:
        """The 1-based line as ``    45 | text``, or nothing where there is none."""
        if not 1 <= line <= len(self.lines):
            return ""
        return f"\n    {line} | {self.lines[line - 1].strip()[:_WIDTH]}"


def feedback(verdict: Verdict, source: str, *, max_tokens: int, stated: Task | None = None) -> str:
    """The verdict on ``source`` for the model that wrote it, in at most ``max_tokens`` tokens (estimated).

    The most useful comes first; what does not fit is left out, and it says so. Held-out sizes, seeds, digests and the
    machine are never told. ``stated`` is the task as the prompt stated it, where that named other sizes than the row:
    only sizes that the prompt names are told.

    Raises `UsageError` if ``max_tokens`` is below `MIN_TOKENS` or the verdict is about an unknown task.
    """
    if max_tokens < MIN_TOKENS:
        raise UsageError(f"feedback needs at least {MIN_TOKENS} tokens, not {max_tokens}")
    disclosure = Disclosure.of(verdict, stated)
    listing = Listing(tuple(source.splitlines()))
    found: dict[str, Section] = {
        "remarks": Section("Compiler", list(_remark_lines(verdict.remarks, listing))),
        "detail": Section("What waits for what", list(_detail_lines(verdict.detail, listing, disclosure))),
        "correctness": Section("Results", list(correctness_lines(verdict, disclosure))),
        "hazards": Section("Hazards found on the simulator", list(_hazard_lines(verdict.hazards, listing, disclosure))),
        "instructions": Section("Instructions", list(instruction_lines(verdict, disclosure))),
        "timing": Section("Time", list(timing_lines(verdict))),
    }
    sections = [_headline(verdict, listing, disclosure), *(found[name] for name in _order(verdict.outcome))]
    return _fitted([section for section in sections if section.lines], max_tokens)


def _order(outcome: Outcome) -> tuple[str, ...]:
    """Names of sections, the most useful for this outcome first."""
    match outcome:
        case Outcome.COMPILE_ERROR | Outcome.CONTRACT_ERROR:
            return ("remarks",)
        case Outcome.LAUNCH_ERROR | Outcome.TIMEOUT | Outcome.INTEGRITY_VIOLATION:
            return ("detail", "hazards", "correctness", "remarks")
        case Outcome.WRONG_RESULT:
            return ("correctness", "hazards", "remarks", "instructions")
        case Outcome.INSTRUCTION_MISSING:
            return ("instructions", "remarks", "hazards", "correctness")
        case Outcome.CORRECT_UNTIMED | Outcome.PASSED:
            return ("timing", "hazards", "remarks", "instructions", "correctness")


def _headline(verdict: Verdict, listing: Listing, disclosure: Disclosure) -> Section:
    meaning = MEANINGS[verdict.outcome]
    lines = [meaning.means]
    if verdict.outcome is not Outcome.CORRECT_UNTIMED:  # its reason has no more to say
        lines.append(disclosure.message(verdict.reason) + listing.quote(verdict.source_line))
    if verdict.advice:
        lines.append(disclosure.message(verdict.advice))
    if verdict.hazards and verdict.outcome.accepted:
        lines.append("Next: repair the hazards listed below; the hardware may hide them today.")
    elif meaning.then:
        lines.append(f"Next: {meaning.then}")
    return Section(f"Verdict: {verdict.outcome.value}", lines)


def _remark_lines(remarks: Iterable[Remark], listing: Listing) -> Iterable[str]:
    """Errors before warnings before notes, each message once, with the line it is about and what to do."""
    order = ("error", "warning", "remark")
    seen: set[tuple[str, int]] = set()
    for remark in sorted(remarks, key=lambda r: order.index(r.severity)):
        if (remark.message, remark.line) in seen:
            continue
        seen.add((remark.message, remark.line))
        place = f"line {remark.line}: " if remark.line else ""
        advice = hint(REMARK_HINTS, remark.message)
        word = "note" if remark.severity == "remark" else remark.severity
        quoted = listing.quote(remark.line)
        yield f"{place}{word}: {remark.message}{quoted}" + (f"\n    → {advice}" if advice else "")


def _detail_lines(detail: Iterable[str], listing: Listing, disclosure: Disclosure) -> Iterable[str]:
    """Who waits for what: blocks that are stuck in the same way together."""
    groups: dict[tuple[str, str, str], int] = {}
    for line in detail:
        match = _DETAIL.fullmatch(line)
        key = (match["lines"], match["warps"], _ADDRESS.sub("", match["what"])) if match else ("", "", line)
        groups[key] = groups.get(key, 0) + 1
    for (lines, warps, what), blocks in groups.items():
        if not lines:
            yield disclosure.finding(what)
            continue
        numbers = [int(number) for number in re.findall(r"line (\d+)", lines)]
        quoted = "".join(map(listing.quote, dict.fromkeys((numbers[0], numbers[-1]))))
        where = f"in {blocks} blocks alike" if blocks > 1 else "in one block"
        yield disclosure.finding(f"{warps} {where}: {what}") + f" ({lines}){quoted}"


def _hazard_lines(hazards: Iterable[Hazard], listing: Listing, disclosure: Disclosure) -> Iterable[str]:
    for hazard in hazards:
        place = f" (line {hazard.source_line})" if hazard.source_line else ""
        message = disclosure.finding(hazard.message)
        yield f"{hazard.severity}{place}: {message}{listing.quote(hazard.source_line)}\n    → {hazard.advice}"


def _fitted(sections: Sequence[Section], max_tokens: int) -> str:
    """The sections as text; where that is too long, whole entries from the start, and a note that some are missing."""
    parts = [part for section in sections for part in _entries(section, first=section is sections[0])]
    text = "".join(parts)
    if estimate_tokens(text) <= max_tokens:
        return text
    room = max_tokens - estimate_tokens(_LEFT_OUT)
    text = ""
    for part in parts:
        if estimate_tokens(text + part) > room:
            break
        text += part
    return (text or _beginning(parts[0], room)) + _LEFT_OUT


def _entries(section: Section, *, first: bool) -> Iterable[str]:
    """A section in pieces that are not divided: the title stays with the first entry."""
    head = f"## {section.title}\n" if first else f"\n## {section.title}\n"
    for line in section.lines[:_SHOWN]:
        yield f"{head}- {line}\n"
        head = ""
    if len(section.lines) > _SHOWN:
        yield f"- ({len(section.lines) - _SHOWN} more left out)\n"


def _beginning(text: str, room: int) -> str:
    while estimate_tokens(text) > room:
        text = text[: len(text) * 9 // 10]
    return text
