"""The parent's side of a device program: start it, talk to it against deadlines, kill it when it hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from ptxbench.core import DeviceError, Fault, FaultKind
from ptxbench.devices.cuda.channel import Channel, ChannelError, Message

EXECUTOR = "ptxbench.devices.cuda.executor"
START_SECONDS = 120.0
"""Allowed for interpreter, imports, driver and context on a cold machine."""

_RUNS_CANDIDATE = {"run", "count", "time"}
_KEPT_VARIABLES = {"PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV"}
_KEPT_PREFIXES = ("LD_LIBRARY_", "PYTHON", "CUDA_", "NVIDIA_", "LC_")
_KILL_SECONDS = 60.0


class Reply(NamedTuple):
    """What came back: the reply's header and blob, or the candidate's fault (then the process has ended)."""

    header: dict[str, Any]
    blob: bytearray
    fault: Fault | None = None


class ExecutorProcess:
    """One child process with a device. Use it in a ``with`` statement; it is not for several threads."""

    def __init__(self, module: str = EXECUTOR, *, start_seconds: float = START_SECONDS) -> None:
        """Starts ``python -m module`` and waits until it has its device. `DeviceError` if it cannot get one."""
        started = time.perf_counter()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        requests, replies = os.pipe(), os.pipe()
        command = [sys.executable, "-m", module, str(requests[0]), str(replies[1])]
        self._child = subprocess.Popen(
            command, pass_fds=(requests[0], replies[1]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=self._log, env=child_environment(os.environ), start_new_session=True,
        )
        os.close(requests[0])
        os.close(replies[1])
        self._channel: Channel | None = Channel(replies[0], requests[1])
        hello = self.request("hello", start_seconds)
        self.device: dict[str, Any] = hello.header["device"]
        self.driver_start_s: float = hello.header["driver_start_s"]
        self.start_s = time.perf_counter() - started

    @property
    def alive(self) -> bool:
        """Whether it still takes requests."""
        return self._channel is not None

    def request(
        self, op: str, seconds: float, blob: bytes | bytearray | memoryview = b"", **fields: Any
    ) -> Reply:
        """Sends one request and waits at most ``seconds`` for its reply.

        A candidate that faults or hangs is in the reply's ``fault``; the process is gone then. `DeviceError` for
        everything else that goes wrong, with the end of the process's standard error.
        """
        if self._channel is None:
            raise DeviceError("This executor has ended after a fault; start another one.")
        deadline = time.monotonic() + seconds
        try:
            self._channel.send({"op": op, **fields}, blob, deadline)
            message = self._channel.receive(deadline)
        except TimeoutError as error:
            self.kill()
            if op in _RUNS_CANDIDATE:
                return Reply({}, bytearray(), _time_limit(seconds))
            raise DeviceError(f"The executor did not answer {op!r} within {seconds:g} s and was killed.") from error
        except (EOFError, BrokenPipeError, ChannelError) as error:
            self.kill()
            words = self._last_words()
            raise DeviceError(words if op == "hello" else f"The executor ended during {op!r}: {words}") from error
        return self._judge(op, message)

    def _judge(self, op: str, message: Message) -> Reply:
        if "fault" in message.header:
            self.kill()
            return Reply({}, bytearray(), Fault.model_validate(message.header["fault"]))
        if "error" in message.header:
            raise DeviceError(f"The executor could not {op}: {message.header['error']}")
        return Reply(message.header, message.blob)

    def kill(self) -> None:
        """Ends the process at once (SIGKILL) and waits until it is gone; the driver then takes its context down."""
        if self._channel is None:
            return
        self._channel.close()
        self._channel = None
        self._child.kill()
        try:
            self._child.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise DeviceError(
                f"Executor process {self._child.pid} could not be killed within {_KILL_SECONDS:g} s; "
                "the device may need attention (nvidia-smi)."
            ) from error

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit status {self._child.returncode}, no message"

    def stop(self) -> None:
        """Only sends the signal that ends the process, for use by another thread than the one that talks to it."""
        self._child.kill()

    def close(self) -> None:
        """Ends the process and drops its log; also safe after `kill`."""
        self.kill()
        self._log.close()

    def __enter__(self) -> ExecutorProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a device program needs of the environment and no more: no key or secret reaches a candidate's process."""
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES)
    }


def stray_write(buffers: Sequence[str]) -> Fault | None:
    """The fault of writing beside the named buffers, or None if there is none."""
    if not buffers:
        return None
    return Fault(
        kind=FaultKind.STRAY_WRITE,
        message=f"The kernel wrote outside of {', '.join(buffers)}: the guard zone beside it changed.",
        advice="Look for an index or a tensor map that leaves its buffer.",
    )


def _time_limit(seconds: float) -> Fault:
    return Fault(
        kind=FaultKind.TIME_LIMIT,
        message=f"The device did not finish within {seconds:g} s.",
        advice="Look for a wait that nothing satisfies: a barrier's parity, a missing arrival, a flag never set.",
    )
