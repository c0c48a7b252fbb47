"""Puts measured numbers into the page of the early check: ``cuda_page.py RESULTS.json PAGE.md``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- numbers: begin (written by tests/devices/cuda_page.py) -->", "<!-- numbers: end -->"


def table(head: str, rows: Iterable[str]) -> list[str]:
    return [head, "|" + " --- |" * (head.count("|") - 1), *rows, ""]


def numbers(found: dict[str, Any]) -> str:
    """The tables of one results file, as Markdown."""
    return "\n".join([*machine(found), *replay(found), *counts(found), *ways(found), *faults(found), *speed(found)])


def machine(found: dict[str, Any]) -> list[str]:
    device, versions = found["machine"], found["versions"]
    tools = ", ".join(f"{name} {version}" for name, version in versions.items())
    return [
        f"{device['date'][:10]}, {device['name']}, {device['sm_count']} SMs, driver {device['nvidia_smi'][0]}; "
        f"{tools}.",
        f"An executor starts in {found['start']['executor_s']:.1f} s, the PyTorch baseline in "
        f"{found['start']['baseline_s']:.1f} s.",
        "",
    ]


def replay(found: dict[str, Any]) -> list[str]:
    cases = found["replay"].values()
    same = [case["bits_equal_simulator"] for case in cases if "bits_equal_simulator" in case]
    graphs = [case["graph_equals_plain"] for case in cases if "graph_equals_plain" in case]
    return [
        f"Replay: {len(cases)} plans; largest RMS error {max(case['rms_ratio'] for case in cases):.4f} and largest "
        f"maximum error {max(case['max_ratio'] for case in cases):.3f}, in units of the error of rounding the truth to "
        f"bf16; a graph gives the same bits as plain launches in {sum(graphs)} of {len(graphs)}; at least "
        f"{100 * min(same):.2f} % of the outputs have the simulator's bits where it ran.",
        "",
    ]


def counts(found: dict[str, Any]) -> list[str]:
    def row(name: str, case: dict[str, Any]) -> str:
        equal = [
            family for family, simulated in case.get("simulator", {}).items()
            if case["device"].get(family, {}).get("executed") == simulated["executed"]
        ]
        cells = [
            name, case["records"], f"{case['wgmma_share']:.4f}" if "wgmma_share" in case else "", ", ".join(equal),
            seconds(case["process_s"]), seconds(case["open_s"]), seconds(case["count_s"]),
        ]
        return f"| {' | '.join(map(str, cells))} |"

    head = (
        "| plan | records | wgmma FLOPs / task's | executed as on the simulator | s per process | s to configure "
        "| s to run and read |"
    )
    return table(head, (row(name, case) for name, case in found["counts"].items()))


def seconds(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


def ways(found: dict[str, Any]) -> list[str]:
    def row(name: str, way: dict[str, Any]) -> str:
        plan = name.split()[0]
        ranges = [sum(kernel["records"] for kernel in one.values()) for one in way.get("ranges", [])]
        got = "failed" if "failed" in way else " then ".join(map(str, ranges))
        return f"| {plan} | {way['what']} | {got} |"

    return table("| plan | counted range | records |", (row(*entry) for entry in found["counting"].items()))


def faults(found: dict[str, Any]) -> list[str]:
    rows = (
        f"| {name} | {case['fault']['kind']} | {case['until_reported_s']:.2f} | {case['until_next_result_s']:.2f} |"
        for name, case in found["faults"].items() if "fault" in case
    )
    return table("| kernel | fault | s until reported | s until the next plan's result |", rows)


def speed(found: dict[str, Any]) -> list[str]:
    def ratio(case: dict[str, Any]) -> str:
        return f"{case['median']:.4f} [{case['low']:.4f}, {case['high']:.4f}]"

    same = table("| A against itself | time A / time A |", (
        f"| {name} | {ratio(case)} |" for name, case in found["a_a_ratio"].items()
    ))
    race = table("| kernel | speedup over `torch.matmul` | TFLOP/s | TFLOP/s of `torch.matmul` |", (
        f"| {name} | {ratio(case)} | {case['tflops'][1]:.0f} | {case['tflops'][0]:.0f} |"
        for name, case in found["speed"].items()
    ))
    return [*same, *race]


def filled(page: str, found: dict[str, Any]) -> str:
    """The page with its numbers replaced by those of ``found``."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{numbers(found)}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    target = Path(sys.argv[2])
    target.write_text(filled(target.read_text(), json.loads(Path(sys.argv[1]).read_text())))
