"""The command line: the composition root, the only module that knows every room."""

from __future__ import annotations

import errno
import json
import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import click
import typer
from rich.console import Console
from rich.table import Table

from ptxbench.build import find_toolchain
from ptxbench.core import (
    Candidate,
    InfrastructureError,
    PtxbenchError,
    Rejection,
    Target,
    Task,
    Tier,
    UsageError,
    Verdict,
    Workload,
    families_of,
)
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import LocalEvaluator, diagnose, evaluate_all, make_candidate, read_candidate
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.report import batch_display, stage_display, summary_table, verdict_page, verdict_view
from ptxbench.solutions import examples, include_dir
from ptxbench.store import write_atomically
from ptxbench.tasks import get_task, load_tasks, sizes_problem

T = TypeVar("T")

app = typer.Typer(
    name="ptxbench", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__
)
out = Console(soft_wrap=False)
err = Console(stderr=True)

TaskName = Annotated[str, typer.Option("--task", help="A task's name; see `ptxbench tasks`.")]
TargetName = Annotated[str, typer.Option("--target", help="sm_90a (Hopper) or sm_100a (Blackwell).")]
DeviceName = Annotated[str, typer.Option("--device", help="sim (CPU), cuda, or auto.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Source = Annotated[Path, typer.Argument(help="The candidate's .cu file, or - for standard input.", show_default=False)]


@app.command("eval")
def evaluate_command(
    kernel: Source,
    task: TaskName,
    target: TargetName,
    device: DeviceName = "auto",
    workloads: Annotated[str, typer.Option(help="Tiers to judge: small, heldout.")] = "small,heldout",
    strict: Annotated[bool, typer.Option("--strict", help="Fail on broken ISA rules too.")] = False,
    as_json: Json = False,
) -> None:
    """Judge one kernel. Exit code 0: accepted; 1: the candidate failed; 2: no verdict."""
    candidate = read_candidate(kernel, task=get_task(task).name, target=parse_target(target))
    evaluator = make_evaluator(device, parse_tiers(workloads), strict)
    with stage_display(err, quiet=as_json) as say:
        verdict = replace(evaluator, progress=say).evaluate(candidate)
    if as_json:
        print(verdict.model_dump_json(indent=2))
    else:
        out.print(verdict_view(verdict))
    raise typer.Exit(verdict.outcome.exit_code)


@app.command("quickstart")
def quickstart_command(
    folder: Annotated[Path, typer.Option("--out", help="Where the page and the JSON file go.")] = Path("out"),
    jobs: Annotated[int, typer.Option(min=1, help="Candidates judged at a time.")] = max(1, (os.cpu_count() or 1)),
    as_json: Json = False,
) -> None:
    """Judge the bundled kernels, right ones and wrong ones, on the simulator."""
    rows = examples()
    candidates = [make_candidate(row.source(), task=row.task, target=row.target, origin=row.file) for row in rows]
    verdicts = judge_all(candidates, jobs=jobs, title="judging the bundled kernels", quiet=as_json)
    now = datetime.now(UTC)
    payload = {
        "schema": 1,
        "made": now.isoformat(timespec="seconds"),
        "verdicts": [verdict.model_dump(mode="json") for verdict in verdicts],
    }
    page = verdict_page(
        verdicts, title="PTXBench quick start", made=f"{now:%Y-%m-%d %H:%M} UTC", command="ptxbench quickstart"
    )
    write_atomically(folder / "quickstart.json", json.dumps(payload, indent=2).encode())
    write_atomically(folder / "quickstart.html", page.encode())
    if as_json:
        print(json.dumps(payload, indent=2))
    else:
        out.print(summary_table(verdicts))
        out.print(f"Full reports: {folder / 'quickstart.html'} and {folder / 'quickstart.json'}", highlight=False)
    unexpected = [
        f"{row.file}: expected {row.outcome}, got {verdict.outcome}"
        for row, verdict in zip(rows, verdicts, strict=True)
        if row.outcome != verdict.outcome
    ]
    if unexpected:
        raise InfrastructureError("a bundled kernel got another verdict than it should: " + "; ".join(unexpected))


@app.command("tasks")
def tasks_command(as_json: Json = False) -> None:
    """List the tasks."""
    rows = load_tasks()
    if as_json:
        print(json.dumps([task.model_dump(mode="json") for task in rows.values()], indent=2))
        return
    table = Table(pad_edge=False)
    for name in ("task", "what", "core sizes", "signature of launch"):
        table.add_column(name, overflow="fold")
    for task in rows.values():
        core = task.of_tier("core")[0].sizes
        sizes = " ".join(f"{name}={value}" for name, value in core.items())
        table.add_row(task.name, task.title, sizes, ", ".join(f"{kind} {name}" for kind, name in task.parameters()))
    out.print(table)


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
        print(json.dumps([row.model_dump(mode="json") for row in rows], indent=2))
        return
    table = Table(pad_edge=False)
    for name in ("file", "target", "outcome", "what it shows"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(row.file, row.target.value, row.outcome.value, row.about)
    out.print(table)


@app.command("plan")
def plan_command(
    kernel: Source,
    task: TaskName,
    target: TargetName,
    sizes: Annotated[
        str | None, typer.Option(help="Sizes such as M=256,N=256,K=1024; default: the core sizes.")
    ] = None,
) -> None:
    """Print the launch plan that a kernel's launcher makes, as JSON."""
    row = get_task(task)
    workload = Workload(tier="small", sizes=parse_sizes(sizes, row)) if sizes else row.of_tier("core")[0]
    candidate = read_candidate(kernel, task=row.name, target=parse_target(target))
    evaluator = make_evaluator("sim")
    artifact = accepted(evaluator.compile(candidate))
    (plan,) = accepted(evaluator.record(artifact, row, [workload]))
    print(plan.model_dump_json(indent=2))


@app.command("sass")
def sass_command(kernel: Source, task: TaskName, target: TargetName, as_json: Json = False) -> None:
    """Print the machine code of a kernel, with its source lines and the target's own instructions marked."""
    candidate = read_candidate(kernel, task=get_task(task).name, target=parse_target(target))
    artifact = accepted(make_evaluator("sim").compile(candidate))
    if as_json:
        print(json.dumps([listing.model_dump(mode="json") for listing in artifact.sass], indent=2))
        return
    families = families_of(candidate.target)
    for listing in artifact.sass:
        facts = artifact.kernel(listing.kernel)
        out.rule(
            f"{listing.kernel}: {facts.registers} registers, {facts.static_shared} bytes shared, {facts.local} local"
        )
        for instruction in listing.instructions:
            family = next((f.name for f in families if f.matches_sass(instruction.opcode)), "")
            line = instruction.frames[-1][1] if instruction.frames else 0
            text = f"{instruction.predicate} {instruction.opcode} {instruction.operands}".strip()
            out.print(f"{instruction.offset:06x} {line or '':>5} {text:<72} {family}", highlight=False, markup=False)


@app.command("doctor")
def doctor_command(as_json: Json = False) -> None:
    """Check this machine: toolchain, host compiler, sandbox, cache, simulator. Exit code 2 if something is missing."""
    with stage_display(err, quiet=as_json) as say:
        checks = diagnose(Cache(), progress=say)
    if as_json:
        print(json.dumps([check.model_dump(mode="json") for check in checks], indent=2))
    else:
        table = Table(pad_edge=False, show_header=False)
        for check in checks:
            table.add_row("[green]ok[/]" if check.ok else "[red]no[/]", check.name, check.detail)
        out.print(table)
    raise typer.Exit(0 if all(check.ok or not check.required for check in checks) else 2)


def main() -> NoReturn:
    """The console script. Every expected error ends as one sentence on standard error and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = 2
    except (KeyboardInterrupt, click.Abort):
        code = complain("interrupted; nothing was left half-written")
    except PtxbenchError as error:
        code = complain(str(error))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EROFS, errno.EDQUOT):
            raise
        code = complain(f"cannot write {error.filename or 'to disk'}: {error.strerror}")
    sys.exit(code)


def complain(message: str) -> int:
    """Prints one sentence on standard error; returns the exit code of usage and infrastructure errors."""
    err.print(f"ptxbench: {message}", style="red", highlight=False, markup=False)
    return 2


def parse_target(name: str) -> Target:
    """A target by name; `UsageError` lists the known ones."""
    try:
        return Target(name)
    except ValueError:
        known = " or ".join(target.value for target in Target)
        raise UsageError(f"there is no target {name!r}; --target takes {known}") from None


def parse_tiers(text: str) -> tuple[Tier, ...]:
    """Tiers from a comma-separated list; `UsageError` on anything the simulator cannot run."""
    tiers: dict[str, Tier] = {"small": "small", "heldout": "heldout"}
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in tiers]
    if unknown or not names:
        raise UsageError(f"--workloads takes small, heldout, or both with a comma, not {text!r}")
    return tuple(tiers[name] for name in dict.fromkeys(names))


def parse_sizes(text: str, task: Task) -> dict[str, int]:
    """Sizes such as ``M=256,N=256,K=1024``, every size of the task once and within its rules; else `UsageError`."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, separator, value = part.partition("=")
        if not separator or not value.strip().isdecimal() or name.strip() in sizes:
            raise UsageError(f"--sizes takes {','.join(f'{n}=…' for n in task.sizes)}, not {text!r}")
        sizes[name.strip()] = int(value)
    if problem := sizes_problem(task, sizes):
        raise UsageError(problem)
    return {name: sizes[name] for name in task.sizes}


def make_device(name: str) -> SimulatorDevice:
    """The device by name. `auto` is the simulator: this version has no GPU judge."""
    if name in ("sim", "auto"):
        return SimulatorDevice()
    if name == "cuda":
        raise UsageError("this version judges on the simulator only; use --device sim")
    raise UsageError(f"there is no device {name!r}; --device takes sim, cuda or auto")


def make_evaluator(device: str, tiers: tuple[Tier, ...] = ("small", "heldout"), strict: bool = False) -> LocalEvaluator:
    """The pipeline with this machine's toolchain and cache."""
    cache, toolchain = Cache(), find_toolchain()
    return LocalEvaluator(
        device=make_device(device),
        toolchain=toolchain,
        recorder=find_recorder(toolchain, cache),
        cache=cache,
        include=include_dir(),
        tiers=tiers,
        strict=strict,
        threads=os.cpu_count() or 1,
    )


def accepted(result: T | Rejection) -> T:
    """The result of a stage; a rejection is printed and ends the program with the candidate's exit code."""
    if isinstance(result, Rejection):
        err.print(f"{result.outcome.value}: {result.reason} {result.advice}".strip(), highlight=False, markup=False)
        for remark in result.remarks:
            err.print(f"  kernel.cu:{remark.line}: {remark.severity}: {remark.message}", highlight=False, markup=False)
        raise typer.Exit(result.outcome.exit_code)
    return result


def judge_all(candidates: list[Candidate], *, jobs: int, title: str, quiet: bool) -> list[Verdict]:
    """Judges candidates with a progress display; one replay at a time each, since ``jobs`` run at once."""
    evaluator = replace(make_evaluator("sim"), threads=1)
    with batch_display(err, title, len(candidates), quiet=quiet) as say:
        return evaluate_all(
            evaluator,
            candidates,
            jobs=jobs,
            on_verdict=lambda c, v: say(f"{v.outcome.value:20} {c.origin}: {v.reason}"),
        )


if __name__ == "__main__":
    main()
