"""`ptxbench check`: a sanitizer for kernels, on the simulator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

import ptxbench
from ptxbench.build import compile_candidate
from ptxbench.check import (
    Adapted,
    Check,
    Checked,
    Contents,
    Finding,
    Report,
    adapt,
    check_plan,
    choose_kernel,
    find_launcher,
    parse_shapes,
    parse_sizes,
    parse_values,
    read_notes,
    read_ptx_launch,
    refused,
    report_of,
    sarif,
)
from ptxbench.cli.arguments import parse_target
from ptxbench.cli.console import emit
from ptxbench.cli.display import show
from ptxbench.cli.machine import err, ready_evaluator
from ptxbench.core import (
    Artifact,
    Candidate,
    Progress,
    Rejection,
    Schedule,
    Target,
    Task,
    UsageError,
    make_candidate,
    sizes_text,
)
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import SCHEDULES, LocalEvaluator, read_candidate
from ptxbench.report import stage_display
from ptxbench.simulator import load
from ptxbench.store import write_atomically
from ptxbench.tasks import get_task, make_problem

STEP_LIMIT = 500_000_000
TIME_LIMIT_S = 600.0
_COLOURS = {"error": "red", "race": "red", "rule": "yellow"}

Kernel = Annotated[Path, typer.Argument(help="A .cu file with a host launcher, or a .ptx file.", show_default=False)]
TargetName = Annotated[str, typer.Option("--target", help="sm_90a (Hopper) or sm_100a (Blackwell).")]
Launch = Annotated[Path | None, typer.Option("--launch", help="The TOML file of a .ptx file.", show_default=False)]
TaskName = Annotated[str, typer.Option("--task", help="Take signature, inputs and small sizes from this task.")]
Launcher = Annotated[str, typer.Option("--launcher", help="The host function that launches (default: launch).")]
Shapes = Annotated[str, typer.Option("--shapes", help="Shapes of the launcher's pointers: 'A[M,K] B[N,K] C[M,N]'.")]
Sizes = Annotated[str, typer.Option("--sizes", help="Values of the launcher's numbers: M=256,N=256,K=512.")]
Races = Annotated[bool, typer.Option("--races", help="Also infer races that no schedule shows (slower).")]
Seeds = Annotated[int, typer.Option("--seeds", min=0, max=1000, help="Further schedules, in shuffled order.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Sarif = Annotated[Path | None, typer.Option("--sarif", help="Also write SARIF 2.1.0 here.", show_default=False)]


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("check")(check_command)


def check_command(
    context: typer.Context,
    kernel: Kernel,
    target: TargetName = "",
    task: TaskName = "",
    launcher: Launcher = "",
    shapes: Shapes = "",
    sizes: Sizes = "",
    launch: Launch = None,
    races: Races = False,
    seeds: Seeds = 0,
    as_json: Json = False,
    sarif_file: Sarif = None,
) -> None:
    """Look for races, broken rules, deadlocks and faults in one kernel, without a GPU.

    Exit code 0: nothing found; 1: something found; 2: the check could not be made. Shapes and sizes may also stand in
    the source, as comments: // ptxbench check: shapes A[M,K] B[N,K] C[M,N]
    """
    started = time.monotonic()
    schedules = (*SCHEDULES, *(Schedule(copies="late", products="late", seed=seed) for seed in range(1, seeds + 1)))

    def checking(say: Progress) -> Check:
        return Check(SimulatorDevice(context.obj), schedules, races, STEP_LIMIT, TIME_LIMIT_S, say)

    if kernel.suffix == ".ptx":
        if task or launcher or shapes:
            raise UsageError("a .ptx file is launched as its TOML file says; leave --task, --launcher and --shapes out")
        with stage_display(err) as say:
            report = check_ptx(checking(say), kernel, launch, sizes)
    elif task:
        if launcher or shapes or sizes:
            raise UsageError("--task gives launcher, shapes and sizes; leave --launcher, --shapes and --sizes out")
        row, candidate = get_task(task), read_candidate(kernel, task=task, target=parse_target(target))
        evaluator = ready_evaluator(context.obj)
        with stage_display(err) as say:
            report = check_task(checking(say), evaluator, kernel, candidate, row)
    else:
        chip = parse_target(target)
        adapted = adapt_source(kernel, chip, launcher=launcher, shapes=shapes, sizes=sizes)
        evaluator = ready_evaluator(context.obj)
        with stage_display(err) as say:
            report = check_source(checking(say), evaluator, kernel, chip, adapted)
    report = report.model_copy(update={"seconds": round(time.monotonic() - started, 3)})
    if sarif_file is not None:
        write_atomically(sarif_file, sarif(report, ptxbench.__version__).encode())
    if as_json:
        emit(report.model_dump_json(indent=2))
    else:
        show(report_view(report), fold=False)
    raise typer.Exit(1 if report.findings else 0)


def check_ptx(check: Check, file: Path, launch: Path | None, sizes: str) -> Report:
    """Checks a kernel of a PTX file; the launch description lies beside it unless it is named."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {file}: {error}") from error
    described = read_ptx_launch(launch or file.with_suffix(".toml"))
    name = choose_kernel(described, text)
    values = described.sizes | parse_sizes(parse_values(sizes))
    program = load(text, [name])
    plan, contents = described.plan(name, values)
    described.fit(plan, program)
    (node,) = (node for node in plan.nodes if node.op == "kernel")
    threads = node.block[0] * node.block[1] * node.block[2]
    checked = check_plan(check, described.artifact(program, text, threads), plan, contents)
    return report_of(str(file), program.target.value, [checked], races=check.races)


def adapt_source(file: Path, target: Target, *, launcher: str, shapes: str, sizes: str) -> Adapted:
    """The launcher of a file behind a candidate's interface; options add to what the source says of itself."""
    source = read_candidate(file, task="", target=target).source
    notes = read_notes(source)
    values = parse_values(notes.sizes) | parse_values(sizes)
    found = find_launcher(source, launcher or notes.launcher)
    return adapt(source, found, parse_shapes(notes.shapes) | parse_shapes(shapes), values)


def check_source(check: Check, evaluator: LocalEvaluator, file: Path, target: Target, adapted: Adapted) -> Report:
    """Checks a launcher at the sizes that it was adapted at."""
    artifact = compile_adapted(evaluator, adapted, file, target, check.progress)
    if isinstance(artifact, Rejection):
        return refused(str(file), target.value, artifact)
    plan = evaluator.recorder.record(artifact, adapted.task, adapted.sizes)
    if isinstance(plan, Rejection):
        return refused(str(file), target.value, plan)
    contents = {name: Contents(element) for name, element in adapted.elements.items()}
    checked = check_plan(check, artifact, plan, contents, adapted.values)
    return report_of(str(file), target.value, [checked], races=check.races)


def compile_adapted(
    evaluator: LocalEvaluator, adapted: Adapted, file: Path, target: Target, say: Progress
) -> Artifact | Rejection:
    """The adapted source compiled, with the header set."""
    say("compiling")
    candidate = make_candidate(adapted.source, task=adapted.task.name, target=target, origin=file.name)
    return compile_candidate(
        candidate, adapted.task, toolchain=evaluator.toolchain, cache=evaluator.cache, include=evaluator.include
    )


def check_task(check: Check, evaluator: LocalEvaluator, file: Path, candidate: Candidate, task: Task) -> Report:
    """Checks a candidate of a task at the task's small sizes."""
    target = candidate.target
    check.progress("compiling")
    artifact = evaluator.compile(candidate)
    if isinstance(artifact, Rejection):
        return refused(str(file), target.value, artifact)
    workloads = task.of_tier("small")
    plans = evaluator.record(artifact, task, workloads)
    if isinstance(plans, Rejection):
        return refused(str(file), target.value, plans)
    parts: list[Checked] = []
    for workload, plan in zip(workloads, plans, strict=True):
        problem = make_problem(task, workload, task.distributions[0], seed=1)
        contents = {a.name: Contents(a.dtype) for a in task.outputs} | {
            a.name: Contents(a.dtype, problem.inputs[a.name].tobytes()) for a in task.inputs
        }
        parts.append(check_plan(check, artifact, plan, contents))
    return report_of(str(file), target.value, parts, races=check.races)


def report_view(report: Report) -> Group:
    """The report for people: each finding with its place, its advice and the schedules that showed it."""
    lines = [line for finding in report.findings for line in _finding_lines(finding, report.file)]
    count = len(report.findings)
    what = "nothing found" if not count else f"{count} finding{'s' if count > 1 else ''}"
    work = f"{report.runs} runs, {report.instructions:,} warp instructions, {report.seconds:.1f} s"
    lines.append(Text(f"{report.file}: {what} ({work})", style="bold red" if count else "bold green"))
    return Group(*lines)


def _finding_lines(finding: Finding, file: str) -> Iterator[Text]:
    line = finding.source_line or (finding.ptx_line if file.endswith(".ptx") else 0)
    place = f"{file}:{line}" if line else file
    text = Text(f"{place}: ")
    text.append(f"{finding.severity}", style=_COLOURS[finding.severity]).append(f" [{finding.kind}] {finding.message}")
    yield text
    if finding.advice:
        yield Text(f"    {finding.advice}")
    yield from (Text(f"    {line}", style="dim") for line in finding.detail)
    where = [
        *([sizes_text(finding.sizes)] if finding.sizes else []),
        *([f"{finding.occurrences} times"] if finding.occurrences > 1 else []),
        *([f"PTX line {finding.ptx_line}"] if finding.ptx_line and finding.source_line else []),
    ]
    if finding.under:
        first, *others = finding.under
        where.append(f"with {first}" + (f" and {len(others)} more schedules" if others else ""))
    if where:
        yield Text(f"    ({', '.join(where)})", style="dim")
