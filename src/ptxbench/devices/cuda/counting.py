"""Executed counts of a whole plan: every kernel in a process of its own, because CUPTI counts once per process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ptxbench.core import Artifact, Fault, LaunchPlan, Node, Record
from ptxbench.devices.cuda.bundle import executable
from ptxbench.devices.cuda.counters import CHIPS, Row
from ptxbench.devices.cuda.process import ExecutorProcess, Reply

AT_A_TIME = 4
"""Kernels of one plan that are counted side by side: counting patches only the process's own code."""


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
    artifact: Artifact,
    plan: LaunchPlan,
    inputs: Mapping[str, bytes],
    library: Path,
    seconds: float,
    *,
    imports: Mapping[str, Mapping[str, Any]] | None = None,
    fresh: Callable[[], ExecutorProcess] = ExecutorProcess,
) -> tuple[KernelCounts, ...] | Fault:
    """Counts of every kernel launch of ``plan`` on ``inputs``, or the candidate's fault.

    ``library`` is what `counters_library` built; ``seconds`` bounds each step of each process. The nodes before a
    counted kernel run uncounted in its process, which ``fresh`` starts; `AT_A_TIME` processes work side by side.
    ``imports`` maps inputs that another process holds. `DeviceError` where CUPTI returns no records.
    """

    def count(index: int) -> KernelCounts | Fault:
        started = time.perf_counter()
        with fresh() as executor:
            fault = _prepare(executor, artifact, plan, inputs, imports or {}, seconds)
            if fault is not None:
                return fault
            chip = CHIPS[artifact.target]
            reply = executor.request("count", seconds, node=index, library=str(library), chip=chip)
        if reply.fault is not None:
            return reply.fault
        return _kernel_counts(index, plan.nodes[index], reply, time.perf_counter() - started)

    launches = [index for index, node in enumerate(plan.nodes) if node.op == "kernel"]
    counted: list[KernelCounts] = []
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for one in pool.map(count, launches):
            if isinstance(one, Fault):
                return one
            counted.append(one)
    return tuple(counted)


def _prepare(
    executor: ExecutorProcess,
    artifact: Artifact,
    plan: LaunchPlan,
    inputs: Mapping[str, bytes],
    imports: Mapping[str, Mapping[str, Any]],
    seconds: float,
) -> Fault | None:
    sent = executable(artifact).model_dump(mode="json")
    replies = [
        executor.request("load", seconds, artifact=sent, plan=plan.model_dump(mode="json"), imports=dict(imports))
    ]
    if replies[0].fault is None:
        replies += [executor.request("write", seconds, content, buffer=name) for name, content in inputs.items()]
    return next((reply.fault for reply in replies if reply.fault), None)


def _kernel_counts(node: int, launch: Node, reply: Reply, process_s: float) -> KernelCounts:
    header = reply.header
    rows = tuple(Row.model_validate(row) for row in header["rows"])
    return KernelCounts(
        node=node, kernel=launch.kernel if launch.op == "kernel" else "", rows=rows, process_s=process_s,
        open_s=header["open_s"], count_s=header["count_s"],
    )
