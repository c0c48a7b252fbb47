"""What CUPTI returns for one way of running a plan: ``cuda_counting.py CASE_FOLDER WAY LIBRARY``, JSON on stdout.

Each way runs in a process of its own, because some of them are expected to leave CUPTI without records.
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

WAYS = ("one_by_one", "plain_in_one_range", "graph_made_before", "graph_made_inside")


def rows_of(way: str, driver: Driver, replay: Replay, counters: Counters) -> list[Row]:
    rows: list[Row] = []

    def one(kernel: str, launch: Callable[[], None]) -> None:
        rows.extend(counters.measure(kernel, launch, driver.synchronise))

    def graph_made_inside() -> None:
        driver.call("cuGraphLaunch", replay.capture(), replay.stream)

    if way == "one_by_one":
        replay.one_by_one(one)
    elif way == "plain_in_one_range":
        rows.extend(counters.measure_any(replay.launch, driver.synchronise))
    elif way == "graph_made_before":
        graph = replay.capture()
        run = lambda: driver.call("cuGraphLaunch", graph, replay.stream)  # noqa: E731
        rows.extend(counters.measure_any(run, driver.synchronise))
    else:
        rows.extend(counters.measure_any(graph_made_inside, driver.synchronise))
    return rows


def summary(case: Case, rows: list[Row]) -> dict[str, Any]:
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


def main(place: Path, way: str, library: Path) -> None:
    case = read_bundle(place.parent)[place.name]
    driver = Driver()
    replay = Replay(driver, case.artifact, case.plan)
    replay.memory.reset()
    for name, content in case.inputs.items():
        replay.memory.write(name, content)
    with Counters(library, CHIPS[case.artifact.target]) as counters:
        first = summary(case, rows_of(way, driver, replay, counters))
        # Does a proper measurement still work afterwards?
        after = summary(case, rows_of("one_by_one", driver, replay, counters))
    print(json.dumps({"way": way, "kernels": first, "one_by_one_afterwards": after}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
