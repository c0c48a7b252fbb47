"""Code blocks of a reply: fences of any style, closed or cut off, and what stands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"^[ \t]*(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*)$", re.MULTILINE)
_WRAPPERS = ("markdown", "md")
_THOUGHT = re.compile(
    r"<(?P<tag>think|thinking|thought|reasoning|scratchpad)>.*?(?:</(?P=tag)>|(?P<open>\Z))", re.DOTALL | re.IGNORECASE
)
_THOUGHT_END = re.compile(r"</(?:think|thinking|thought|reasoning|scratchpad)>", re.IGNORECASE)

# Comments and literals, which may hide or imitate code; whichever starts first. Each alternative is linear.
_NOT_CODE = re.compile(
    r"""//[^\n]*|/\*.*?(?:\*/|\Z)|R"(?P<tag>[^\s()\\]{0,16})\(.*?(?:\)(?P=tag)"|\Z)|"(?:\\.|[^"\\\n])*"?"""
    r"""|\b\d(?:'?[\w.])*|'(?:\\.|[^'\\\n])*'?""",
    re.DOTALL,
)
_LAUNCH = re.compile(r"\b(?P<type>[A-Za-z_]\w*)[\s*&]+launch\s*\([^;{}]{0,4000}\)\s*(?:noexcept\s*)?(?:->\s*\w+\s*)?\{")
_NO_TYPES = frozenset(("return", "else", "new", "case", "throw", "goto", "do", "and", "or", "not"))
_KERNEL = re.compile(r"\b__global__\b")
_DIFF = re.compile(
    r"^(?:@@ .*@@|--- \S.*\n\+\+\+ \S|<{5,} ?SEARCH|>{5,} ?REPLACE|\*{3} (?:Begin Patch|Update File))", re.MULTILINE
)
_ELIDED = re.compile(
    r"(?://|/\*)[ \t]*(?:\.{3}|…)[^\n]{0,80}"
    r"\b(?:rest|existing|unchanged|previous|omitted|remaining|same as|as before)\b"
    r"|(?://|/\*)[ \t]*[(\[]?(?:the )?(?:rest|remainder) of (?:the )?(?:code|file|kernel|source)\b[^\n]{0,40}"
    r"\b(?:unchanged|same|before|omitted)\b",
    re.IGNORECASE,
)


class Block(NamedTuple):
    """A piece of the reply that may be code; ``closed`` unless the reply ends inside it."""

    text: str
    closed: bool
    info: str = ""

    @property
    def defines_launch(self) -> bool:
        """Whether a function named launch is defined, comments and strings apart."""
        return any(match["type"] not in _NO_TYPES for match in _LAUNCH.finditer(without_comments(self.text)))

    @property
    def defines_kernel(self) -> bool:
        """Whether a kernel is declared or defined."""
        return _KERNEL.search(without_comments(self.text)) is not None

    @property
    def is_edit(self) -> bool:
        """Whether it changes an earlier file instead of being one: a diff, or a file with parts left out."""
        return self.info in ("diff", "patch") or bool(_DIFF.search(self.text)) or bool(_ELIDED.search(self.text))


class Visible(NamedTuple):
    """What a reply says outside of its thoughts, as pieces of it; ``unfinished`` if it ends inside a thought."""

    pieces: tuple[str, ...]
    unfinished: bool


def visible_text(reply: str) -> Visible:
    """The reply without thoughts in tags.

    A thought may lack its opening tag, because some chat templates put that into the prompt.
    """
    pieces: list[str] = []
    start, unfinished = 0, False
    for match in _THOUGHT.finditer(reply):
        pieces.append(reply[start : match.start()])
        start, unfinished = match.end(), match["open"] is not None
    pieces.append(reply[start:])
    for index in range(len(pieces) - 1, -1, -1):
        ends = list(_THOUGHT_END.finditer(pieces[index]))
        if ends:
            pieces = [pieces[index][ends[-1].end() :], *pieces[index + 1 :]]
            break
    return Visible(tuple(piece for piece in pieces if piece.strip()), unfinished)


def fenced_blocks(text: str) -> Iterator[Block]:
    """Fenced blocks in order, those inside of a block of Markdown too.

    A fence with one word behind it inside a block begins a new block: the model started afresh. What ends with the
    reply counts as closed if it defines launch and its braces are balanced: then only the fence is missing.
    """
    start, mark, info = -1, "", ""
    for match in _FENCE.finditer(text):
        named = match["info"].strip()
        if start < 0:
            start, mark, info = match.end() + 1, match["mark"], named
        elif match["mark"][0] == mark[0] and len(match["mark"]) >= len(mark):
            restarted = bool(re.fullmatch(r"\S+", named))
            yield from _unwrapped(text[start : match.start()], not restarted, info)
            start = match.end() + 1 if restarted else -1
            mark, info = match["mark"], named
    if 0 <= start <= len(text):
        rest = Block(text[start:], closed=True)
        yield from _unwrapped(rest.text, rest.defines_launch and _balanced(rest.text), info)


def _unwrapped(text: str, closed: bool, info: str) -> Iterator[Block]:
    language = re.split(r"[\s,:;{}=]+", info.strip("{}. "))[0].lstrip(".").lower()
    if language in _WRAPPERS:
        yield from fenced_blocks(text)
    else:
        yield Block(text, closed, language)


def bare_block(text: str) -> Block | None:
    """Code without a fence: from the first line that looks like code to the last; None if there is no launch in it."""
    lines = text.splitlines(keepends=True)
    first = next((i for i, line in enumerate(lines) if _STARTS_CODE.match(line)), None)
    if first is None or not Block(text, True).defines_launch:
        return None
    last = max((i for i, line in enumerate(lines) if _ENDS_CODE.search(line)), default=len(lines) - 1)
    found = "".join(lines[first : last + 1])
    block = Block(found, _balanced(found))
    return block if block.defines_launch else None


def without_comments(text: str) -> str:
    """The text with comments, strings and numbers replaced by a blank each."""
    return _NOT_CODE.sub(" ", text)


_STARTS_CODE = re.compile(
    r"[ \t]*(?:#\s*(?:include|pragma|define|if)|//|/\*|extern\b|namespace\b|template\b|using\b|static\b|constexpr\b"
    r"|__global__|__device__|struct\b)"
)
_ENDS_CODE = re.compile(r"[};][ \t]*(?://[^\n]*)?$|^[ \t]*#|^[ \t]*//")


def _balanced(text: str) -> bool:
    code = without_comments(text)
    return code.count("{") <= code.count("}")
