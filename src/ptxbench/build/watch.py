"""Watches a running process tree: collects its pipes, and ends it at a limit."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from ptxbench.core import Cancelled

Cause = Literal["exited", "signal", "time", "memory", "processes", "output"]

_TICK = 0.02
_CHUNK = 1 << 16
_BY_SIGNAL: dict[int, Cause] = {signal.SIGXCPU: "time", signal.SIGXFSZ: "output"}
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Stream:
    """A pipe being read. Bytes beyond ``cap`` are dropped, or end the run if ``strict``."""

    reader: IO[bytes]
    cap: int
    strict: bool = False
    data: bytearray = field(default_factory=bytearray)

    def read(self) -> bool:
        """Takes what is there; false at the end of the stream."""
        chunk = os.read(self.reader.fileno(), _CHUNK)
        room = self.cap + 1 - len(self.data)
        self.data += chunk[:max(room, 0)]
        return bool(chunk)

    @property
    def overflown(self) -> bool:
        """Whether a strict stream holds more than its cap."""
        return self.strict and len(self.data) > self.cap


def watch(
    process: subprocess.Popen[bytes], streams: Sequence[Stream], *, seconds: float, memory: int, processes: int,
    stop: threading.Event,
) -> tuple[int, Cause]:
    """Waits until ``process`` ends or must be ended, reading ``streams`` all the while.

    The process leads a session of its own; when it is gone, what is left of its group is killed. Returns its return
    code (128 + number for a signal) and why it ended. An interrupt kills the tree and passes on; once ``stop`` is set,
    the tree is killed and `Cancelled` raised.
    """
    try:
        cause = _until_end(process, streams, time.monotonic() + seconds, memory, processes, stop)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    if cause == "exited" and 128 < code < 193:
        return code, _BY_SIGNAL.get(code - 128, "signal")
    return code, cause


def _until_end(
    process: subprocess.Popen[bytes], streams: Sequence[Stream], deadline: float, memory: int, processes: int,
    stop: threading.Event,
) -> Cause:
    ended = os.pidfd_open(process.pid)
    open_streams = len(streams)
    next_look = 0.0
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(ended, selectors.EVENT_READ)
            for stream in streams:
                selector.register(stream.reader, selectors.EVENT_READ, stream)
            while True:
                events = selector.select(_TICK)
                if stop.is_set():
                    raise Cancelled("The program in the sandbox was called off.")
                for key, _ in events:
                    if isinstance(key.data, Stream) and not key.data.read():
                        selector.unregister(key.fileobj)
                        open_streams -= 1
                if any(stream.overflown for stream in streams):
                    return "output"
                gone = any(key.fd == ended for key, _ in events)
                if gone and (open_streams == 0 or len(events) == 1):
                    return "exited"
                now = time.monotonic()
                if now >= deadline:
                    return "time"
                if now >= next_look and not gone:
                    count, resident = _tree(process.pid)
                    if count > processes:
                        return "processes"
                    if resident > memory:
                        return "memory"
                    # On a host with thousands of processes a look is dear; never spend more than a fifth on looking.
                    next_look = now + max(_TICK, 4 * (time.monotonic() - now))
    finally:
        os.close(ended)


def _tree(root: int) -> tuple[int, int]:
    """Threads alive among ``root``, its descendants and its session, and their resident bytes."""
    family: dict[int, list[int]] = {}
    sizes: dict[int, tuple[int, int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                # Fields after the command name, which may itself hold spaces and parentheses: state, ppid, ...
                rest = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                parent = root if int(rest[3]) == root and int(entry.name) != root else int(rest[1])
                family.setdefault(parent, []).append(int(entry.name))
                sizes[int(entry.name)] = int(rest[17]), int(rest[21]) * _PAGE
    count = total = 0
    pending = [root]
    while pending:
        pid = pending.pop()
        pending += family.get(pid, ())
        threads, resident = sizes.get(pid, (0, 0))
        count += threads
        total += resident
    return count, total
