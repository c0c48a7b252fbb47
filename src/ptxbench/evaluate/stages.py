"""Names and times of the stages of one verdict."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from ptxbench.core import Progress


def silent(stage: str) -> None:
    """A `Progress` that shows nothing."""


class Stages:
    """Announces each stage and keeps how long it took, in seconds, under its name."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Generator[None]:
        """Wraps one stage."""
        self._progress(name)
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - begin, 4)
