"""What every device must do: small plans with a known answer, to be run on any implementation of `core.Device`.

The launchers are in `conformance.cu`, one for each case. Compile it for `TASK` with the header set on the include path,
record each case's launcher at `SIZES`, and give artifact and plan to `run_case`; after every case, run `BASE`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ptxbench.core import (
    FAMILIES,
    Argument,
    Artifact,
    Device,
    FaultKind,
    KernelNode,
    LaunchPlan,
    Mode,
    Observation,
    RunOptions,
    Task,
    Workload,
)

SIZES = {"N": 512}
N = SIZES["N"]

TASK = Task(
    name="device_conformance",
    title="small plans with a known answer",
    operation="conformance",
    sizes=("N",),
    size_rules={"N": 512},
    arguments=(
        Argument(name="A", role="input", dtype="f32", shape=("N",)),
        Argument(name="C", role="output", dtype="f32", shape=("N",)),
    ),
    workloads=(Workload(tier="small", sizes=SIZES),),
    matrix_dtype="f32",
    distributions=("normal",),
    baselines=(),
)

Numbers = NDArray[np.float32]
UNWRITTEN = np.float32(-1)
MARK = 0x600DF00D
ENOUGH = RunOptions(time_limit_s=20.0)


def source() -> str:
    """The text of `conformance.cu`."""
    return Path(__file__).with_suffix(".cu").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Seen:
    """One run: the input as it was given, the output afterwards, and what the device says."""

    given: Numbers
    output: Numbers
    observation: Observation


Check = Callable[[Sequence[Seen]], str]
"""Says what is wrong with the runs of a case; empty if nothing is."""


@dataclass(frozen=True)
class Case:
    """One thing that a device must do. ``edit`` changes the recorded plan into one that no launcher can ask for."""

    name: str
    launcher: str
    check: Check
    options: RunOptions = ENOUGH
    runs: int = 1
    edit: Callable[[LaunchPlan], LaunchPlan] | None = None


def run_case(device: Device, case: Case, artifact: Artifact, plan: LaunchPlan) -> str:
    """Runs ``case`` on fresh buffers as often as it says; what is wrong, or an empty text."""
    plan = case.edit(plan) if case.edit else plan
    return case.check([run_once(device, artifact, plan, case.options, number) for number in range(case.runs)])


def run_once(device: Device, artifact: Artifact, plan: LaunchPlan, options: RunOptions, number: int = 0) -> Seen:
    """One run on an input of whole numbers, an unwritten output, and a workspace of noise that ``number`` draws."""
    given = np.arange(1, N + 1, dtype=np.float32)
    a, c = given.copy(), np.full(N, UNWRITTEN)
    noise = np.random.default_rng(number)
    buffers = {"A": _bytes(a), "C": _bytes(c)}
    for buffer in plan.buffers:
        if buffer.role == "workspace":
            buffers[buffer.name] = memoryview(bytearray(noise.bytes(buffer.bytes)))
    return Seen(given, c, device.run(artifact, plan, buffers, options))


def _bytes(numbers: Numbers) -> memoryview:
    return memoryview(numbers.view(np.uint8).data)


def gives(answer: Callable[[Numbers], Numbers]) -> Check:
    """Every run ends without a fault, leaves the input alone, and its output is ``answer`` of the input."""

    def check(seen: Sequence[Seen]) -> str:
        for run in seen:
            if problem := _clean(run.observation):
                return problem
            wrong = np.flatnonzero(run.output != answer(run.given))
            if wrong.size:
                return f"{wrong.size} of {N} outputs are wrong, first at {wrong[0]}: {run.output[wrong[0]]}"
        return ""

    return check


def faults(*kinds: FaultKind) -> Check:
    """Every run ends with a fault of one of the kinds."""

    def check(seen: Sequence[Seen]) -> str:
        for run in seen:
            fault = run.observation.fault
            if fault is None or fault.kind not in kinds:
                return f"fault is {fault.kind if fault else None}, should be {' or '.join(kinds)}"
            if not fault.message:
                return "the fault has no message"
        return ""

    return check


def _clean(observation: Observation) -> str:
    if observation.fault:
        return f"fault {observation.fault.kind}: {observation.fault.message}"
    if observation.changed_inputs:
        return f"inputs changed: {observation.changed_inputs}"
    return f"hazard: {observation.hazards[0].message}" if observation.hazards else ""


def _input_write_is_noticed(seen: Sequence[Seen]) -> str:
    (run,) = seen
    fault = run.observation.fault
    noticed = run.observation.changed_inputs == ("A",) or (fault and fault.kind is FaultKind.STRAY_WRITE)
    return "" if noticed else f"not noticed: {run.observation.changed_inputs}, {fault}"


def _memory_is_poisoned(seen: Sequence[Seen]) -> str:
    """What a call leaves in memory is not there in the next, and fresh memory is no page of zeros."""
    for run in seen:
        fault = run.observation.fault
        words = run.output.view(np.uint32)
        if fault:
            return f"fault {fault.kind}: {fault.message}"
        if (words == MARK).any():
            return "memory of an earlier run shows up in a later one"
        if not words.any():
            return "memory holds zeros, which hides what is not initialised"
    return ""


def _counts_are_exact(seen: Sequence[Seen]) -> str:
    """Ten multiply-adds by every warp and lane, three by every warp and every other lane."""
    (run,) = seen
    family = next(family for family in FAMILIES if family.name == "f32_fma")
    sites = [s for s in run.observation.counts if family.matches_ptx(s.opcode) or family.matches_sass(s.opcode)]
    executed, threads = sum(s.executed for s in sites), sum(s.threads for s in sites)
    expected = 13 * N // 32, 10 * N + 3 * N // 2
    return "" if (executed, threads) == expected else f"counted {(executed, threads)}, should be {expected}"


def _with_block(threads: int) -> Callable[[LaunchPlan], LaunchPlan]:
    def edit(plan: LaunchPlan) -> LaunchPlan:
        launches = (node for node in plan.nodes if isinstance(node, KernelNode))
        nodes = tuple(node.model_copy(update={"block": (threads, 1, 1)}) for node in launches)
        return plan.model_copy(update={"nodes": nodes})

    return edit


def _memset_kernel_copy(given: Numbers) -> Numbers:
    halves = np.concatenate([given[: N // 2], given[: N // 2]])
    halves[0] = 0
    return halves


def _counter(given: Numbers) -> Numbers:
    answer = np.zeros_like(given)
    answer[:2] = 5, 6
    return answer


def _looked_up(given: Numbers) -> Numbers:
    return np.tile(np.array([1, 2, 4, 8], given.dtype), N // 4)


def _exchanged(given: Numbers) -> Numbers:
    return given.reshape(-1, 2, 64)[:, ::-1].reshape(-1)


BASE = Case("outputs are written as told", "launch", gives(lambda a: 2 * a))
"""The plainest case: it must work after every other one."""

_SHORT = RunOptions(time_limit_s=0.5)
_COUNT = RunOptions(mode=Mode.COUNT, time_limit_s=20.0)

CASES: tuple[Case, ...] = (
    BASE,
    Case("pointers inside a struct", "launch_pointers_in_a_struct", gives(
        lambda a: np.concatenate([a[: N // 2] + a[N // 2 :], np.full(N // 2, UNWRITTEN)]))),
    Case("memset, kernel and copy in order", "launch_memset_kernel_copy", gives(_memset_kernel_copy)),
    Case("a kernel after the one it needs", "launch_kernel_after_kernel", gives(lambda a: 4 * a)),
    Case("streams that fork and join", "launch_fork_and_join", gives(lambda a: 4 * a)),
    Case("variables start anew in every run", "launch_counter", gives(_counter), runs=2),
    Case("constants filled by the host", "launch_constant", gives(_looked_up)),
    Case("workspace is the caller's", "launch_workspace_content", _memory_is_poisoned, runs=2),
    Case("allocations are poisoned", "launch_allocation_content", _memory_is_poisoned, runs=2),
    Case("a written input is noticed", "launch_input_written", _input_write_is_noticed),
    Case("a write past an output", "launch_past_the_output", faults(FaultKind.STRAY_WRITE)),
    Case("a wild address", "launch_wild_address", faults(FaultKind.ILLEGAL_ADDRESS)),
    Case("a null read", "launch_null_read", faults(FaultKind.ILLEGAL_ADDRESS)),
    Case("a misaligned address", "launch_misaligned", faults(FaultKind.MISALIGNED_ADDRESS)),
    Case("a trap", "launch_trap", faults(FaultKind.TRAP)),
    Case("an endless loop", "launch_endless", faults(FaultKind.TIME_LIMIT, FaultKind.DEADLOCK), _SHORT),
    Case("an impossible launch", "launch", faults(FaultKind.IMPOSSIBLE_LAUNCH), edit=_with_block(2048)),
    Case("80 KiB of dynamic shared memory", "launch_dynamic_shared", gives(lambda a: a[::-1])),
    Case("clusters read each other's shared memory", "launch_cluster", gives(_exchanged)),
    Case("copies by tensor maps", "launch_tensor_maps", gives(lambda a: a)),
    Case("exact counts", "launch_counts", _counts_are_exact, _COUNT),
)  # fmt: skip
