"""Tables and texts on standard output."""

from __future__ import annotations

import os

from rich.console import Console, RenderableType

from ptxbench.cli.console import emit

# Lines of a file or a log that nobody shows in a window need not be narrow.
UNSHOWN_WIDTH = 160


def show(renderable: RenderableType, *, fold: bool = True) -> None:
    """Prints on standard output, all at once. Lines are folded to the width, or left whole for tools that read them."""
    console = output_console()
    with console.capture() as captured:
        console.print(renderable, highlight=False, soft_wrap=not fold)
    emit("\n".join(line.rstrip() for line in captured.get().splitlines()))


def output_console() -> Console:
    """Standard output, as wide as its terminal."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = UNSHOWN_WIDTH
    return console
