"""Executed counts of a whole plan: every kernel in a process of its own, because CUPTI counts once per process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from ptxbench.core import Artifact, DeviceError, Fault, LaunchPlan, Record
from ptxbench.devices.cuda.counters import CHIPS, Row
from ptxbench.devices.cuda.process import ExecutorProcess, Reply


class KernelCounts(Record):
    """What one launch of a plan executed, and what finding out cost.

    ``process_s`` spans the whole process; of it ``open_s`` went into CUPTI's configuration and ``count_s`` into the
    launch and its records.
    """

    node: int
    kernel: str
    rows: tuple[Row, ...]
    process_s: float
    open_s: float
    count_s: float


def count_plan(
    artifact: Artifact, plan: LaunchPlan, inputs: Mapping[str, bytes], library: Path, seconds: float
) -> tuple[KernelCounts, ...] | Fault:
    """Counts of every kernel launch of ``plan`` on ``inputs``, or the candidate's fault.

    ``library`` is what `counters_library` built; ``seconds`` bounds each step of each process. The nodes before a
    counted kernel run uncounted in its process. `DeviceError` where CUPTI returns no records.
    """
    counted: list[KernelCounts] = []
    for index, node in enumerate(plan.nodes):
        if node.op != "kernel":
            continue
        started = time.perf_counter()
        with ExecutorProcess() as executor:
            _prepare(executor, artifact, plan, inputs, seconds)
            chip = CHIPS[artifact.target]
            reply = executor.request("count", seconds, node=index, library=str(library), chip=chip)
        if reply.fault is not None:
            return reply.fault
        counted.append(_kernel_counts(index, node.kernel, reply, time.perf_counter() - started))
    return tuple(counted)


def _prepare(
    executor: ExecutorProcess, artifact: Artifact, plan: LaunchPlan, inputs: Mapping[str, bytes], seconds: float
) -> None:
    # Machine code and disassembly are all that an executor needs of the artifact.
    sent = artifact.model_copy(update={"ptx": "", "host_library": b""}).model_dump(mode="json")
    replies = [executor.request("load", seconds, artifact=sent, plan=plan.model_dump(mode="json"))]
    replies += [executor.request("write", seconds, content, buffer=name) for name, content in inputs.items()]
    fault = next((reply.fault for reply in replies if reply.fault), None)
    if fault is not None:
        raise DeviceError(f"The plan could not be loaded for counting: {fault.message}")


def _kernel_counts(node: int, kernel: str, reply: Reply, process_s: float) -> KernelCounts:
    header = reply.header
    rows = tuple(Row.model_validate(row) for row in header["rows"])
    return KernelCounts(
        node=node, kernel=kernel, rows=rows, process_s=process_s, open_s=header["open_s"], count_s=header["count_s"]
    )
