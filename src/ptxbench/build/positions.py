"""Where a line of compiled PTX came from in the candidate's source (``.file`` and ``.loc`` directives)."""

from __future__ import annotations

import re
from collections.abc import Callable

_FILE = re.compile(r'\s*\.file\s+(?P<index>\d+)\s+"(?P<path>[^"]*)"')
_LOC = re.compile(
    r"\s*\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)\s+\d+(?:.*inlined_at\s+(?P<caller_file>\d+)\s+(?P<caller_line>\d+))?"
)
_FUNCTION = re.compile(r"\s*(?:\.visible |\.weak |\.extern )*\.(?:entry|func)\s+(?:\([^)]*\)\s*)?(?P<name>[\w$]+)")


class PtxPositions:
    """Maps PTX lines and function names to 1-based source lines of the file that ``normalise`` names ``wanted``."""

    def __init__(self, ptx: str, normalise: Callable[[str], str], wanted: str) -> None:
        lines = ptx.splitlines()
        files = {m["index"]: normalise(m["path"]) for line in lines if (m := _FILE.match(line))}
        self._lines: list[int] = []
        self._functions: dict[str, int] = {}
        current, opened = 0, ""
        for line in lines:
            if match := _FUNCTION.match(line):
                current, opened = 0, match["name"]
            elif match := _LOC.match(line):
                if files.get(match["file"]) == wanted:
                    current = int(match["line"])
                elif match["caller_file"] and files.get(match["caller_file"]) == wanted:
                    current = int(match["caller_line"])
                if opened and current:
                    self._functions[opened], opened = current, ""
            self._lines.append(current)

    def of_line(self, number: int) -> int:
        """The source line of a 1-based PTX line, 0 where unknown."""
        return self._lines[number - 1] if 1 <= number <= len(self._lines) else 0

    def of_function(self, name: str) -> int:
        """The first source line of a function by its mangled name, 0 where unknown."""
        return self._functions.get(name, 0)
