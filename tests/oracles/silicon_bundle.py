"""Makes the bundle for comparing simulator and GPU: ``python tests/oracles/silicon_bundle.py FOLDER``.

Kernels for sm_90a: a probe of named barriers, those that Triton generates, the package's known-good ones, and the
honest kernels of ``tests/acceptance``. They are compiled and simulated here; a GPU host needs neither compiler nor
Triton then, and ``test_oracles_silicon_gpu.py`` runs them there.
"""

from __future__ import annotations

import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from cases_attention import BACKWARD, FORWARD, backward, forward, forward_through_pointers
from cases_matmul import (
    DESCRIPTORS,
    MORE_DESCRIPTORS,
    MORE_POINTERS,
    POINTERS,
    through_descriptors,
    through_pointers,
)
from oracles_barrier import arrived_twice
from oracles_expected import Expected, Oracle, of_problem
from oracles_run import Array, assembled
from silicon_compare import compared
from silicon_store import Output, SiliconCase, write_case

from ptxbench.build import COMPILE_LIMITS, Toolchain, find_toolchain
from ptxbench.build.sass import parse_sass
from ptxbench.core import (
    Artifact,
    Candidate,
    KernelSass,
    LaunchPlan,
    Mode,
    Observation,
    Rejection,
    RunOptions,
    Target,
    make_candidate,
)
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import LocalEvaluator
from ptxbench.evaluate.replay import prepared
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.solutions import include_dir, solutions
from ptxbench.tasks import get_task, make_problem

sys.path.append(str(Path(__file__).parent.parent / "acceptance"))

from honest_kernels import honest_kernels

TARGET = Target.SM_90A
SEED = 7
COUNTED = RunOptions(mode=Mode.COUNT)


def generated() -> Iterator[tuple[str, Callable[[], Oracle]]]:
    """The probe and Triton's kernels, by name."""
    yield "barrier-arrived-twice", arrived_twice
    for name, case in {**POINTERS, **MORE_POINTERS}.items():
        if case.tensor_cores:
            yield f"triton-pointers-{name}", partial(through_pointers, case, TARGET)
    for name, described in {**DESCRIPTORS, **MORE_DESCRIPTORS}.items():
        yield f"triton-descriptors-{name}", partial(through_descriptors, described, TARGET)
    for causal in (False, True):
        suffix = "-causal" if causal else ""
        for name, case in FORWARD.items():
            yield f"triton-forward-{name}{suffix}", partial(forward, case, TARGET, causal=causal)
        pointers = partial(forward_through_pointers, FORWARD["d64"], TARGET, causal=causal)
        yield f"triton-forward-pointers{suffix}", pointers
        for name, case in BACKWARD.items():
            yield f"triton-backward-{name}{suffix}", partial(backward, case, TARGET, causal=causal)


def of_oracle(oracle: Oracle, toolchain: Toolchain) -> SiliconCase:
    """The case of a generated kernel, assembled by the judge's own ptxas."""
    text = re.sub(r"^\.version .*", ".version 9.0", oracle.launch.kernel.ptx, count=1, flags=re.MULTILINE)
    cubin = assembled(text, TARGET)
    launch = replace(oracle.launch, kernel=replace(oracle.launch.kernel, ptx=text, cubin=cubin))
    artifact, plan = launch.plan()
    artifact = artifact.model_copy(update={"sass": disassembled(cubin, toolchain)})
    buffers = {name: array.copy() for name, array in launch.buffers.items()}
    views = {name: array.reshape(-1).view(np.uint8).data for name, array in buffers.items()}
    seen = clean(SimulatorDevice().run(artifact, plan, views, COUNTED))
    inputs = {name: array.tobytes() for name, array in launch.buffers.items() if name.startswith("in_")}
    return SiliconCase(artifact, plan, seen, inputs, outputs_of(buffers, oracle.expected))


def disassembled(cubin: bytes, toolchain: Toolchain) -> tuple[KernelSass, ...]:
    """The machine code of a cubin, without positions."""
    name = "kernel.cubin"
    listed = toolchain.sandbox.run(
        toolchain.nvdisasm(name), read_only=toolchain.mounts(), inputs={name: cubin}, limits=COMPILE_LIMITS
    )
    assert listed.returncode == 0, listed.stderr.decode()
    return parse_sass(listed.stdout.decode(), str)


def written() -> Iterator[tuple[str, Candidate]]:
    """The known-good kernels and the honest ones of the acceptance tests, by name."""
    for row in solutions(target=TARGET):
        name = "solution-" + row.file.removesuffix(".cu").replace(f"/{TARGET.value}/", "-")
        yield name, make_candidate(row.source(), task=row.task, target=row.target, origin=row.file)
    for honest in honest_kernels():
        if honest.target is TARGET:
            yield honest.name, honest.candidate()


def of_candidate(candidate: Candidate, evaluator: LocalEvaluator) -> SiliconCase:
    """The case of a kernel at the first small sizes of its task."""
    task = get_task(candidate.task)
    workload = task.of_tier("small")[0]
    artifact = evaluator.compile(candidate)
    assert isinstance(artifact, Artifact), artifact
    plans = evaluator.record(artifact, task, [workload])
    assert not isinstance(plans, Rejection), plans
    plan: LaunchPlan = plans[0]
    problem = make_problem(task, workload, "normal", SEED)
    outputs, buffers = prepared(plan, problem)
    seen = clean(evaluator.device.run(artifact, plan, buffers, COUNTED))
    expected = {name: of_problem(problem, name, array) for name, array in outputs.items()}
    inputs = {name: array.tobytes() for name, array in problem.inputs.items()}
    return SiliconCase(artifact, plan, seen, inputs, outputs_of(outputs, expected))


def clean(seen: Observation) -> Observation:
    """The observation of a run without fault or finding, its counts those that are compared."""
    assert seen.fault is None and not seen.hazards, (seen.fault, seen.hazards)
    counts = tuple(site.model_copy(update={"frames": ()}) for site in compared(seen.counts, sass=False))
    return seen.model_copy(update={"counts": counts})


def outputs_of(arrays: dict[str, Array], expected: dict[str, Expected]) -> dict[str, Output]:
    """The outputs with what is allowed of them; the simulator's own must be within that."""
    for name, wanted in expected.items():
        assert wanted.ratio(arrays[name]) <= 1, (name, wanted.ratio(arrays[name]))
    return {name: Output(arrays[name], wanted.truth, wanted.allowed) for name, wanted in expected.items()}


def main(folder: Path) -> None:
    """Writes all cases into ``folder``, in place of what it held."""
    shutil.rmtree(folder, ignore_errors=True)
    toolchain, cache = find_toolchain(), Cache()
    for name, make in generated():
        started = time.perf_counter()
        write_case(folder, name, of_oracle(make(), toolchain))
        print(f"{name}: {time.perf_counter() - started:.1f} s", flush=True)
    evaluator = LocalEvaluator(
        SimulatorDevice(), toolchain, find_recorder(toolchain, cache), cache, include_dir(), threads=1
    )
    for name, candidate in written():
        started = time.perf_counter()
        write_case(folder, name, of_candidate(candidate, evaluator))
        print(f"{name}: {time.perf_counter() - started:.1f} s", flush=True)
    files = [path for path in folder.rglob("*") if path.is_file()]
    cases, size = len(list(folder.glob("*/plan.json"))), sum(path.stat().st_size for path in files)
    print(f"{folder}: {cases} cases, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
