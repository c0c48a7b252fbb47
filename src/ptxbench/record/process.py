"""One process of the recorder: what it is asked, how it is run, and how its end is understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxbench.build import Limits, Sandbox
from ptxbench.core import Artifact, SandboxError, Task
from ptxbench.record.addresses import (
    AddressMap,
    Region,
    allocation_base,
    argument_regions,
    symbol_base,
    workspace_base,
)
from ptxbench.record.endings import HOST_MEMORY_BYTES, check_end, check_return, forged
from ptxbench.record.recording import MAX_LINE_BYTES, Line, RawError, Returned, parse_recording

_LIBRARY = "candidate.so"


@dataclass(frozen=True)
class Call:
    """One recorded call of the launcher. ``number`` counts calls over all processes, from 0; ``process`` likewise."""

    number: int
    process: int
    returned: Returned
    addresses: AddressMap


@dataclass(frozen=True)
class Job:
    """What to record. ``launcher`` is the symbol to call."""

    artifact: Artifact
    task: Task
    sizes: Mapping[str, int]
    launcher: str = "launch"


def run_process(
    job: Job, process: int, calls: Sequence[int], *, host: Path, sandbox: Sandbox, seconds: float
) -> tuple[Call, ...]:
    """Records the ``calls`` one after the other in a fresh sandboxed process.

    Raises `Refusal` for the candidate's failures, `SandboxError` if the host program itself could not do its work.
    """
    completed = sandbox.run(
        [str(host), f"./{_LIBRARY}"], read_only=[host.parent], inputs={_LIBRARY: job.artifact.host_library},
        stdin=_request(job, process, calls), channel=True,
        limits=Limits(seconds=seconds, memory=HOST_MEMORY_BYTES, disk=1 << 26, output=MAX_LINE_BYTES, processes=1),
    )
    # The host program reports that it begins to load before anything of the candidate runs.
    if not completed.channel:
        first = completed.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise SandboxError(
            f"The recorder's host program {host} did not start ({completed.cause}, {completed.returncode}): {first}."
        )
    lines = parse_recording(completed.channel)
    if lines is None:
        raise forged()
    check_end(completed, lines, seconds)
    return _calls(job, process, calls, lines)


def map_magic(process: int) -> int:
    """The first word of every tensor map of a process: no address, no host pointer, different in every process."""
    return 0x9E3779B97F4A7C15 + (process << 32)


def _request(job: Job, process: int, calls: Sequence[int]) -> bytes:
    sheet = job.artifact.target.sheet
    lines = [f"launcher {job.launcher}", f"device {sheet.device_name}"]
    lines.append("sizes " + " ".join(str(job.sizes[name]) for name in job.task.sizes))
    lines.append(f"layout {allocation_base(process)} {symbol_base(process)} {map_magic(process)}")
    exclude = {"device_name", "compute_capability", "matrix_family", "memory_bytes_per_second"}
    figures = sheet.model_dump(exclude=exclude)
    figures |= {"compute_major": sheet.compute_capability[0], "compute_minor": sheet.compute_capability[1]}
    lines += [f"sheet {name} {value}" for name, value in figures.items()]
    for facts in job.artifact.kernels:
        slots = " ".join(f"{slot.offset} {slot.size}" for slot in facts.parameters)
        threads = facts.max_threads or sheet.max_threads_per_block
        lines.append(f"kernel {facts.name} {facts.registers} {facts.static_shared} {facts.local} {threads} {slots}")
    for call in calls:
        tensors = " ".join(str(region.base) for region in argument_regions(job.task, job.sizes, call))
        lines.append(f"call {workspace_base(call)} {tensors}")
    return "\n".join([*lines, ""]).encode()


def _calls(job: Job, process: int, calls: Sequence[int], lines: Sequence[Line]) -> tuple[Call, ...]:
    result: list[Call] = []
    errors: list[RawError] = []
    for line in lines:
        if isinstance(line, RawError):
            errors.append(line)
        if not isinstance(line, Returned):
            continue
        if len(result) == len(calls):
            raise forged()
        check_return(line, errors)
        number = calls[len(result)]
        result.append(Call(number, process, line, _addresses(job, calls, number, line)))
        errors = []
    if len(result) < len(calls):
        raise forged()
    return tuple(result)


def _addresses(job: Job, calls: Sequence[int], number: int, returned: Returned) -> AddressMap:
    def of_call(call: int) -> tuple[Region, ...]:
        workspace = Region("workspace", "workspace", workspace_base(call), returned.workspace)
        return (workspace, *argument_regions(job.task, job.sizes, call))

    allocations = (Region("allocation", "", raw.base, raw.bytes) for raw in returned.allocations)
    symbols = (Region("symbol", raw.name, raw.base, raw.bytes) for raw in returned.symbols)
    stale = [region for call in calls if call != number for region in of_call(call)]
    return AddressMap((*symbols, *allocations, *of_call(number)), stale)
