"""The wide run: error ratios of honest kernels, on the simulator, and of emulated cheats, over many seeds.

``python tests/acceptance/study.py [--seeds N] [--out FILE] [--parts FOLDER]`` takes every distribution at the first
small workload of each task, and replays every kernel once on each problem under the plain schedule. A ratio is an error
over the earned yardstick: RMS (the worst of the whole output and its blocks) and largest. Ratios are kept in the folder
kernel by kernel, so that a run that was interrupted goes on where it was; remove it when the judge has changed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parent.parent / "judge"))

from emulated_attention import CAUSAL_CHEATS, CHEATS, backward, forward
from emulated_gemm import CHEATS as GEMM_CHEATS
from emulated_gemm import blas
from error_ratios import Kernel, Ratio, gemm_kernels, ratio
from honest_kernels import HonestKernel, honest_kernels, known_good

from ptxbench.build import find_toolchain
from ptxbench.core import Candidate, Rejection, RunOptions
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import LocalEvaluator, Trial, replay
from ptxbench.judge import MAX_FACTOR, RMS_FACTOR, measure
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.solutions import include_dir
from ptxbench.tasks import Problem, get_task, make_problem

EDGES = (0.5, 0.8, 0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1000.0)
"""Between the bins of the histograms; the first and the last bin are open."""


def problems_of(task_name: str, seeds: int) -> list[Problem]:
    """One problem per seed and distribution, at the task's first small workload."""
    task = get_task(task_name)
    workload = task.of_tier("small")[0]
    return [make_problem(task, workload, name, seed) for seed in range(seeds) for name in task.distributions]


def replayed(evaluator: LocalEvaluator, candidate: Candidate, problems: Sequence[Problem]) -> Iterator[Ratio]:
    """The ratios of every output on every problem. No refusal, fault or finding is expected."""
    task, workload = problems[0].task, problems[0].workload
    artifact = evaluator.compile(candidate)
    assert not isinstance(artifact, Rejection), artifact
    plans = evaluator.record(artifact, task, [workload])
    assert not isinstance(plans, Rejection), plans
    for of in problems:
        trial = Trial(0, workload, of.distribution, of.seed, RunOptions())
        seen = replay(evaluator.device, artifact, plans[0], trial, of)
        assert (seen.observation.fault, seen.observation.hazards) == (None, ()), candidate.origin
        for name, output in seen.outputs.items():
            yield ratio(candidate.origin, of, name, measure(of, name, output))


def emulated(kernels: dict[str, Kernel], honest: Kernel, problems: Sequence[Problem]) -> Iterator[Ratio]:
    """The ratios of the outputs that a cheat changes: those that are not bit for bit what the honest kernel gives."""
    for of in problems:
        with np.errstate(all="ignore"):
            right = honest(of)
            for name, kernel in kernels.items():
                for output, tensor in kernel(of).items():
                    if tensor.tobytes() != right[output].tobytes():
                        yield ratio(name, of, output, measure(of, output, tensor))


def cheats_of(task: str) -> tuple[dict[str, Kernel], Kernel]:
    """The cheats that can be tried on a task, and the honest kernel that they are made from."""
    if task.startswith("gemm"):
        return gemm_kernels(GEMM_CHEATS), gemm_kernels({"honest": blas})["honest"]
    direction = "fwd" if "fwd" in task else "bwd"
    causal = CAUSAL_CHEATS[direction] if task.endswith("causal") else {}
    return {**CHEATS[direction], **causal}, forward if direction == "fwd" else backward


def summarised(*runs: Sequence[Ratio]) -> list[dict[str, Any]]:
    """A row per kernel and output over all runs: how many problems, on how many accepted, and the ratios' range.

    ``kernel_tried`` and ``kernel_caught`` count problems over all outputs: one that is refused is enough.
    """
    groups: dict[tuple[str, str], list[Ratio]] = defaultdict(list)
    caught: dict[tuple[int, str, str, int], bool] = defaultdict(bool)
    for number, run in enumerate(runs):
        for r in run:
            groups[r.kernel, r.output].append(r)
            caught[number, r.kernel, r.distribution, r.seed] |= not r.ok
    rows: list[dict[str, Any]] = []
    for (kernel, output), group in groups.items():
        tried = [found for (_, name, *_), found in caught.items() if name == kernel]
        rows.append({
            "kernel": kernel, "output": output, "count": len(group), "accepted": sum(r.ok for r in group),
            "kernel_tried": len(tried), "kernel_caught": sum(tried),
            "rms": spread([r.rms for r in group]), "largest": spread([r.largest for r in group]),
        })
    return rows


def spread(values: Sequence[float]) -> dict[str, float | None]:
    low, middle, high = np.quantile(values, (0, 0.5, 1))
    found = {"lowest": low, "median": middle, "highest": high}
    return {name: float(f"{value:.4g}") if np.isfinite(value) else None for name, value in found.items()}


def histogram(values: Iterable[float]) -> list[int]:
    bins = np.searchsorted(EDGES, np.nan_to_num(list(values), nan=np.inf), side="right")
    return np.bincount(bins, minlength=len(EDGES) + 1).tolist()


def kept(parts: Path | None, name: str, make: Callable[[], Iterable[Ratio]]) -> list[Ratio]:
    """The ratios that ``make`` yields, from their file in ``parts`` if an earlier run has made them."""
    if parts is None:
        return list(make())
    file = parts / (re.sub(r"\W+", "-", name) + ".json")
    if file.exists():
        return [Ratio(*row) for row in json.loads(file.read_text())]
    begin = time.perf_counter()
    ratios = list(make())
    print(f"{name}: {len(ratios)} outputs, {time.perf_counter() - begin:.1f} s", flush=True)
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(ratios))
    fresh.replace(file)
    return ratios


def study(
    evaluator: LocalEvaluator, kernels: Sequence[HonestKernel], seeds: int, parts: Path | None = None
) -> dict[str, Any]:
    """All of it, by operation: causal and other tasks together."""
    styles = {kernel.name: kernel.style for kernel in kernels}
    candidates = [kernel.candidate() for kernel in kernels] + known_good()
    found: dict[str, Any] = {"honest": [], "cheats": [], "edges": EDGES, "histograms": {}}
    for operation in ("gemm", "attention_forward", "attention_backward"):
        own: list[Ratio] = []
        others: list[list[Ratio]] = []
        for task in sorted({c.task for c in candidates if get_task(c.task).operation == operation}):
            problems = problems_of(task, seeds)
            for candidate in (c for c in candidates if c.task == task):
                own += (ratios := kept(parts, candidate.origin, partial(replayed, evaluator, candidate, problems)))
                what = {"operation": operation, "target": candidate.target.value}
                what |= {"style": styles.get(candidate.origin, "a known-good kernel of the package")}
                found["honest"] += [what | row for row in summarised(ratios)]
            others.append(kept(parts, f"cheats {task}", partial(emulated, *cheats_of(task), problems)))
        found["cheats"] += [{"operation": operation} | row for row in summarised(*others)]
        for output in dict.fromkeys(r.output for r in own):
            found["histograms"][f"{operation} {output}"] = {
                "honest": histogram(r.rms for r in own if r.output == output),
                "cheats": histogram(r.rms for run in others for r in run if r.output == output),
            }
    return found


def local_evaluator(cache: Cache) -> LocalEvaluator:
    device, toolchain = SimulatorDevice(), find_toolchain()
    device.prepare()
    return LocalEvaluator(device, toolchain, find_recorder(toolchain, cache), cache, include_dir(), threads=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--parts", type=Path)
    arguments = parser.parse_args()
    if arguments.parts:
        arguments.parts = arguments.parts / f"seeds-{arguments.seeds}"
        arguments.parts.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(Path(os.environ.get("PTXBENCH_CACHE", folder)))
        found = study(local_evaluator(cache), honest_kernels(), arguments.seeds, arguments.parts)
    report = {
        "command": f"python tests/acceptance/study.py --seeds {arguments.seeds}",
        "seeds": arguments.seeds,
        "bounds": {"rms": RMS_FACTOR, "largest": MAX_FACTOR},
        **found,
    }
    text = json.dumps(report, indent=1) + "\n"
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text)


if __name__ == "__main__":
    main()
