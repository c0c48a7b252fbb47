"""Judges GPU kernels: right, carried by the target's own instructions, and fast."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.table import Table
from rich.text import Text

import ptxbench
from ptxbench.cli import check, compare, data, export, runs, train
from ptxbench.cli.arguments import parse_device, parse_sizes, parse_target, parse_tiers
from ptxbench.cli.console import FAILED, complain, emit, main
from ptxbench.cli.display import output_console, show
from ptxbench.cli.gpu import judging, uses_gpu
from ptxbench.cli.machine import CORES, err, make_evaluator, ready_evaluator, storing
from ptxbench.core import (
    Artifact,
    Candidate,
    InfrastructureError,
    Rejection,
    Verdict,
    Workload,
    families_of,
    make_candidate,
    sizes_text,
)
from ptxbench.evaluate import Answer, LocalEvaluator, diagnose, evaluate_all, read_candidate, read_folder
from ptxbench.native import Cache
from ptxbench.report import batch_display, stage_display, summary, summary_svg, verdict_page, verdict_view
from ptxbench.solutions import examples
from ptxbench.store import write_atomically
from ptxbench.tasks import get_task, load_tasks

T = TypeVar("T")

app = typer.Typer(name="ptxbench", add_completion=False, pretty_exceptions_enable=False, help=__doc__)

TaskName = Annotated[str, typer.Option("--task", help="A task's name; see `ptxbench tasks`.")]
TargetName = Annotated[str, typer.Option("--target", help="sm_90a (Hopper) or sm_100a (Blackwell).")]
DeviceOption = Annotated[str, typer.Option("--device", help="sim (CPU), cuda, or auto.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Source = Annotated[Path, typer.Argument(help="The candidate's .cu file, or - for standard input.", show_default=False)]
Sources = Annotated[
    Path,
    typer.Argument(help="A .cu file, a folder of them, or - for standard input.", show_default=False),
]
Jobs = Annotated[int, typer.Option("--jobs", min=1, max=1024, help="Candidates judged at a time.")]


def run_command(arguments: Sequence[str], stop: threading.Event) -> int:
    """Runs one command and returns its exit code. ``stop`` ends, once it is set, what runs in other threads."""
    command = typer.main.get_command(app)
    try:
        # Not `command.main`: it has answers of its own to interrupts and closed pipes.
        with command.make_context("ptxbench", list(arguments) or ["--help"], obj=stop) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        return complain(f"{error.format_message().rstrip('.')}; see `ptxbench --help`")
    return 0


def show_version(wanted: bool) -> None:
    """Prints the version and ends the command, if that was asked for."""
    if wanted:
        emit(f"ptxbench {ptxbench.__version__}")
        raise typer.Exit


@app.callback(help=__doc__)
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=show_version)
    ] = False,
) -> None:
    """The options of the program itself; `show_version` has answered the only one."""


@app.command("eval")
def evaluate_command(
    context: typer.Context,
    kernel: Sources,
    task: TaskName,
    target: TargetName,
    device: DeviceOption = "auto",
    workloads: Annotated[
        str | None,
        typer.Option(help="Tiers to judge: small, heldout, core (GPU only).", show_default="all that the device can"),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on broken ISA rules too.")] = False,
    jobs: Jobs = CORES,
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge again what has a stored verdict (folders).")] = False,
    as_json: Json = False,
) -> None:
    """Judge one kernel, or every kernel of a folder.

    Exit code 0: accepted; 1: a candidate failed; 2: no verdict. A folder that was interrupted goes on where it stopped;
    with --json it prints one object a line, as each kernel is judged.
    """
    row, chip, where = get_task(task).name, parse_target(target), parse_device(device)
    gpu = uses_gpu(where)
    if workloads is not None:  # before anything is read or built
        parse_tiers(workloads, gpu=gpu)
    several = kernel.is_dir()
    candidates, unreadable = (
        read_folder(kernel, task=row, target=chip) if several else ([read_candidate(kernel, task=row, target=chip)], {})
    )
    tell_of_training_row(row)
    with judging(context.obj, where, chip, jobs=jobs if several else 1) as evaluator:
        tiers = evaluator.tiers if workloads is None else parse_tiers(workloads, gpu="core" in evaluator.tiers)
        evaluator = replace(evaluator, tiers=tiers, strict=strict)
        if several:
            code = judge_folder(evaluator, candidates, unreadable, jobs=jobs, resume=not fresh, as_json=as_json)
            raise typer.Exit(code)
        with stage_display(err) as say:
            verdict = storing(replace(evaluator, progress=say), resume=False).evaluate(candidates[0])
    if as_json:
        emit(verdict.model_dump_json(indent=2))
    else:
        show(verdict_view(verdict))
    raise typer.Exit(verdict.outcome.exit_code)


def judge_folder(
    evaluator: LocalEvaluator,
    candidates: Sequence[Candidate],
    unreadable: Mapping[str, str],
    *,
    jobs: int,
    resume: bool,
    as_json: bool,
) -> int:
    """Judges candidates that belong together; returns the exit code of the worst."""

    def line(answer: Answer) -> str:
        if answer.verdict:
            return answer.verdict.model_dump_json()
        return json.dumps({"schema": 1, "origin": answer.origin, "outcome": None, "reason": answer.problem})

    answers = [Answer(name, None, why) for name, why in unreadable.items()]
    with batch_display(err, "judging", len(candidates) + len(answers)) as say:

        def answered(answer: Answer) -> None:
            say(headline(answer))
            if as_json:
                emit(line(answer))

        for answer in answers:
            answered(answer)
        judge = storing(replace(evaluator, threads=1), resume)
        answers += evaluate_all(judge, candidates, jobs=jobs, on_answer=answered)
    if not as_json:
        show_summary([answer.verdict for answer in answers if answer.verdict])
        for answer in answers:
            if answer.verdict is None:
                complain(f"no verdict on {answer.origin}: {answer.problem}")
    return max(answer.verdict.outcome.exit_code if answer.verdict else FAILED for answer in answers)


@app.command("quickstart")
def quickstart_command(
    context: typer.Context,
    folder: Annotated[Path, typer.Option("--out", help="Where the page and the JSON file go.")] = Path("out"),
    svg: Annotated[Path | None, typer.Option("--svg", help="Also draw the table into this SVG file.")] = None,
    jobs: Jobs = CORES,
    as_json: Json = False,
) -> None:
    """Judge the bundled kernels, right ones and wrong ones, on the simulator."""
    rows = examples()
    candidates = [make_candidate(row.source(), task=row.task, target=row.target, origin=row.file) for row in rows]
    evaluator = replace(ready_evaluator(context.obj), threads=1)
    with batch_display(err, "judging the bundled kernels", len(candidates)) as say:
        answers = evaluate_all(evaluator, candidates, jobs=jobs, on_answer=lambda answer: say(headline(answer)))
    verdicts = [answer.verdict for answer in answers if answer.verdict]
    now = datetime.now(UTC)
    payload = json.dumps(
        {
            "schema": 1,
            "made": now.isoformat(timespec="seconds"),
            "verdicts": [verdict.model_dump(mode="json") for verdict in verdicts],
        },
        indent=2,
    )
    title = "PTXBench quick start"
    page = verdict_page(verdicts, title=title, made=f"{now:%Y-%m-%d %H:%M} UTC", command="ptxbench quickstart")
    write_atomically(folder / "quickstart.json", payload.encode())
    write_atomically(folder / "quickstart.html", page.encode())
    if svg is not None:
        write_atomically(svg, summary_svg(verdicts, title="ptxbench quickstart").encode())
    if as_json:
        emit(payload)
    else:
        show_summary(verdicts)
        emit(f"\nFull reports: {folder / 'quickstart.html'} and {folder / 'quickstart.json'}")
    unexpected = [
        f"{row.file} should be {row.outcome} and is {answer.verdict.outcome if answer.verdict else answer.problem}"
        for row, answer in zip(rows, answers, strict=True)
        if answer.verdict is None or answer.verdict.outcome != row.outcome
    ]
    if unexpected:
        raise InfrastructureError("a bundled kernel got another verdict than it should: " + "; ".join(unexpected))


@app.command("tasks")
def tasks_command(as_json: Json = False) -> None:
    """List the tasks."""
    rows = load_tasks()
    if as_json:
        emit(json.dumps([task.model_dump(mode="json") for task in rows.values()], indent=2))
        return
    table = listing("task", "what", "core sizes", "signature of launch")
    for task in rows.values():
        sizes = sizes_text(task.of_tier("core")[0].sizes, " ")
        table.add_row(task.name, task.title, sizes, ", ".join(f"{kind} {name}" for kind, name in task.parameters()))
    show(table)


@app.command("examples")
def examples_command(
    copy: Annotated[Path | None, typer.Option("--copy", help="Copy the files into this folder.")] = None,
    as_json: Json = False,
) -> None:
    """List the bundled kernels, or copy them."""
    rows = examples()
    if copy is not None:
        for row in rows:
            write_atomically(copy / row.file, row.source().encode())
    if as_json:
        emit(json.dumps([row.model_dump(mode="json") for row in rows], indent=2))
        return
    table = listing("file", "target", "outcome", "what it shows")
    for row in rows:
        table.add_row(row.file, row.target.value, row.outcome.value, row.about)
    show(table)


@app.command("plan")
def plan_command(
    context: typer.Context,
    kernel: Source,
    task: TaskName,
    target: TargetName,
    sizes: Annotated[
        str | None, typer.Option(help="Sizes such as M=256,N=256,K=1024; default: the core sizes.")
    ] = None,
) -> None:
    """Print the launch plan that a kernel's launcher makes, as JSON."""
    row, chip = get_task(task), parse_target(target)
    workload = Workload(tier="small", sizes=parse_sizes(sizes, row)) if sizes else row.of_tier("core")[0]
    candidate = read_candidate(kernel, task=row.name, target=chip)
    with stage_display(err) as say:
        evaluator = make_evaluator(context.obj, say)
        say("compiling")
        artifact = accepted(evaluator.compile(candidate))
        say("recording")
        (plan,) = accepted(evaluator.record(artifact, row, [workload]))
    emit(plan.model_dump_json(indent=2))


@app.command("sass")
def sass_command(
    context: typer.Context, kernel: Source, task: TaskName, target: TargetName, as_json: Json = False
) -> None:
    """Print the machine code of a kernel, with its source lines and the target's own instructions marked."""
    candidate = read_candidate(kernel, task=get_task(task).name, target=parse_target(target))
    with stage_display(err) as say:
        evaluator = make_evaluator(context.obj, say)
        say("compiling")
        artifact = accepted(evaluator.compile(candidate))
    emit(json.dumps([code.model_dump(mode="json") for code in artifact.sass]) if as_json else sass_text(artifact))


@app.command("doctor")
def doctor_command(as_json: Json = False) -> None:
    """Check this machine: toolchain, host compiler, sandbox, cache, simulator. Exit code 2 if something is missing."""
    with stage_display(err) as say:
        checks = diagnose(Cache(), progress=say)
    if as_json:
        emit(json.dumps([check.model_dump(mode="json") for check in checks], indent=2))
    else:
        table = listing("", "", "")
        table.show_header = False
        for check in checks:
            table.add_row("[green]ok[/]" if check.ok else "[red]no[/]", check.name, Text(check.detail))
        show(table)
    raise typer.Exit(0 if all(check.ok or not check.required for check in checks) else FAILED)


def accepted(result: T | Rejection) -> T:
    """The result of a stage; a rejection is printed and ends the command with the candidate's exit code."""
    if isinstance(result, Rejection):
        lines = [f"{result.outcome.value}: {result.reason} {result.advice}".strip()]
        lines += [f"  kernel.cu:{remark.line}: {remark.severity}: {remark.message}" for remark in result.remarks]
        err.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(result.outcome.exit_code)
    return result


def headline(answer: Answer) -> str:
    """One line about one answer, for a progress display."""
    if answer.verdict is None:
        return f"{'no verdict':20} {answer.origin}: {answer.problem}"
    return f"{answer.verdict.outcome.value:20} {answer.origin}: {answer.verdict.reason}"


def sass_text(artifact: Artifact) -> str:
    """The listing of every kernel: offset, source line, instruction, family."""
    families = families_of(artifact.target)
    lines: list[str] = []
    for code in artifact.sass:
        facts = artifact.kernel(code.kernel)
        lines.append(
            f"{code.kernel}: {facts.registers} registers, {facts.static_shared} bytes shared, {facts.local} local"
        )
        for instruction in code.instructions:
            family = next((f.name for f in families if f.matches_sass(instruction.opcode)), "")
            line = instruction.frames[-1][1] if instruction.frames else ""
            text = f"{instruction.predicate} {instruction.opcode} {instruction.operands}".strip()
            lines.append(f"{instruction.offset:06x} {line:>5} {text:<72} {family}".rstrip())
    return "\n".join(lines)


def tell_of_training_row(task: str) -> None:
    """Says on standard error that a verdict on this task is no evaluation, where that is so."""
    if get_task(task).suite == "training":
        err.print(f"{task} is training material: no evaluation counts its verdicts.", highlight=False)


def listing(*columns: str) -> Table:
    """An empty table for a list of things."""
    table = Table(pad_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def show_summary(verdicts: Sequence[Verdict]) -> None:
    """Prints the table of several verdicts as wide as the terminal allows."""
    show(summary(verdicts, width=output_console().width))


runs.register(app)
export.register(app)
check.register(app)
compare.register(app)
data.register(app)
train.register(app)

if __name__ == "__main__":
    main()
