"""The program as a process: how signals stop it, where its output goes, and how every failure ends as one sentence.

Only the standard library is imported at first, so that an interrupt is understood from the start.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn, TextIO, cast

FAILED = 2
"""The exit code of usage and infrastructure errors."""

_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)


class Interrupted(BaseException):
    """A signal asked the program to stop. Not an `Exception`, so that nothing handles it by accident on its way."""


def main() -> NoReturn:
    """The console script."""
    stop = stop_on_signals()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a character shows another one; it does not end the program.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")

    def command() -> int:
        from ptxbench.cli.program import run_command

        return run_command(sys.argv[1:], stop)

    sys.exit(guarded(command))


def stop_on_signals() -> threading.Event:
    """An event that SIGINT, SIGTERM and SIGHUP set before they raise `Interrupted` in the main thread.

    The event is for work in other threads and in other processes. Later signals change nothing: what was begun is
    being ended.
    """
    stop = threading.Event()

    def handle(number: int, _frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()
            raise Interrupted(signal.Signals(number).name)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handle)
    return stop


def guarded(command: Callable[[], int]) -> int:
    """Runs ``command`` and returns its exit code; whatever it raises becomes one sentence and exit code 2.

    With ``PTXBENCH_TRACEBACK`` set, what nobody expected passes through.
    """
    try:
        return command()
    except Interrupted as error:
        return complain(f"stopped by {error}; nothing was left half-written")
    except Exception as error:
        sentence = explain(error)
        if sentence is None and os.environ.get("PTXBENCH_TRACEBACK"):
            raise
        return complain(sentence or f"{_first_line(error)}: this is a fault of PTXBench itself; "
                                    "set PTXBENCH_TRACEBACK=1 to see where it happened")  # fmt: skip


def explain(error: Exception) -> str | None:
    """What an expected error says to the user; None for one that nobody expected."""
    from ptxbench.core import PtxbenchError

    if isinstance(error, PtxbenchError):
        return str(error)
    if isinstance(error, OSError) and error.errno in _STORAGE:
        return f"cannot write {error.filename or 'to disk'}: {error.strerror}; free space or choose another folder"
    if isinstance(error, BrokenPipeError):
        return "standard output was closed before everything was written"
    if isinstance(error, MemoryError):
        return "there is not enough memory; close other programs or use --jobs 1"
    return None


def complain(message: str) -> int:
    """Prints one sentence on standard error; returns the exit code of usage and infrastructure errors."""
    red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr and sys.stderr.isatty() else ("", "")
    try:
        print(f"{red}ptxbench: {' '.join(message.split())}{plain}", file=sys.stderr, flush=True)
    except OSError:
        _forget(sys.stderr.fileno())
    return FAILED


def emit(text: str) -> None:
    """Writes a whole text to standard output at once; `UsageError` if it cannot be written."""
    from ptxbench.core import UsageError

    out = cast("TextIO | None", sys.stdout)
    if out is None:
        raise UsageError("standard output is closed")
    try:
        out.write(text.rstrip("\n") + "\n")
        out.flush()
    except BrokenPipeError as error:
        _forget(out.fileno())
        raise UsageError("standard output was closed before everything was written") from error
    except OSError as error:
        _forget(out.fileno())
        raise UsageError(f"cannot write to standard output: {error.strerror}") from error


def _forget(descriptor: int) -> None:
    """Sends what is still buffered nowhere, so that the interpreter does not try again at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:300]


if __name__ == "__main__":
    main()
