"""Writes the numbers of a results file into the page of benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

BEGIN = "<!-- numbers: begin (written by `python -m benchmarks`) -->"
END = "<!-- numbers: end -->"


def update(page: Path, results: Path) -> None:
    """Replaces what stands between the marks of ``page`` by the numbers in ``results``."""
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{render(json.loads(results.read_text()))}{END}{after}")


def render(report: dict[str, Any]) -> str:
    """The numbers as Markdown."""
    return "\n".join([_machine(report), _imports(report), _stages(report["eval"]), _simulator(report["simulator"]), ""])


def _machine(report: dict[str, Any]) -> str:
    machine = report["machine"]
    return (
        f"Measured on {report['date'][:10]} with {machine['cores']} cores of {machine['processor']} "
        f"(load average {machine['load']:.1f} at the start), Python {machine['python']}.\n"
    )


def _imports(report: dict[str, Any]) -> str:
    rows = [(f"`import {name}`", f"{seconds:.2f} s") for name, seconds in report["import_s"].items()]
    return "## Import\n\n" + _table(("statement", "time"), rows)


def _stages(measured: dict[str, Any]) -> str:
    cases = {
        "everything new": [measured["cold"]],
        "new kernel": measured["compile"],
        "from the cache": measured["from_cache"],
    }
    names = ("compiling", "recording", "simulating", "judging")
    rows = [
        (
            label,
            f"{median(run['wall_s'] for run in runs):.2f} s",
            *(f"{median(run['stages_s'][name] for run in runs):.2f} s" for name in names),
        )
        for label, runs in cases.items()
    ]
    return (
        f"## One verdict\n\n`ptxbench eval` of `{measured['kernel']}` as a whole process, and its stages. "
        "With everything new, the recorder and the simulator are built first; the others are medians.\n\n"
        + _table(("case", "whole process", *names), rows)
    )


def _simulator(rows: list[dict[str, Any]]) -> str:
    cells = [
        (
            f"`{row['kernel']}`",
            f"{row['size']}³",
            f"{row['seconds']:.3f} s",
            f"{row['million_warp_instructions_per_s']:.2f}",
            f"{row['gflop_per_s']:.1f}",
        )
        for row in rows
    ]
    return (
        "## One replay\n\nBest of three, one thread, counting.\n\n"
        + _table(("kernel", "M, N, K", "time", "million warp instructions per s", "GFLOP/s"), cells)
    )


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
