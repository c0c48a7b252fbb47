"""The front end's error."""

from __future__ import annotations

from ptxbench.core import UnsupportedError


class PtxSyntaxError(UnsupportedError):
    """The text is not PTX as this parser knows it. ``line`` is 1-based; the message names it."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"PTX line {line}: {why}")
        self.line = line
