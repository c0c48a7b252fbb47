"""Runs hostile programs: compilers on a candidate's text, and the candidate's own host code.

Full level (user namespaces through bubblewrap): the program sees the system's compiler and libraries, the paths named
by the caller and an empty work folder in memory; no network, no home, no /proc, of /dev only null; no environment;
a system-call filter; limits on time, memory, processes and output. Weak level (the host refuses namespaces): the same
filter and limits in an empty temporary folder, but files that this user may read stay readable.
"""

from __future__ import annotations

import math
import os
import platform
import resource
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

from ptxbench.build.confine import Confined, Mount, in_folder, in_namespaces, memory_file, working_bwrap
from ptxbench.build.seccomp import filter_program
from ptxbench.build.watch import Cause, Stream, watch
from ptxbench.core import SandboxError

Level = Literal["full", "weak"]

CHANNEL = "PTXBENCH_CHANNEL"
"""The variable that tells a program in the sandbox the number of the descriptor to answer on."""

# Announces an output that is a regular file with one byte, so that an empty file differs from a missing one.
_COLLECT = 'collect() { if [ -f "$1" ] && [ ! -L "$1" ]; then printf +; cat "$1"; fi; }'
# bubblewrap and its init, and the shell that collects outputs.
_OWN_PROCESSES = 3


@dataclass(frozen=True)
class Limits:
    """What one run may use.

    ``seconds`` is wall-clock and, per process, CPU time. ``memory`` bounds the resident bytes of all processes
    together, ``disk`` the bytes in the work folder, ``output`` the bytes of each returned file and of the channel,
    ``text`` the bytes kept of stdout and of stderr (the rest is read and dropped). ``processes`` counts processes
    and threads alive, as a watchdog sees them 50 times a second; 1 means that the program can create none at all, and
    is what to give a program that is itself hostile.
    """

    seconds: float = 60.0
    memory: int = 4 << 30
    disk: int = 1 << 30
    output: int = 256 << 20
    text: int = 1 << 18
    processes: int = 64


@dataclass(frozen=True)
class Completed:
    """How a run ended: ``exited``, ``signal`` (``returncode`` is 128 + its number), or the limit that ended it.

    ``outputs`` holds those of the named files that the program left as regular files, ``channel`` what it wrote to
    the descriptor whose number was in its variable ``PTXBENCH_CHANNEL``.
    """

    returncode: int
    cause: Cause
    stdout: bytes
    stderr: bytes
    outputs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    channel: bytes = b""
    seconds: float = 0.0


@dataclass(frozen=True)
class Sandbox:
    """How programs are confined on this machine; ``why`` says in one sentence what is missing at the weak level.

    Setting ``stop`` ends the programs that run, in whatever thread, and every later one, with `Cancelled`.
    """

    level: Level
    why: str = ""
    bwrap: Path | None = None
    stop: threading.Event = field(default_factory=threading.Event, compare=False)

    def seen(self, mount: Mount) -> str:
        """The path under which a program sees a mount: the weak level cannot move anything."""
        return mount.at if self.level == "full" else str(mount.source.absolute())

    def run(
        self,
        argv: Sequence[str],
        *,
        read_only: Sequence[Path | Mount] = (),
        inputs: Mapping[str, bytes] | None = None,
        outputs: Sequence[str] = (),
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        channel: bool = False,
        limits: Limits | None = None,
    ) -> Completed:
        """Runs ``argv`` in a fresh sandbox and waits for its end.

        ``read_only`` paths are visible at their own place, or where their `Mount` says. ``inputs`` are written into
        the work folder (plain names), where the program starts, and ``outputs`` are read back from it. With
        ``channel`` the program inherits the writing end of a pipe. A program that may create no process cannot have
        ``outputs``, because a shell collects them: use the channel.

        Raises `SandboxError` if the sandbox could not be set up; whatever the program does is in the result.
        """
        limits = limits or Limits()
        if outputs and limits.processes == 1:
            raise ValueError("a shell, which creates processes, collects outputs; use the channel")
        begin = time.monotonic()
        with ExitStack() as stack:
            started = _Pipe(stack)
            files = {name: _Pipe(stack) for name in outputs}
            answer = _Pipe(stack)
            settings = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": ".", **(environment or {})}
            if channel:
                settings[CHANNEL] = str(answer.number)
            confined = self._confine(stack, read_only, inputs or {}, settings, limits)
            script = _script(limits, started.number, {name: pipe.number for name, pipe in files.items()})
            pipes = (started, *files.values(), *((answer,) if channel else ()))
            program = ["/bin/bash", "-c", script, "bash", *argv]
            process = _start(stack, confined, program, settings, stdin, pipes)
            answer.writer.close()
            strict = [pipe.stream(limits.output, strict=True) for pipe in (*files.values(), answer)]
            said = (process.stdout, process.stderr)
            texts = [Stream(stack.enter_context(pipe), limits.text) for pipe in said if pipe]
            sign = started.stream(1)
            code, cause = watch(
                process, [sign, *texts, *strict], seconds=limits.seconds, memory=limits.memory,
                processes=limits.processes + _OWN_PROCESSES, stop=self.stop,
            )
        stdout, stderr = (bytes(text.data[: limits.text]) for text in texts)
        if cause in ("exited", "signal") and not sign.data:
            first = stderr.decode(errors="replace").strip().partition("\n")[0]
            raise SandboxError(f"The sandbox ({confined.prefix[0]}) could not be set up: {first or 'no message'}.")
        back = {name: bytes(stream.data[1:]) for name, stream in zip(files, strict, strict=False) if stream.data}
        return Completed(code, cause, stdout, stderr, back, bytes(strict[-1].data), time.monotonic() - begin)

    def _confine(
        self, stack: ExitStack, read_only: Sequence[Path | Mount], inputs: Mapping[str, bytes],
        environment: Mapping[str, str], limits: Limits,
    ) -> Confined:
        seccomp = filter_program(single_process=limits.processes == 1, keep_session=self.bwrap is None)
        if self.bwrap is None:
            return in_folder(stack, inputs=inputs, seccomp=seccomp)
        return in_namespaces(
            stack, self.bwrap, read_only=read_only, inputs=inputs, environment=environment, seccomp=seccomp,
            disk=limits.disk,
        )


def find_sandbox() -> Sandbox:
    """The strongest confinement that works here; tries it by running a program (about 10 ms).

    Raises `SandboxError` on a machine that the system-call filter is not made for.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise SandboxError(f"The sandbox needs Linux on x86-64; this is {platform.system()} on {platform.machine()}.")
    bwrap, complaint = working_bwrap()
    if bwrap is not None:
        return Sandbox("full", bwrap=bwrap)
    return Sandbox(
        "weak",
        f"This host refuses the namespaces a full sandbox needs ({complaint or 'no message'}): candidates run under "
        "limits and a system-call filter only and can read this user's files; allow unprivileged user namespaces.",
    )


class _Pipe:
    """A pipe whose ends close with the stack at the latest."""

    def __init__(self, stack: ExitStack) -> None:
        reader, writer = os.pipe()
        self.reader: BinaryIO = stack.enter_context(os.fdopen(reader, "rb", buffering=0))
        self.writer: BinaryIO = stack.enter_context(os.fdopen(writer, "wb", buffering=0))
        self.number = writer

    def stream(self, cap: int, *, strict: bool = False) -> Stream:
        """What the other side writes, of which at most ``cap`` bytes are kept."""
        return Stream(self.reader, cap, strict)


def _start(
    stack: ExitStack, confined: Confined, program: list[str], environment: Mapping[str, str], stdin: bytes,
    pipes: Sequence[_Pipe],
) -> subprocess.Popen[bytes]:
    try:
        process = subprocess.Popen(
            [*confined.prefix, *program], stdin=memory_file(stack, stdin), stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=dict(environment), cwd=confined.folder, start_new_session=True,
            pass_fds=[*confined.descriptors, *(pipe.number for pipe in pipes)],
        )
    except OSError as error:
        raise SandboxError(f"The sandbox program {confined.prefix[0]} could not be started ({error}).") from error
    stack.callback(_end, process)
    for pipe in pipes:
        pipe.writer.close()
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills a process that is still there because something interrupted us."""
    if process.poll() is None:
        process.kill()
        process.wait()


def _script(limits: Limits, started: int, files: Mapping[str, int]) -> str:
    """The shell around the program: sets resource limits, reports the start, and hands the named files back."""
    lines = [f"ulimit -{option} {value}" for option, value in _ulimits(limits)]
    lines.append(f"printf s >&{started}; exec {started}>&-")
    if not files:
        return "; ".join([*lines, 'exec "$@"'])
    closed = " ".join(f"{number}>&-" for number in files.values())
    lines += [f'"$@" {closed}; code=$?', _COLLECT]
    lines += [f"collect {shlex.quote(name)} >&{number}" for name, number in files.items()]
    return "; ".join([*lines, "exit $code"])


def _ulimits(limits: Limits) -> list[tuple[str, int]]:
    """Options of bash's ``ulimit``, never above what this process may have itself.

    The watchdog bounds resident memory; the bound on address space is a wide net under it. `RLIMIT_NPROC` is of no
    use: it never binds root, and older kernels count the user's processes outside the sandbox too.
    """
    rows = (
        ("c", resource.RLIMIT_CORE, 0, 1024),
        ("t", resource.RLIMIT_CPU, math.ceil(limits.seconds) + 1, 1),
        ("v", resource.RLIMIT_AS, 2 * limits.memory + (1 << 30), 1024),
        ("f", resource.RLIMIT_FSIZE, limits.disk, 1024),
        ("n", resource.RLIMIT_NOFILE, 256, 1),
    )
    result: list[tuple[str, int]] = []
    for option, kind, wanted, unit in rows:
        hard = resource.getrlimit(kind)[1]
        result.append((option, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)) // unit))
    return result
