"""Progress on standard error: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ptxbench.core import Progress as Announce

Say = Callable[[str], None]


@contextmanager
def stage_display(console: Console) -> Generator[Announce]:
    """Yields a function that announces the current stage."""
    if not console.is_terminal:
        yield lambda stage: console.print(f"{stage} ...", highlight=False, markup=False)
    else:
        with console.status("starting") as status:
            yield lambda stage: status.update(f"{stage} ...")


@contextmanager
def batch_display(console: Console, title: str, total: int) -> Generator[Say]:
    """Yields a function to call once per finished item with one line about it."""
    if not console.is_terminal:
        finished = 0

        def say(line: str) -> None:
            nonlocal finished
            finished += 1
            console.print(f"[{finished}/{total}] {line}", highlight=False, markup=False, soft_wrap=True)

        yield say
    else:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(title, total=total)

            def advance(line: str) -> None:
                progress.console.print(line, highlight=False, markup=False, soft_wrap=True)
                progress.advance(task)

            yield advance
