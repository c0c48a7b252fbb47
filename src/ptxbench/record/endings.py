"""How a process of the recorder ended, and what that says about the candidate."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from ptxbench.build import Completed
from ptxbench.core import Outcome
from ptxbench.record.advice import rule_and_advice
from ptxbench.record.recording import MAX_LINE_BYTES, Ended, Line, Mark, RawError, Refused, Returned, Signalled
from ptxbench.record.refusal import Refusal, contract_error, launch_error

HOST_MEMORY_BYTES = 1 << 30
"""What a launcher may use of the host's memory."""

_STRAIGHT = "Write launch as plain straight code that returns 0 or a CUDA error code after its launches."
_NO_STATICS = "Write no static objects with constructors that exit, abort, wait or loop."

# Numbers of `asm/unistd_64.h` for the calls that the host program traps.
_SYSTEM_CALLS = {
    13: "rt_sigaction", 37: "alarm", 38: "setitimer", 41: "socket", 56: "clone", 57: "fork", 58: "vfork", 59: "execve",
    62: "kill", 101: "ptrace", 222: "timer_create", 322: "execveat", 435: "clone3",
}

# Calls whose failure a launcher must not ignore, because the work they stand for is then missing.
_WORK = ("<<<>>>", "cudaLaunch", "cuLaunch", "cudaMem", "cuMem", "cudaMalloc", "cuTensorMap")


def check_end(completed: Completed, lines: Sequence[Line], seconds: float) -> None:
    """Raises `Refusal` if the process ended before its last call had returned."""
    for line in lines:
        match line:
            case Refused():
                raise _refused(line)
            case Ended(event="unloadable"):
                raise contract_error(f"The host library cannot be loaded: {line.why}.", _STRAIGHT)
            case Ended():
                raise launch_error(f"launch let a C++ exception out: {line.why}.", _STRAIGHT)
            case Signalled():
                raise _signalled(line, lines)
            case _:
                pass
    mark = next((line.event for line in reversed(lines) if isinstance(line, Mark)), "loading")
    if mark == "loading":
        raise _ended_in_static_code(completed)
    if mark != "done":
        raise _limit(completed, seconds) or _ended_in_launch(completed, lines)


def check_return(returned: Returned, errors: Sequence[RawError]) -> None:
    """Raises `Refusal` for a non-zero return, or for an error that the launcher should have returned."""
    if returned.code != 0:
        last = f"; {errors[-1].api} had failed: {errors[-1].why}" if errors else ""
        raise launch_error(
            f"launch returned {returned.code} ({returned.code_name}){last}.",
            "Write the call that failed within what the device allows." if errors else "Write `return 0;` for success.",
        )
    for error in errors:
        if error.api.startswith(_WORK):
            raise launch_error(
                f"{error.api} failed with {error.name} ({error.why}), and launch returned 0.",
                "Write the call so that it succeeds, and return its error code otherwise.",
            )


def forged() -> Refusal:
    """The recording is not what our own code writes."""
    return contract_error("Something other than the recorder wrote into the recording.", _STRAIGHT)


def _refused(line: Refused) -> Refusal:
    # The matter is more telling than the call that met it.
    rule, advice = rule_and_advice(line.detail, line.subject)
    detail = f" ({line.detail})" if line.detail else ""
    return contract_error(f"The launcher uses {line.subject}{detail}, and {rule}.", advice)


def _ended_in_static_code(completed: Completed) -> Refusal:
    by_itself = completed.cause in ("exited", "signal")
    how = "blocks" if completed.cause == "time" else "ends"
    reason = f"Static code of the source {how} the process before launch is called."
    return Refusal(Outcome.CONTRACT_ERROR, reason, _NO_STATICS, repeats=by_itself)


def _limit(completed: Completed, seconds: float) -> Refusal | None:
    match completed.cause:
        case "time":
            reason = f"launch did not return within {seconds:g} s on the host."
            return Refusal(Outcome.TIMEOUT, reason, _STRAIGHT, repeats=False)
        case "memory":
            reason = f"launch uses more than {HOST_MEMORY_BYTES >> 20} MiB of host memory."
            return Refusal(Outcome.CONTRACT_ERROR, reason, _STRAIGHT, repeats=False)
        case "output":
            return contract_error(
                f"The recording is longer than {MAX_LINE_BYTES >> 20} MiB.", "Write fewer and smaller launches."
            )
        case _:
            return None


def _ended_in_launch(completed: Completed, lines: Sequence[Line]) -> Refusal:
    error = _last_error(lines)
    if completed.cause == "signal":
        number = completed.returncode - 128
        return launch_error(f"launch was ended by signal {number} ({_signal_name(number)}){error}.", _STRAIGHT)
    if error:
        return launch_error(f"launch ended the process with exit code {completed.returncode}{error}.", _STRAIGHT)
    return contract_error(
        f"launch ends the process (exit code {completed.returncode}) instead of returning.",
        "Write `return code;` with a CUDA error code instead of exit or abort.",
    )


def _signalled(line: Signalled, lines: Sequence[Line]) -> Refusal:
    loaded = any(isinstance(mark, Mark) and mark.event == "loaded" for mark in lines)
    if line.number == signal.SIGSYS:
        name = _SYSTEM_CALLS.get(line.system_call, f"number {line.system_call}")
        rule, advice = rule_and_advice(name)
        return contract_error(f"The launcher makes the system call {name}, and {rule}.", advice)
    if line.device_address:
        return contract_error(
            "The launcher reads or writes device memory on the host, and pointers are opaque there.",
            "Write the access into a kernel; copy constants with cudaMemcpyAsync.",
        )
    name = _signal_name(line.number)
    if not loaded:
        return contract_error(
            f"Static code of the source ends the process with {name} before launch is called.",
            _NO_STATICS,
        )
    return launch_error(f"launch crashed on the host with {name}{_last_error(lines)}.", _STRAIGHT)


def _last_error(lines: Sequence[Line]) -> str:
    """The last error that the API reported, as the end of a sentence; empty if there was none."""
    error = next((line for line in reversed(lines) if isinstance(line, RawError)), None)
    return "" if error is None else f" after {error.api} had failed with {error.name}: {error.why}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "an unknown signal"
