"""Writes the numbers of a results file into the page of benchmarks."""

from __future__ import annotations

import json
from math import log, log10
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
    simulator = report["simulator"]
    parts = _machine(report), _imports(report), _stages(report["eval"]), _kernels(simulator), _curves(simulator)
    return "\n".join([*parts, ""])


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


def _kernels(simulator: dict[str, Any]) -> str:
    rows: list[dict[str, Any]] = simulator["kernels"]
    cells = [
        (
            f"`{row['kernel']}`",
            _size(row),
            f"{row['seconds']:.3f} s",
            f"{row['rate']:.1f}",
            f"{row['two_rate']:.1f}",
            f"{row['gflop_per_s']:.0f}",
            f"{row['memory_mib']:.0f} MiB",
        )
        for row in rows
    ]
    header = ("kernel", "size", "one replay", "one core", "two cores", "GFLOP/s of products", "memory")
    gemms, attention = ([row for row in rows if row["kernel"].startswith(kind)] for kind in ("gemm/", "attention/"))
    slowest = min(rows, key=lambda row: row["two_rate"])
    return (
        "## One replay\n\nThe shortest of five, counting. *One core* and *two cores* are million warp instructions per "
        "second: of one replay, which runs on one thread, and of two replays at a time in two threads of one process, "
        "as a verdict runs its twenty; no replay is split. *Memory* is the state of the CTAs that were resident at "
        "once: register files, shared and tensor memory, and what is known of their bytes.\n\n"
        + _table(header, cells)
        + "\n"
        + _table(
            ("aim", "measured"),
            [
                ("GEMM 1024³ below 1 s", f"{max(row['seconds'] for row in gemms):.3f} s, the slowest"),
                (
                    "attention forward S=512, H=2, D=128 below 1 s",
                    f"{max(row['seconds'] for row in attention):.3f} s, the slowest",
                ),
                (
                    "10 million warp instructions per second on two cores",
                    f"{slowest['two_rate']:.1f} at the least (`{slowest['kernel']}`), "
                    f"{sum(row['two_rate'] >= 10 for row in rows)} of {len(rows)} kernels reach it",
                ),
            ],
        )
    )


def _size(row: dict[str, Any]) -> str:
    return f"{row['size']}³" if row["kernel"].startswith("gemm/") else f"S={row['size']}, H=2, D=128"


def _curves(simulator: dict[str, Any]) -> str:
    rows: list[dict[str, Any]] = simulator["curves"]
    names = list(dict.fromkeys(row["kernel"] for row in rows))
    letters = {name: "abcdefgh"[number] for number, name in enumerate(names)}
    cells = [
        (
            f"{letters[row['kernel']]}: `{row['kernel']}`",
            _size(row),
            f"{row['warp_instructions'] / 1e6:.3f}",
            f"{row['seconds']:.4f} s",
            f"{1e3 / row['rate']:.0f} ns",
            f"{row['memory_mib']:.0f} MiB",
        )
        for row in rows
    ]
    header = ("kernel", "size", "million warp instructions", "time", "per instruction", "memory")
    slopes = [(letter, _exponent([row for row in rows if row["kernel"] == name])) for name, letter in letters.items()]
    return (
        "## How the cost grows\n\nOne replay on one core. From the last size but one to the last, the time grows with "
        "the executed instructions to the power of "
        + ", ".join(f"{slope:.2f} ({letter})" for letter, slope in slopes)
        + "; 1 is linear. Below, starting a run and setting up CTAs weighs more. Memory does not grow with the length "
        "of a run: the state of the clusters that are resident at once may take 2 GiB, and a larger cluster is refused."
        "\n\n"
        + _table(header, cells)
        + "\nBoth axes are logarithmic; the dots have slope 1.\n\n```text\n"
        + _plot([(letters[row["kernel"]], row["warp_instructions"], row["seconds"]) for row in rows])
        + "```\n"
    )


def _exponent(rows: list[dict[str, Any]]) -> float:
    first, last = rows[-2], rows[-1]
    return log(last["seconds"] / first["seconds"]) / log(last["warp_instructions"] / first["warp_instructions"])


def _plot(points: list[tuple[str, int, float]], width: int = 72, height: int = 18) -> str:
    """Letters at (instructions, seconds) on logarithmic axes, and dots of slope 1 through their middle."""
    x = [log10(instructions) for _, instructions, _ in points]
    y = [log10(seconds) for _, _, seconds in points]
    (left, right), (low, high) = (min(x), max(x)), (min(y), max(y))
    grid = [[" "] * width for _ in range(height)]

    def put(at_x: float, at_y: float, mark: str) -> None:
        column = round((at_x - left) / (right - left) * (width - 1))
        line = round((high - at_y) / (high - low) * (height - 1))
        if 0 <= line < height:
            grid[line][column] = mark

    middle = sum(y) / len(y) - sum(x) / len(x)
    for column in range(width):
        at = left + (right - left) * column / (width - 1)
        put(at, at + middle, ".")
    for (letter, _, _), at_x, at_y in zip(points, x, y, strict=True):
        put(at_x, at_y, letter)
    labels = [f"{10**high:8.4f} s |", *["           |"] * (height - 2), f"{10**low:8.4f} s |"]
    lines = [label + "".join(line).rstrip() for label, line in zip(labels, grid, strict=True)]
    axis = " " * 11 + "+" + "-" * width
    ends = f"{10**left:,.0f}", f"{10**right:,.0f} warp instructions"
    return "\n".join([*lines, axis, " " * 12 + ends[0] + ends[1].rjust(width - len(ends[0])), ""])


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
