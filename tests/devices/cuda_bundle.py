"""Makes the bundle for the early check on a GPU host: ``python tests/devices/cuda_bundle.py FOLDER [SOURCE...]``.

Compiles and records the known-good GEMMs and the probes beside this file, and simulates them at the small sizes. A GPU
host needs neither compiler nor sandbox then. Further sources of GEMMs are replayed and timed like the known-good ones.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np

import ptxbench
from ptxbench.build import compile_candidate, find_toolchain
from ptxbench.core import (
    Artifact,
    Candidate,
    DeviceError,
    LaunchPlan,
    Mode,
    Observation,
    Rejection,
    RunOptions,
    Target,
    Task,
)
from ptxbench.devices import SimulatorDevice
from ptxbench.devices.cuda import Case, write_bundle
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.solutions import include_dir
from ptxbench.tasks import get_task

TASK = "gemm_n7168_k5120"
SIZES = {
    "small": {"M": 256, "N": 256, "K": 1536},
    "large": {"M": 1024, "N": 1024, "K": 1024},
    "core": {"M": 8192, "N": 7168, "K": 5120},
}
ALSO_SIMULATED = ("05_cluster_multicast-large",)
CHAIN_SIZES = {"M": 128, "N": 128, "K": 1024}
FAULTS = ("spin", "illegal_address", "misaligned_address", "trap", "stray_write", "changed_input")
PROBES = Path(__file__).with_name("cuda_probes")
SOLUTIONS = Path(ptxbench.__file__).parent / "solutions" / "gemm" / "sm_90a"


def inputs_of(task: Task, sizes: dict[str, int], seed: int) -> dict[str, bytes]:
    """Standard normal inputs, rounded to bf16."""
    rng = np.random.default_rng(seed)
    return {
        argument.name: rng.standard_normal(argument.dims(sizes), np.float32).astype(ml_dtypes.bfloat16).tobytes()
        for argument in task.inputs
    }


def simulated(name: str, artifact: Artifact, plan: LaunchPlan, task: Task) -> Case:
    """The case with inputs, and with the simulator's counts and outputs where it can run it."""
    inputs = inputs_of(task, plan.sizes, seed=1)
    buffers = {b.name: bytearray(b.bytes) for b in plan.buffers if b.role in ("output", "workspace")}
    buffers |= {key: bytearray(content) for key, content in inputs.items()}
    views = {key: memoryview(content) for key, content in buffers.items()}
    observation: Observation | None = None
    try:
        observation = SimulatorDevice().run(artifact, plan, views, RunOptions(mode=Mode.COUNT))
    except DeviceError as error:
        print(f"{name}: not simulated: {error}")
    if observation is not None and observation.fault is not None:
        print(f"{name}: the simulator saw a fault: {observation.fault.message}")
        observation = None
    outputs = {argument.name: bytes(buffers[argument.name]) for argument in task.outputs} if observation else {}
    return Case(name=name, artifact=artifact, plan=plan, observation=observation, inputs=inputs, outputs=outputs)


def built(path: Path, task: Task, plans: dict[str, dict[str, int]]) -> tuple[Artifact, dict[str, LaunchPlan]]:
    """The artifact of a source and its plans by name."""
    source = path.read_text()
    digest = hashlib.sha256(source.encode()).hexdigest()
    candidate = Candidate(task=task.name, target=Target.SM_90A, source=source, digest=digest, origin=path.name)
    toolchain, cache = find_toolchain(), Cache()
    artifact = compile_candidate(candidate, task, toolchain=toolchain, cache=cache, include=include_dir())
    if isinstance(artifact, Rejection):
        raise SystemExit(f"{path.name} was refused: {artifact}")
    recorder = find_recorder(toolchain, cache)
    recorded: dict[str, LaunchPlan] = {}
    for name, sizes in plans.items():
        plan = recorder.record(artifact, task, sizes)
        if isinstance(plan, Rejection):
            raise SystemExit(f"{path.name} was refused at {sizes}: {plan}")
        recorded[name] = plan
    return artifact, recorded


def cases_of_solution(path: Path, task: Task) -> Iterator[Case]:
    started = time.perf_counter()
    artifact, plans = built(path, task, SIZES)
    for tier, plan in plans.items():
        name = f"{path.stem}-{tier}"
        plain = Case(name=name, artifact=artifact, plan=plan)
        yield simulated(name, artifact, plan, task) if tier == "small" or name in ALSO_SIMULATED else plain
    print(f"{path.name}: {time.perf_counter() - started:.1f} s")


def cases_of_probes(task: Task) -> Iterator[Case]:
    artifact, plans = built(PROBES / "chain.cu", task, {"chain-small": CHAIN_SIZES})
    yield simulated("chain-small", artifact, plans["chain-small"], task)
    sizes = {f"fault-{name}": {"M": 128 * number, "N": 128, "K": 64} for number, name in enumerate(FAULTS, start=1)}
    artifact, plans = built(PROBES / "faults.cu", task, sizes)
    for name, plan in plans.items():
        yield Case(name=name, artifact=artifact, plan=plan)


def main(folder: Path, others: list[Path]) -> None:
    task = get_task(TASK)
    cases = [case for path in (*sorted(SOLUTIONS.glob("*.cu")), *others) for case in cases_of_solution(path, task)]
    cases += cases_of_probes(task)
    write_bundle(folder, {case.name: case for case in cases})
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {len(cases)} cases, {size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(other) for other in sys.argv[2:]])
