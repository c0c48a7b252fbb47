"""Source positions: follows ``.loc`` and builds chains of frames, innermost first."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ptxbench.simulator import ptx

Frames = tuple[tuple[str, int], ...]


@dataclass(slots=True)
class Locations:
    """The position of what follows. ``files`` are the paths of the ``.file`` directives, as written there."""

    files: dict[int, str]
    current: Frames = ()
    _callers: Frames = ()
    _chains: dict[tuple[int, int, int], Frames] = field(default_factory=lambda: dict[tuple[int, int, int], Frames]())

    def follow(self, location: ptx.Location) -> None:
        """Moves to a ``.loc``.

        ``inlined_at`` names the position of an earlier ``.loc``; the chain goes on with what that one was inlined at.
        """
        chain: Frames = ((self.files.get(location.file, ""), location.line),)
        if location.inlined_at is not None:
            file, line, _ = location.inlined_at
            chain += self._chains.get(location.inlined_at, ((self.files.get(file, ""), line),))
        self._chains[location.file, location.line, location.column] = chain
        self.current = chain + self._callers

    @contextmanager
    def called(self) -> Generator[None]:
        """Inside, positions are those of a function called from the current position."""
        before = self.current, self._callers
        self._callers = self.current
        yield
        self.current, self._callers = before
