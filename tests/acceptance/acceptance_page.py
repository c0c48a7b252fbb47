"""Puts the numbers of the wide run into its page: ``acceptance_page.py RESULTS.json PAGE.md``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- numbers: begin (written by tests/acceptance/acceptance_page.py) -->", "<!-- numbers: end -->"
WIDTH = 40  # characters of the longest bar
TITLES = {"gemm": "GEMM", "attention_forward": "Attention forward", "attention_backward": "Attention backward"}


def filled(page: str, found: dict[str, Any]) -> str:
    """The page with the numbers of one results file between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{numbers(found)}\n{rest[rest.index(END):]}"


def numbers(found: dict[str, Any]) -> str:
    return "\n".join([*summary(found), *plots(found), *honest(found), *cheats(found)])


def summary(found: dict[str, Any]) -> Iterator[str]:
    rows = found["honest"]
    kernels = {row["kernel"] for row in rows}
    replays = sum(row["kernel_tried"] for row in first_outputs(rows))
    refused = sum(row["kernel_caught"] for row in first_outputs(rows))
    caught = [row["kernel_caught"] / row["kernel_tried"] for row in first_outputs(found["cheats"])]
    yield (
        f"`{found['command']}`: {len(kernels)} honest kernels, {replays} replays, {refused} of them refused. "
        f"Highest RMS ratio {highest(rows, 'rms')} (bound {found['bounds']['rms']:g}), highest largest error "
        f"{highest(rows, 'largest')} (bound {found['bounds']['largest']:g}). Of {len(caught)} cheats "
        f"{sum(share == 1 for share in caught)} are caught on every problem that they change, and "
        f"{sum(share == 0 for share in caught)} on none."
    )
    yield ""


def plots(found: dict[str, Any]) -> Iterator[str]:
    yield "### RMS ratio, per output"
    yield ""
    yield "Share of all replays of honest kernels (`o`), and of all emulated cheats on problems where they change that"
    yield f"output (`x`). The bound is {found['bounds']['rms']:g}."
    yield ""
    for name, groups in found["histograms"].items():
        operation, output = name.rsplit(" ", 1)
        yield "```text"
        yield f"{TITLES[operation]}, {output}: {sum(groups['honest'])} honest, {sum(groups['cheats'])} cheats"
        yield from bars(found["edges"], groups["honest"], groups["cheats"])
        yield "```"
        yield ""


def bars(edges: list[float], kept: list[int], cheated: list[int]) -> Iterator[str]:
    starts = [0.0, *edges]
    used = [i for i, _ in enumerate(starts) if kept[i] or cheated[i]]
    for i in range(used[0], used[-1] + 1):
        until = f"{edges[i]:>5g}" if i < len(edges) else "     "
        share, other = kept[i] / max(sum(kept), 1), cheated[i] / max(sum(cheated), 1)
        yield f"{starts[i]:>5g} - {until} | {bar(share, 'o')}{bar(other, 'x')}".rstrip()


def bar(share: float, mark: str) -> str:
    """At least one mark for a share that is not zero."""
    return f"{mark * max(1, round(share * WIDTH))} {share:.1%} " if share else ""


def honest(found: dict[str, Any]) -> Iterator[str]:
    yield "### Honest kernels"
    yield ""
    for operation, rows in by_operation(found["honest"]):
        yield from table(
            TITLES[operation], "| kernel | target | style | accepted | RMS ratio: median, highest | largest error |",
            (honest_row(own) for own in by_kernel(rows)),
        )


def honest_row(rows: list[dict[str, Any]]) -> str:
    one = rows[0]
    accepted = f"{one['kernel_tried'] - one['kernel_caught']} of {one['kernel_tried']}"
    ratios = "; ".join(f"{r['output']} {r['rms']['median']:.3g}, {r['rms']['highest']:.3g}" for r in rows)
    largest = max(r["largest"]["highest"] for r in rows)
    return f"| {one['kernel']} | {one['target']} | {one['style']} | {accepted} | {ratios} | {largest:.3g} |"


def cheats(found: dict[str, Any]) -> Iterator[str]:
    yield "### Cheats"
    yield ""
    yield "A single wrong element hardly moves the RMS ratio; it is caught by the largest error."
    yield ""
    for operation, rows in by_operation(found["cheats"]):
        yield from table(
            TITLES[operation], "| cheat | caught | RMS ratio: lowest, median, highest |",
            (cheat_row(own) for own in by_kernel(rows)),
        )


def cheat_row(rows: list[dict[str, Any]]) -> str:
    one = rows[0]
    ratios = "; ".join(f"{row['output']} {', '.join(map(short, row['rms'].values()))}" for row in rows)
    return f"| {one['kernel']} | {one['kernel_caught']} of {one['kernel_tried']} | {ratios} |"


def short(value: float | None) -> str:
    """Three digits; beyond a million, and where there is no number, infinity."""
    return "∞" if value is None or value >= 1e6 else f"{value:.3g}"


def highest(rows: Iterable[dict[str, Any]], what: str) -> str:
    return f"{max(row[what]['highest'] for row in rows):.3g}"


def table(title: str, head: str, rows: Iterable[str]) -> list[str]:
    return [f"{title}:", "", head, "|" + " --- |" * (head.count("|") - 1), *rows, ""]


def by_operation(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for operation in TITLES:
        if own := [row for row in rows if row["operation"] == operation]:
            yield operation, own


def by_kernel(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The rows of each kernel, one per output."""
    ordered = sorted(rows, key=lambda row: [other["kernel"] for other in rows].index(row["kernel"]))
    for _, own in groupby(ordered, key=lambda row: row["kernel"]):
        yield list(own)


def first_outputs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per operation and kernel."""
    return list({(row["operation"], row["kernel"]): row for row in reversed(rows)}.values())


def main(results: Path, page: Path) -> None:
    page.write_text(filled(page.read_text(), json.loads(results.read_text())))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
