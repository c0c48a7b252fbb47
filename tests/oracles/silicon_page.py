"""Puts the comparison of simulator and GPU into the docs: ``python tests/oracles/silicon_page.py RESULTS PAGE``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

BEGIN = "<!-- numbers: begin (written by tests/oracles/silicon_page.py) -->"
END = "<!-- numbers: end -->"
_COLUMNS = ("kernel", "products", "copies in", "copies out", "stmatrix", "ldmatrix", "GPU", "simulator", "between")


def render(report: dict[str, Any]) -> str:
    """The text between the marks."""
    machine, versions, kernels = report["machine"], report["versions"], report["kernels"]
    equal = sum(found["executed_device"] == found["executed_simulator"] for found in kernels.values())
    worst = max(max(_largest(found).values()) for found in kernels.values())
    lines = [
        f"{machine['date'][:10]}, {machine['name']}, driver {versions['driver']}, CUPTI "
        f"{versions['nvidia-cuda-cupti']}: "
        f"{len(kernels)} kernels; executed counts are equal for {equal} of them; the largest error is {worst:.2f} of "
        "what is allowed.",
        "",
        f"`{report['command']}`",
        "",
        "| " + " | ".join(_COLUMNS) + " |",
        "| --- " * len(_COLUMNS) + "|",
    ]
    for name, found in sorted(kernels.items()):
        counts, errors = found["executed_device"], _largest(found)
        products = ", ".join(f"{count} × {_shape(key)}" for key, count in counts.items() if key.startswith("wgmma"))
        moved = [str(counts.get(family, "")) for family in ("tma_load", "tma_store", "stmatrix", "ldmatrix")]
        ratios = [f"{errors[side]:.3f}" for side in ("device", "simulator", "between")]
        lines.append("| " + " | ".join([f"`{name}`", products, *moved, *ratios]) + " |")
    return "\n".join(lines) + "\n"


def _shape(family: str) -> str:
    return family.partition(" ")[2].replace("x", "×")


def _largest(found: dict[str, Any]) -> dict[str, float]:
    sides = ("device", "simulator", "between")
    return {side: max(errors[side] for errors in found["errors"].values()) for side in sides}


def main(results: Path, page: Path) -> None:
    """Replaces what is between the marks of ``page``."""
    head, rest = page.read_text().split(BEGIN)
    tail = rest.split(END)[1]
    page.write_text(f"{head}{BEGIN}\n{render(json.loads(results.read_text()))}{END}{tail}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
