"""What CUPTI returns for one way of running work: ``cuda_counting.py CASE_FOLDER WAY NODE LIBRARY``, JSON on stdout.

Each way runs in a process of its own, because most of them are expected to leave CUPTI without records. NODE is the
kernel of the plan that the ways of one kernel count; the nodes before it have run by then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptxbench.devices.cuda.bundle import Case, read_bundle
from ptxbench.devices.cuda.counters import CHIPS, Counters, Row
from ptxbench.devices.cuda.driver import Driver
from ptxbench.devices.cuda.replay import Replay

WAYS = {
    "kernel": "one kernel, a plain launch (what the product does)",
    "kernel_graph": "one kernel, launched as a graph made before CUPTI was configured",
    "plan": "the whole plan, plain launches, in one range",
    "plan_graph": "the whole plan as a graph made before CUPTI was configured",
    "kernel_twice": "one kernel, and a second range in the same process",
    "memset_between": "one kernel, after a finished memset between configuration and range",
}


def work_of(way: str, driver: Driver, replay: Replay, node: int) -> Callable[[], None]:
    """What to launch inside the counted range; a graph is made here, so before the counters exist."""
    whole = way.startswith("plan")
    plain = replay.launch if whole else lambda: replay.launch_node(node, replay.stream)
    if not whole:
        replay.run_before(node)
    if not way.endswith("graph"):
        return plain
    driver.begin_capture(replay.stream)
    plain()
    graph = driver.end_capture(replay.stream)
    return lambda: driver.call("cuGraphLaunch", graph, replay.stream)


def ranges(way: str, driver: Driver, replay: Replay, node: int, library: Path, chip: str) -> list[list[Row]]:
    """The rows of every counted range."""
    scratch = driver.allocate(4096)
    work = work_of(way, driver, replay, node)
    driver.synchronise()
    with Counters(library, chip) as counters:
        if way == "memset_between":
            driver.fill(scratch, 0, 4096)
            driver.synchronise()
        repeats = 2 if way == "kernel_twice" else 1
        return [counters.measure_any(work, driver.synchronise) for _ in range(repeats)]


def summary(case: Case, rows: list[Row]) -> dict[str, dict[str, int]]:
    """Per kernel: records, all warp instructions, and those of its products (HGMMA, FFMA)."""
    opcodes = {(sass.kernel, one.offset): one.opcode for sass in case.artifact.sass for one in sass.instructions}
    kernels: dict[str, dict[str, int]] = {}
    for row in rows:
        entry = kernels.setdefault(row.kernel, {"records": 0, "warp_instructions": 0, "HGMMA": 0, "FFMA": 0})
        entry["records"] += 1
        entry["warp_instructions"] += row.warps
        opcode = opcodes.get((row.kernel, row.offset), "").split(".")[0]
        if opcode in entry:
            entry[opcode] += row.warps
    return kernels


def main(place: Path, way: str, node: int, library: Path) -> None:
    case = read_bundle(place.parent)[place.name]
    driver = Driver()
    replay = Replay(driver, case.artifact, case.plan)
    replay.reset()
    for name, content in case.inputs.items():
        replay.memory.write(name, content)
    counted = ranges(way, driver, replay, node, library, CHIPS[case.artifact.target])
    report: dict[str, Any] = {"what": WAYS[way], "ranges": [summary(case, rows) for rows in counted]}
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
