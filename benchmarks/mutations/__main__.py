"""Runs the mutation gate.

python -m benchmarks.mutations [--out FILE] [--page FILE] [--only TEXT ...] [--budget SECONDS]
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.mutations.page import write_page
from benchmarks.mutations.reasons import read_reasons
from benchmarks.mutations.trying import Subject, attempt, subject
from ptxbench.machine import make_evaluator
from ptxbench.solutions import solutions


def try_all(kernel: Subject, ends: float) -> tuple[list[dict[str, Any]], bool]:
    """A row for each mutant, until the time ends; whether all were tried."""
    rows: list[dict[str, Any]] = []
    for mutant in kernel.mutants():
        if time.monotonic() > ends:
            return rows, False
        outcome = attempt(kernel, mutant)
        rows.append(
            {
                "file": kernel.file, "kernel": mutant.kernel, "place": mutant.place, "line": mutant.line,
                "class": mutant.group, "operation": mutant.operation, "opcode": mutant.opcode,
                "noticed": outcome.noticed, "kind": outcome.kind,
            }
        )  # fmt: skip
    return rows, True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/cpu/mutations.json"))
    parser.add_argument("--page", type=Path, default=Path("docs/mutations.md"))
    parser.add_argument("--only", nargs="*", default=[""], help="parts of file names; without it, all kernels")
    parser.add_argument("--budget", type=float, default=7200.0, help="seconds after which no mutant begins")
    parser.add_argument("--render", action="store_true", help="only write the page, from the results that are there")
    options = parser.parse_args()
    if not options.render:
        begin = time.monotonic()
        evaluator = make_evaluator(threading.Event(), lambda stage: None)
        rows: list[dict[str, Any]] = []
        files: list[dict[str, Any]] = []
        for row in solutions():
            if not any(part in row.file for part in options.only):
                continue
            found, whole = try_all(subject(evaluator, row), begin + options.budget)
            rows += found
            files.append({"file": row.file, "mutants": len(found), "all": whole})
            print(f"{row.file}: {len(found)} mutants", flush=True)
            report = {
                "schema": 1, "made": datetime.now(UTC).isoformat(timespec="seconds"),
                "seconds": round(time.monotonic() - begin), "only": options.only, "files": files, "mutants": rows,
            }  # fmt: skip
            options.out.write_text(json.dumps(report, indent=1) + "\n")
    write_page(options.page, json.loads(options.out.read_text()), read_reasons())


if __name__ == "__main__":
    main()
