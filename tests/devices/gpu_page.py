"""Puts what was measured on a GPU into its page: ``gpu_page.py RESULTS_FOLDER docs/gpu.md``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- numbers: begin (written by tests/devices/gpu_page.py) -->", "<!-- numbers: end -->"
FILES = (
    "judging", "judging_again", "judging_one_place", "examples", "conformance", "verifier", "adversarial", "throughput",
    "calibration", "silicon", "model_runs",
)  # fmt: skip

Found = dict[str, Any]


def table(head: str, rows: Iterable[Iterable[Any]]) -> list[str]:
    """A table of Markdown with an empty line behind it."""
    lines = [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return [head, "|" + " --- |" * (head.count("|") - 1), *lines, ""]


def interval(found: Found) -> str:
    """``0.978 [0.977, 0.979]``."""
    return f"{found['median']:.4f} [{found['low']:.4f}, {found['high']:.4f}]"


def numbers(found: Found) -> str:
    """The tables of all results that there are, as Markdown."""
    judging = found.get("judging", {})
    again = found.get("judging_again", {}).get("solutions", {})
    parts = [
        *machine(judging), *conformance(found.get("conformance", {})), *libraries(judging),
        *right_and_wrong(found.get("verifier", {})), *against_itself(judging),
        *solutions(judging, again), *repeatability(found), *examples(found.get("examples", {})),
        *attempts(found.get("adversarial", {})), *calibration(found.get("calibration", {})),
        *silicon(found.get("silicon", {})), *throughput(found.get("throughput", {})),
        *model_runs(found.get("model_runs", {})),
    ]  # fmt: skip
    return "\n".join(parts)


def machine(judging: Found) -> list[str]:
    device = judging["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in device["libraries"].items())
    return [
        f"{device['date'][:10]}, {device['name']}, {device['sm_count']} SMs, driver {device['nvidia_smi'][0]}; "
        f"{versions}.",
        "",
    ]


def conformance(found: Found) -> list[str]:
    cases = found.get("conformance", {})
    right = sum(case["problem"] == "" and case["then"] == "" for case in cases.values())
    slowest = max(cases.items(), key=lambda case: case[1]["s"] + case[1]["then_s"])
    return [
        f"Conformance: {right} of {len(cases)} cases of the suite that the simulator passes too, each followed by the "
        f"plainest one. The longest, {slowest[0]!r}, took {slowest[1]['s']:.2f} s, and the next case "
        f"{slowest[1]['then_s']:.2f} s.",
        "",
    ] if cases else []


def libraries(judging: Found) -> list[str]:
    def rows() -> Iterable[Iterable[Any]]:
        for name, entry in judging["libraries"].items():
            for library in entry["timed"]:
                errors = judging["library_errors"][f"{name} {library['name']}"]
                outputs = [value for key, value in errors.items() if key != "seconds"]
                made = " ".join(f"{sum(seconds.values()):.2f}" for seconds in entry["making_s"])
                yield (
                    f"`{name}`", library["name"], library["version"], f"{max(o['worst_block'] for o in outputs):.2f}",
                    f"{max(o['max'] for o in outputs):.2f}", made, f"{1e3 * sum(errors['seconds'].values()):.1f}",
                )
            for library, reason in entry["absent"].items():
                yield f"`{name}`", library, f"not there: {reason.split(' (')[0]}", "", "", "", ""

    head = "| task | library | version | worst block | largest | s to make a base set | ms to compare |"
    return [
        "Libraries at full size: errors of the worst block (RMS, bound 1.5) and of the largest element (bound 3), and "
        "what the verifier's truth and comparison cost.", "", *table(head, rows()),
    ]  # fmt: skip


def right_and_wrong(found: Found) -> list[str]:
    def row(task: str, name: str, entry: Found) -> tuple[Any, ...]:
        outputs = entry["outputs"].values()
        ratios = (f"{max(output[unit] for output in outputs):.2f}" for unit in ("rms", "worst_rms_block", "max"))
        return f"`{task}`", name, "accepted" if entry["passed"] else "refused", *ratios

    rows = [
        row(section.removeprefix("verdicts "), name, entry)
        for section, entries in found.items() if section.startswith("verdicts ") for name, entry in entries.items()
    ]
    return [
        "Honest and dishonest work at full size, made with PyTorch and judged by the verifier, in units of an honest "
        "kernel's error (bounds 1.5, 1.5 and 3):", "",
        *table("| task | work | verdict | RMS | worst block | largest |", rows),
    ] if rows else []  # fmt: skip


def against_itself(judging: Found) -> list[str]:
    def row(name: str, found: Found) -> tuple[Any, ...]:
        ratios = found["ratios"]
        medians = sorted(ratio["median"] for ratio in ratios)
        widest = max(ratio["high"] - ratio["low"] for ratio in ratios)
        return (
            f"`{name}`", found["library"], found["blocks"], f"{medians[0]:.4f} to {medians[-1]:.4f}", f"{widest:.4f}",
            f"{found['covered']} of {len(ratios)}",
        )

    rows = [row(name, found) for name, found in judging["a_a"].items()]
    return ["A library against itself, in turns on fresh inputs, again and again:", "",
            *table("| task | library | blocks | time / time | widest interval | intervals that cover 1 |", rows)]


def solutions(judging: Found, again: Found) -> list[str]:
    def row(file: str, found: Found) -> tuple[Any, ...]:
        timing, core = found["timing"], found["core"]
        worst = max(output["worst_block_ratio"] for run in core for output in run.values())
        stages = found["stages_s"]
        full = [stages[f"{name} at full size"] for name in ("running", "counting", "timing")]
        return (
            f"`{file}`", found["outcome"], interval(timing["speedup"]), timing["baseline"], f"{timing['ms']:.4f}",
            f"{timing['tflops']:.0f}", f"{worst:.2f}", f"{found['carried']:.3f}", f"{found['other_math_share']:.4f}",
            timing["samples"], " ".join(f"{s:.2f}" for s in full),
            there(again[file]["timing"], timing["baseline"]) if file in again else "–",
        )

    def there(timing: Found, baseline: str) -> str:
        over = "" if timing["baseline"] == baseline else f" over {timing['baseline']}"
        return f"{interval(timing['speedup'])}{over}"

    rows = [row(file, found) for file, found in judging["solutions"].items()]
    head = "The bundled kernels; the last column is of another device of the same kind, over what was fastest there:"
    return [head, "", *table(
        "| kernel | outcome | speedup | over | ms | TFLOP/s | worst block | carried | other arithmetic | samples "
        "| s to run, count, time | speedup there |", rows)]  # fmt: skip


def repeatability(results: Found) -> list[str]:
    """Kernels judged several times in a row, on every device on which that was done, and as it was with one place."""
    rows: list[tuple[Any, ...]] = []
    for source in ("judging", "judging_again", "judging_one_place"):
        which = results[source]["machine"]["which"] if source in results else ""
        for name, found in results.get(source, {}).get("repeatability", {}).items():
            file, buffers = name.split(" ")
            medians = [speedup["median"] for speedup in found["speedups"]]
            rows.append((
                f"`{file}`", buffers, "one" if source == "judging_one_place" else "six", f"`{which}`", len(medians),
                f"{min(medians):.4f} – {max(medians):.4f}", f"{found['spread']:.2%}",
                f"{found['covered']} of {len(medians)}",
            ))  # fmt: skip
    head = "| kernel | buffers | places | device | times | speedup | spread | intervals that cover their middle |"
    return ["Judged again and again, with kept buffers or with new ones in new processes:", "", *table(head, rows)]


def examples(found: Found) -> list[str]:
    rows = [(f"`{file}`", f"`{f['outcome']}`", f["reason"], ", ".join(f["hazards"]) or "–")
            for file, f in found.get("examples", {}).items()]  # fmt: skip
    return ["The bundled examples on the GPU, and what the simulator found beside it:", "",
            *table("| example | outcome | reason | findings |", rows)] if rows else []  # fmt: skip


def attempts(found: Found) -> list[str]:
    rows = [(name, a["about"], f"`{a['outcome']}`", a["reason"]) for name, a in found.get("adversarial", {}).items()]
    return ["Attempts to fool or to break it (`tests/adversarial/device/`):", "",
            *table("| attempt | what it tries | outcome | reason |", rows)] if rows else []  # fmt: skip


def calibration(found: Found) -> list[str]:
    compared = [
        (f"`{file}`", entry["instructions"], entry["warp_instructions"], entry["ours"], len(entry["differing"]))
        for file, kernels in found.get("nsight", {}).items() for entry in kernels.values()
    ]
    gates = [
        (*name.split(" "), f"{entry['carried']:.4f}", f"{entry['other_math_share']:.4f}")
        for name, entry in found.get("library_gates", {}).items()
    ]
    parts: list[str] = []
    if compared:
        head = "| kernel of | instructions | Nsight's warp executions | ours | differing |"
        parts += ["Executed counts beside Nsight Compute's, per kernel; what differs are waits that spin:", "",
                  *table(head, compared)]  # fmt: skip
    if gates:
        parts += ["What libraries execute, by Nsight Compute's counts, as shares of the task's FLOPs:", "",
                  *table("| task | library | wgmma | other arithmetic |", gates)]  # fmt: skip
    return parts


def silicon(found: Found) -> list[str]:
    """Simulator and device on the same kernels."""
    kernels: Found = found.get("kernels", {})
    if not kernels:
        return []
    equal = sum(entry["executed_device"] == entry["executed_simulator"] for entry in kernels.values())
    outputs = [output for entry in kernels.values() for output in entry["errors"].values()]
    executed = sum(sum(entry["executed_device"].values()) for entry in kernels.values())
    return [
        f"Simulator and device on {len(kernels)} kernels (the bundled ones, by Triton, and of `tests/acceptance`; "
        f"[list](oracles.md#agreement-with-an-h200)): executed counts of products, bulk copies, "
        f"`ldmatrix` and `stmatrix` are equal for {equal} of them ({executed} instructions "
        f"in all); outputs differ by at most {max(output['between'] for output in outputs):.2f} of the bound on two "
        f"honest results, and {min(output['bits_equal'] for output in outputs):.1%} to "
        f"{max(output['bits_equal'] for output in outputs):.1%} of an output's elements are equal in every bit.",
        "",
    ]


def throughput(found: Found) -> list[str]:
    if not found:
        return []
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in found["outcomes"].items())
    return [
        f"Throughput: {found['candidates']} candidates ({outcomes}) in {found['wall_s']:.0f} s with {found['jobs']} "
        f"jobs on {found['cores']} cores: {found['verdicts_per_minute']:.0f} verdicts per minute; some candidate had "
        f"the GPU for {found['gpu_held_share']:.0%} of the time. Seconds by stage, over all candidates, waiting "
        "included:",
        "",
        *table("| stage | s |", found["stage_seconds"].items()),
    ]


def model_runs(found: Found) -> list[str]:
    def turn(entry: Found) -> str:
        said = entry["outcome"] or entry["reply"]
        return f"{said} {entry['speedup']['median']:.3f}" if entry["speedup"] else said

    rows = [
        (name, one["trajectory"], ", ".join(map(turn, one["turns"])), one["stop"],
         interval(one["remeasured"]) if one["remeasured"] else "–", f"{one['seconds']:.0f}")
        for name, trajectories in found.get("runs", {}).items() for one in trajectories
    ]  # fmt: skip
    return [
        "Runs of recorded replies, judged on the device; the best kernel of a trajectory was measured once more:", "",
        *table("| run | trajectory | turns | ended by | measured again | s |", rows),
    ] if rows else []  # fmt: skip


def read(results: Path) -> Found:
    """The results files that there are, by name."""
    places = {name: results / f"{name}.json" for name in FILES}
    return {name: json.loads(place.read_text()) for name, place in places.items() if place.exists()}


def main(results: Path, page: Path) -> None:
    found = read(results)
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{numbers(found)}{END}{after}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
