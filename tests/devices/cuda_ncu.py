"""Nsight Compute's counts per instruction, as an independent check of ours and for kernels that are not ours.

Run as a program it is the work that Nsight Compute looks at::

    cuda_ncu.py case FOLDER          the plan of a bundle's case, on the case's inputs
    cuda_ncu.py library TASK NAME    one run of a library on normal inputs, at the core size
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ptxbench.core import SassInstruction

NCU_ROOTS = (Path("/opt/nvidia/nsight-compute"), Path("/usr/local/cuda/nsight-compute-2025.3.1"))
SECONDS = 120.0


@dataclass(frozen=True)
class Counted:
    """One instruction of a profiled kernel: executions by warps, and active lanes whose predicate was true."""

    instruction: SassInstruction
    warps: int
    threads: int


def profiled(report: Path, *arguments: str) -> dict[str, list[Counted]]:
    """Counts of every kernel that this file, run with ``arguments``, launches in its profiled range, by name."""
    ncu = next((path for root in NCU_ROOTS for path in sorted(root.rglob("ncu")) if path.is_file()), Path("ncu"))
    command = [
        str(ncu), "--clock-control", "none", "--section", "SourceCounters", "--profile-from-start", "off",
        "--kernel-name-base", "mangled", "--force-overwrite", "--export", str(report), sys.executable, __file__,
        *arguments,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(command)}: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    return dict(_actions(report))


def _actions(report: Path) -> Iterator[tuple[str, list[Counted]]]:
    places = [path for root in NCU_ROOTS for path in root.rglob("ncu_report.py")]
    sys.path[:0] = [str(path.parent) for path in places]
    ncu_report: Any = importlib.import_module("ncu_report")
    context = ncu_report.load_report(str(report))
    for chosen in (context.range_by_idx(index) for index in range(context.num_ranges())):
        for action in (chosen.action_by_idx(index) for index in range(chosen.num_actions())):
            yield action.name(action.NameBase_MANGLED), _counted(action)


def _counted(action: Any) -> list[Counted]:
    warps, threads = _per_address(action, "inst_executed"), _per_address(action, "thread_inst_executed_true")
    first = min(warps)
    return [
        Counted(_instruction(address - first, str(action.sass_by_pc(address))), count, threads.get(address, 0))
        for address, count in sorted(warps.items())
    ]


def _per_address(action: Any, name: str) -> dict[int, int]:
    metric = action.metric_by_name(name)
    addresses = metric.correlation_ids()
    return {int(addresses.as_uint64(i)): int(metric.as_uint64(i)) for i in range(metric.num_instances())}


def _instruction(offset: int, text: str) -> SassInstruction:
    """From text such as ``@!P0 HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24``."""
    words = text.strip().rstrip(";").split(None, 1)
    predicate = words[0] if words[0].startswith("@") else ""
    opcode, _, operands = (words[1] if predicate else text.strip().rstrip(";")).strip().partition(" ")
    return SassInstruction(offset=offset, opcode=opcode, operands=operands.strip(), predicate=predicate)


def run_case(folder: Path) -> None:
    """Replays a plan once, inside the profiled range."""
    from ptxbench.devices.cuda.bundle import read_bundle
    from ptxbench.devices.cuda.driver import Driver
    from ptxbench.devices.cuda.replay import Replay

    case = read_bundle(folder.parent)[folder.name]
    driver = Driver()
    replay = Replay(driver, case.artifact, case.plan)
    replay.reset()
    for name, content in case.inputs.items():
        replay.memory.write(name, content)
    driver.synchronise()
    driver.call("cuProfilerStart")
    replay.launch()
    driver.synchronise()
    driver.call("cuProfilerStop")


def run_library(task_name: str, library: str) -> None:
    """Runs a library twice, the second time inside the profiled range."""
    from ptxbench.devices.cuda.libraries import Setting, builders
    from ptxbench.tasks import get_task

    torch: Any = importlib.import_module("torch")
    task = get_task(task_name)
    sizes = task.of_tier("core")[0].sizes
    dtypes = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
    tensors = {
        a.name: torch.randn(a.dims(sizes), device="cuda").to(dtypes[a.dtype]) for a in task.arguments
    }
    stream = torch.cuda.current_stream().cuda_stream
    made = builders(task)[library](Setting(torch, task, sizes, tensors, stream, lambda works: [0.0] * len(works)))
    made.renew()
    made.work()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    made.work()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    if sys.argv[1] == "case":
        run_case(Path(sys.argv[2]))
    else:
        run_library(*sys.argv[2:4])
