"""Replays launch plans on the machine and turns what it saw into an `Observation`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from ptxbench.core import (
    Artifact,
    Block,
    Cancelled,
    CopyNode,
    DeviceError,
    Fault,
    FaultKind,
    Hazard,
    KernelNode,
    LaunchPlan,
    MemsetNode,
    Node,
    Observation,
    RunOptions,
    SourceFrame,
    UnsupportedError,
    plan_problem,
)
from ptxbench.simulator.counts import site_counts
from ptxbench.simulator.launches import check_launch, resident_clusters
from ptxbench.simulator.library import MachineLaunch, MachineOptions, MachineRun
from ptxbench.simulator.lower.image import LoweredKernel
from ptxbench.simulator.memory import DeviceMemory
from ptxbench.simulator.program import Program

T = TypeVar("T")

_POLL_S: Final = 0.05
_UNIT_BYTES: Final = 512
"""Bytes of a copy or fill that are one unit of work, as in the machine (machine.hpp)."""
_CANCELLED: Final = "cancelled"
_UNSUPPORTED: Final = "unsupported"


def execute(
    program: Program,
    artifact: Artifact,
    plan: LaunchPlan,
    buffers: Mapping[str, memoryview],
    options: RunOptions,
    stop: threading.Event | None = None,
) -> Observation:
    """Replays ``plan`` once on the CPU.

    ``buffers`` holds writable bytes for every input, output and workspace buffer of the plan, of its exact size;
    outputs are written there. A candidate's misbehaviour is the observation's fault. Raises `DeviceError` for a plan
    that does not fit the program, and `UnsupportedError` for what the simulator lacks. An interrupt of the calling
    thread ends the run within a fraction of a second, and so does ``stop`` once it is set, with `Cancelled`.
    """
    started = time.monotonic()
    problem = plan_problem(plan, [variable.name for variable in program.image.globals])
    if problem:
        raise DeviceError(f"the plan cannot be replayed: {problem}")
    memory = DeviceMemory(plan, program.image, buffers)
    moved = sum(_moved_bytes(node) for node in plan.nodes) // _UNIT_BYTES
    run = MachineRun(program.module, _machine_options(program, options, options.step_limit - moved), stop)
    try:
        memory.map_into(run, program.image)
        if moved > options.step_limit:
            fault = _too_much_moved(options.step_limit)
        else:
            fault = _replay(program, artifact, plan, memory, run, options.time_limit_s)
        report = run.report()
    finally:
        run.close()
    return Observation(
        device="simulator",
        schedule=options.schedule,
        fault=fault,
        hazards=_hazards(program, report["hazards"]),
        counts=site_counts(program, report["sites"]),
        warp_instructions=report["steps"],
        work=report["work"] + moved,
        memory_bytes=report["memory"],
        seconds=time.monotonic() - started,
    )


def _machine_options(program: Program, options: RunOptions, step_limit: int) -> MachineOptions:
    schedule, sheet = options.schedule, program.target.sheet
    return MachineOptions(
        late_copies=schedule.copies == "late",
        late_products=schedule.products == "late",
        reverse=schedule.reverse,
        races=options.races,
        perturbation=options.perturbation,
        seed=schedule.seed,
        step_limit=max(step_limit, 0),
        time_limit_s=options.time_limit_s,
        sm_count=sheet.sm_count,
        tensor_memory_columns=sheet.tensor_memory_columns,
    )


def _moved_bytes(node: Node) -> int:
    if isinstance(node, MemsetNode):
        return node.width * node.count
    return node.bytes if isinstance(node, CopyNode) else 0


def _too_much_moved(step_limit: int) -> Fault:
    return Fault(
        kind=FaultKind.TIME_LIMIT,
        message=f"Step limit: the launcher's copies and fills alone are worth over {step_limit} warp instructions.",
        advice="Copy and fill less.",
    )


def _replay(
    program: Program, artifact: Artifact, plan: LaunchPlan, memory: DeviceMemory, run: MachineRun, time_limit_s: float
) -> Fault | None:
    deadline = time.monotonic() + time_limit_s
    # Nodes depend on earlier ones only, so their order in the plan is a valid one.
    for node in plan.nodes:
        if time.monotonic() > deadline:  # the machine watches its kernels, but not copies and fills between them
            return Fault(
                kind=FaultKind.TIME_LIMIT,
                message=f"Time limit: the run exceeded {time_limit_s:g} s.",
                advice="Launch less, and copy and fill less between the launches.",
            )
        if isinstance(node, KernelNode):
            fault = _launch(program, artifact, node, memory, run)
        else:
            fault = _move(node, memory)
        if fault is not None:
            return fault
    return None


def _launch(
    program: Program, artifact: Artifact, node: KernelNode, memory: DeviceMemory, run: MachineRun
) -> Fault | None:
    index = program.kernel_index(node.kernel)
    if index is None or all(facts.name != node.kernel for facts in artifact.kernels):
        raise DeviceError(f"the plan launches {node.kernel}, which the program was not loaded with")
    facts, sheet = artifact.kernel(node.kernel), program.target.sheet
    impossible = check_launch(node, facts, sheet)
    if impossible is not None:
        return impossible
    launch = MachineLaunch(
        kernel=index,
        grid=node.grid,
        block=node.block,
        cluster=node.cluster,
        dynamic_shared=node.dynamic_shared,
        registers=facts.registers if _moves_registers(program.kernel(index), artifact) else 0,
        resident_clusters=resident_clusters(node, facts, sheet),
        cooperative=node.cooperative,
        explicit_cluster=node.clustered or facts.required_cluster is not None,
    )
    parameters = memory.fill(node.parameters, max(program.kernel(index).param_bytes, 1))
    found = _interruptible(lambda: run.launch(launch, parameters), run)
    return None if found is None else _fault(program, found)


def _moves_registers(kernel: LoweredKernel, artifact: Artifact) -> bool:
    """Whether ptxas kept ``setmaxnreg``: it drops the instruction where it cannot know the register count."""
    if all(instruction.op != "setmaxnreg" for instruction in kernel.code):
        return False
    return any(
        instruction.opcode.startswith("USETMAXREG")
        for sass in artifact.sass
        if sass.kernel == kernel.name
        for instruction in sass.instructions
    )


def _move(node: MemsetNode | CopyNode, memory: DeviceMemory) -> Fault | None:
    # Constants are read-only to kernels, not to the launcher's own copies.
    if node.to.buffer in memory.inputs:
        return Fault(
            kind=FaultKind.STRAY_WRITE,
            message=f"A {node.op} of the launcher writes to {node.to.buffer}, which is an input.",
            advice="Write to outputs and workspace only; inputs stay as they are.",
        )
    if isinstance(node, MemsetNode):
        to = memory.slice(node.to, node.width * node.count)
        to[:] = (node.value & (2 ** (8 * node.width) - 1)).to_bytes(node.width, "little") * node.count
    elif isinstance(node.source, Block):
        memory.slice(node.to, node.bytes)[:] = memory.fill(node.source)[: node.bytes]
    else:
        memory.slice(node.to, node.bytes)[:] = bytes(memory.slice(node.source, node.bytes))
    return None


def _interruptible(call: Callable[[], T], run: MachineRun) -> T:
    """Runs ``call`` in a thread, so that an interrupt of this one, or ``run.stop``, cancels it at once."""
    results: list[T] = []
    errors: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=work, name="simulator").start()
    try:
        # Not Thread.join: in Python 3.11 an interrupt of it marks a running thread as ended.
        while not done.wait(_POLL_S):
            if run.stop.is_set():
                run.cancel()
    except BaseException:
        run.cancel()
        done.wait()
        raise
    if errors:
        raise errors[0]
    return results[0]


def _frames(program: Program, kernel: int, position: int) -> tuple[SourceFrame, ...]:
    code = program.kernel(kernel).code
    return code[position].frames if 0 <= position < len(code) else ()


def _own(frames: tuple[SourceFrame, ...]) -> tuple[SourceFrame, ...]:
    """The frames in the candidate's own file; where there is none, the outermost frame."""
    return tuple(frame for frame in frames if frame[0].endswith(".cu")) or frames[-1:]


def _source_line(frames: tuple[SourceFrame, ...]) -> int:
    """The innermost line in the candidate's own file."""
    own = _own(frames)
    return own[0][1] if own else 0


def _lines(frames: tuple[SourceFrame, ...]) -> str:
    """The chain of the candidate's own lines, innermost first: ``line 29, inlined at line 65``."""
    return ", inlined at ".join(f"line {line}" for _, line in _own(frames))


def _place(program: Program, kernel: int, position: int) -> dict[str, Any]:
    if kernel < 0:
        return {}
    code = program.kernel(kernel).code
    place: dict[str, Any] = {"kernel": program.kernel(kernel).name}
    if 0 <= position < len(code):
        place["ptx_line"] = code[position].ptx_line
        place["source_line"] = _source_line(code[position].frames)
    return place


def _fault(program: Program, found: dict[str, Any]) -> Fault:
    """The machine's fault, with source lines. A deadlock lists who waits; its message names the first of them."""
    if found["kind"] == _CANCELLED:
        raise Cancelled("the simulated run was called off")
    kernel, position = int(found["kernel"]), int(found["position"])
    if found["kind"] == _UNSUPPORTED:
        raise UnsupportedError(f"{_refused_at(program, kernel, position)}: {found['message']}")
    message = str(found["message"])
    if found["detail"]:
        at, who, what, plural = found["detail"][0]
        line = _source_line(_frames(program, kernel, at))
        message += f"; {who} {_waits(plural)}{f' at line {line}' if line else ''} {what}"
    elif found["who"]:
        message += f" ({_opcode(program, kernel, position)}, {found['who']})"
    return Fault(
        kind=FaultKind(found["kind"]),
        message=f"{message}.",
        advice=found["advice"],
        detail=tuple(_waiting(program, kernel, *item) for item in found["detail"]),
        **_place(program, kernel, position),
    )


def _refused_at(program: Program, kernel: int, position: int) -> str:
    """What the machine cannot run: an instruction as the lowering names it, or a whole kernel."""
    lowered = program.kernel(kernel)
    if position < 0:
        return f"kernel {lowered.name}"
    return f"{lowered.code[position].text} at PTX line {lowered.code[position].ptx_line}"


def _waiting(program: Program, kernel: int, position: int, who: str, what: str, plural: bool) -> str:
    """One line of a deadlock report."""
    instruction = program.kernel(kernel).code[position]
    lines = _lines(instruction.frames) or "line unknown"
    return f"{lines} (PTX line {instruction.ptx_line}): {who} {_waits(plural)} {what} [{instruction.text}]"


def _waits(plural: bool) -> str:
    return "wait" if plural else "waits"


def _opcode(program: Program, kernel: int, position: int) -> str:
    """The opcode at a position, with its line in the candidate's file if there is one."""
    line = _source_line(_frames(program, kernel, position))
    return program.kernel(kernel).code[position].text + (f" at line {line}" if line else "")


def _hazards(program: Program, items: list[dict[str, Any]]) -> tuple[Hazard, ...]:
    """One hazard for each kind and source line: an unrolled loop has many sites for one line."""
    merged: dict[tuple[str, str, int, str], Hazard] = {}
    for item in items:
        hazard = _hazard(program, item)
        opcode = hazard.message.partition(" ")[0]
        key = (hazard.kind, hazard.kernel, hazard.source_line or hazard.ptx_line, opcode)
        known = merged.get(key)
        merged[key] = (
            known.model_copy(update={"occurrences": known.occurrences + hazard.occurrences}) if known else hazard
        )
    return tuple(merged.values())


def _hazard(program: Program, found: dict[str, Any]) -> Hazard:
    kernel, position = int(found["kernel"]), int(found["position"])
    opcode = program.kernel(kernel).code[position].text
    return Hazard(
        severity="race" if found["race"] else "rule",
        kind=found["kind"],
        message=f"{opcode} {found['detail']}.",
        advice=found["advice"],
        occurrences=found["occurrences"],
        **_place(program, kernel, position),
    )
