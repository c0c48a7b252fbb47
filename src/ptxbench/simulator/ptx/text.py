"""Text level: comments, and a cursor that knows its line. Everything here is linear in the length of the text."""

from __future__ import annotations

import re
from typing import NoReturn

from ptxbench.simulator.ptx.errors import PtxSyntaxError

# A comment that does not end runs to the end of the text, so that no start of a comment is scanned twice.
_COMMENT_OR_STRING = re.compile(r'("[^"\n]*+")|//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?')
_SPACE = re.compile(r"\s*+")
_MAX_QUOTE = 60


def strip_comments(text: str) -> str:
    """The text without comments; every statement stays on its line."""
    if "/*" not in text:
        return _COMMENT_OR_STRING.sub(r"\1", text)

    def replacement(found: re.Match[str]) -> str:
        comment = found[0]
        if comment[0] == '"':
            return comment
        if comment[1] == "*" and (len(comment) < 4 or not comment.endswith("*/")):
            raise PtxSyntaxError(text.count("\n", 0, found.start()) + 1, "a comment does not end")
        return " " + "\n" * comment.count("\n")

    return _COMMENT_OR_STRING.sub(replacement, text)


class Cursor:
    """A position in comment-free text. ``line`` is the 1-based line of the position last asked for."""

    __slots__ = ("_counted", "_line", "position", "text")

    def __init__(self, text: str, line: int = 1) -> None:
        self.text = text
        self.position = 0
        self._counted = 0
        self._line = line

    def line_at(self, position: int) -> int:
        """The line of a position; positions must not go back."""
        self._line += self.text.count("\n", self._counted, position)
        self._counted = position
        return self._line

    def skip_space(self) -> None:
        """Moves to the next character that is not white space."""
        found = _SPACE.match(self.text, self.position)
        if found is not None:
            self.position = found.end()

    def accept(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Skips space, then consumes what the pattern matches here, if it matches."""
        self.skip_space()
        found = pattern.match(self.text, self.position)
        if found is not None:
            self.position = found.end()
        return found

    def expect(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        """Like `accept`, but the text must match."""
        found = self.accept(pattern)
        if found is None:
            self.fail(f"expected {what}, found {self.ahead()}")
        return found

    def ahead(self) -> str:
        """The rest of the line, shortened, for messages."""
        rest = self.text[self.position : self.position + _MAX_QUOTE].split("\n")[0].strip()
        return repr(rest) if rest else "the end of the line or text"

    def fail(self, why: str) -> NoReturn:
        """Raises `PtxSyntaxError` at the current position."""
        raise PtxSyntaxError(self.line_at(max(self.position, self._counted)), why)
