"""Measures import time, the stages of `eval` cold and warm, and the simulator's speed on the bundled kernels.

python -m benchmarks [--out FILE] [--page docs/benchmarks.md]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.page import update
from benchmarks.simulator import GEMM, measure
from ptxbench.solutions import solutions


def measure_import(repeats: int = 7) -> dict[str, float]:
    """Seconds of ``import ptxbench`` and of ``import ptxbench.core`` in a new interpreter, median."""
    code = "import time; t = time.perf_counter(); import {0}; print(time.perf_counter() - t)"
    found: dict[str, float] = {}
    for module in ("ptxbench", "ptxbench.core", "ptxbench.cli.program"):
        times = [float(subprocess.check_output([sys.executable, "-c", code.format(module)])) for _ in range(repeats)]
        found[module] = round(statistics.median(times), 4)
    return found


def measure_eval(folder: Path) -> dict[str, Any]:
    """Wall seconds of whole `ptxbench eval` processes on one kernel: all cold, to be compiled, and from the cache."""
    row = solutions(GEMM)[0]
    kernel = folder / row.file.rsplit("/", 1)[-1]
    environment = os.environ | {"PTXBENCH_CACHE": str(folder / "cache")}

    def run(source: str) -> dict[str, Any]:
        kernel.write_text(source)
        arguments = ["eval", str(kernel), "--task", GEMM, "--target", row.target.value, "--json"]
        command = [sys.executable, "-m", "ptxbench", *arguments]
        begin = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        wall = time.perf_counter() - begin
        return {"wall_s": round(wall, 3), "stages_s": json.loads(done.stdout)["stages_s"]}

    source = row.source()
    return {
        "kernel": row.file,
        "cold": run(source),
        "compile": [run(source + f"// {index}\n") for index in range(3)],
        "from_cache": [run(source) for _ in range(5)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="also write the results to this JSON file")
    parser.add_argument("--page", type=Path, help="also write the numbers of --out into this page")
    arguments = parser.parse_args()
    if arguments.page and not arguments.out:
        parser.error("--page needs --out")
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": "python -m benchmarks",
            "machine": {
                "processor": processor(), "cores": os.cpu_count(), "load": load, "python": platform.python_version(),
            },
            "import_s": measure_import(),
            "eval": measure_eval(folder),
            "simulator": measure(folder),
        }
    print(json.dumps(report, indent=2))
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    if arguments.page:
        update(arguments.page, arguments.out)


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
