"""The commands that run models: `ptxbench run`, `ptxbench resume` and `ptxbench rejudge`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, get_args

import typer

from ptxbench.cli.arguments import parse_device, parse_effort, parse_names, parse_price, parse_target, parse_tiers
from ptxbench.cli.console import emit
from ptxbench.cli.gpu import judging, uses_gpu
from ptxbench.cli.machine import err, storing
from ptxbench.core import (
    Generation,
    Limits,
    RunMode,
    RunRecord,
    StopReason,
    Target,
    Tier,
    TrajectoryRecord,
    UsageError,
    make_candidate,
)
from ptxbench.core.trajectory import Effort
from ptxbench.evaluate import LocalEvaluator
from ptxbench.report import batch_display
from ptxbench.runners import (
    Bench,
    Change,
    Continue,
    Pace,
    check_inspect,
    choose_tasks,
    header_text,
    make_prompts,
    open_run,
    prompt_uses,
    rejudge,
    remaining,
    run_name,
    stored_prompts,
)
from ptxbench.solutions import include_dir
from ptxbench.store import RunFolder

TRY_AGAIN = 1
"""The exit code of a run that is complete, but has trajectories that a provider's failure ended."""

DEFAULT_CALLS = 60
"""Calls of the model in one trajectory of an agent."""

TargetName = Annotated[str, typer.Option("--target", help="sm_90a (Hopper) or sm_100a (Blackwell).")]
TaskNames = Annotated[str, typer.Option("--tasks", help="Names with commas, or a suite: core, extended.")]
ConditionName = Annotated[str, typer.Option("--condition", help="What the model is shown.")]
Without = Annotated[str, typer.Option("--without", help="Parts of the condition to leave out.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.", show_default=False)]
DeviceName = Annotated[str, typer.Option("--device", help="sim (CPU), cuda, or auto.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, max=1024, help="Kernels judged at a time.")]
Connections = Annotated[
    int | None,
    typer.Option("--connections", min=1, help="Trajectories, and calls of the model, at a time."),
]
Retries = Annotated[int, typer.Option("--max-retries", min=0, help="Of one call that a provider refuses.")]
Timeout = Annotated[int, typer.Option("--timeout", min=1, help="Seconds for one call with its retries.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def register(app: typer.Typer) -> None:
    """Adds the commands to the program."""
    app.command("run")(run_command)
    app.command("resume")(resume_command)
    app.command("rejudge")(rejudge_command)


def run_command(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="provider/name, replay[:FILE.jsonl or RUN], local[:FILE.gguf]; any name for an external agent.",
        ),
    ],
    target: TargetName,
    tasks: TaskNames = "core",
    mode: Annotated[RunMode, typer.Option("--mode", help="How the model works.")] = RunMode.MULTI_TURN,
    condition: ConditionName = "docs",
    without: Without = "",
    turns: Annotated[int, typer.Option("--turns", min=1, help="Kernels judged in one trajectory at most.")] = 8,
    epochs: Annotated[int, typer.Option("--epochs", min=1, help="Trajectories per task.")] = 1,
    target_speedup: Annotated[
        float | None, typer.Option("--target-speedup", help="Ends a trajectory that reaches it.")
    ] = None,
    device: DeviceName = "auto",
    workloads: Annotated[
        str | None,
        typer.Option(help="Tiers to judge: small, heldout, core (GPU only).", show_default="all that the device can"),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on broken ISA rules too.")] = False,
    agent: Annotated[str, typer.Option("--agent", help="The command of an external agent.")] = "",
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Sent to the provider, plus the epoch.")] = None,
    temperature: Annotated[float | None, typer.Option("--temperature", min=0)] = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", min=1, help="Of one reply.")] = None,
    effort: Annotated[str | None, typer.Option("--reasoning-effort", help=", ".join(get_args(Effort)))] = None,
    feedback_tokens: Annotated[int, typer.Option(min=200, help="What is told of one verdict.")] = 1500,
    token_limit: Annotated[int | None, typer.Option(min=1, help="Of one trajectory.")] = None,
    cost_limit: Annotated[float | None, typer.Option(min=0, help="Of one trajectory, in US dollars.")] = None,
    time_limit: Annotated[int | None, typer.Option(min=1, help="Of one trajectory, in seconds.")] = None,
    call_limit: Annotated[int | None, typer.Option(min=1, help="Calls of the model in one trajectory.")] = None,
    price: Annotated[
        str, typer.Option(help="US dollars per million tokens: input,output or input,output,cached input.")
    ] = "",
    trained_on: Annotated[
        str, typer.Option(help="Tasks of this run whose solutions the model was trained on.")
    ] = "",
    out: Annotated[Path, typer.Option("--out", help="The folder in which the run's folder is made.")] = Path("runs"),
    name: Annotated[str, typer.Option("--name", help="The name of the run's folder.")] = "",
    jobs: Jobs = 1,
    connections: Connections = None,
    max_retries: Retries = 5,
    timeout: Timeout = 3600,
    as_json: Json = False,
) -> None:
    """Run a model on tasks and keep everything that it said and got.

    The folder that is made can be continued (`resume`), judged again (`rejudge`), shown and compared. Exit code 0:
    complete, whatever the model achieved; 1: complete, but a provider failed (`resume --retry`); 2: not complete.
    """
    chip, where = parse_target(target), parse_device(device)
    if workloads is not None:  # before anything is made
        parse_tiers(workloads, gpu=uses_gpu(where))
    chosen = choose_tasks(tasks)
    check_mode(mode, agent)
    left_out, headers_shown = parse_names(without), header_text(include_dir())
    prompts = make_prompts(chosen, chip, mode, condition=condition, without=left_out, header_text=headers_shown)
    headers = all(prompt.offers_headers for prompt in prompts.values())
    limits = Limits(
        tokens=token_limit, cost=cost_limit, seconds=time_limit,
        calls=call_limit or (DEFAULT_CALLS if mode is RunMode.AGENT else None),
    )  # fmt: skip
    asked = parse_price(price)
    if cost_limit is not None and asked is None:
        raise UsageError("--cost-limit needs a price; give --price, such as --price 1.25,10")
    generation = Generation(temperature=temperature, max_tokens=max_tokens, effort=parse_effort(effort))
    started = datetime.now(UTC)
    folder = RunFolder(out / (name or run_name(model, mode, condition, chip, started)))
    with judging(context.obj, where, chip) as found:
        tiers = found.tiers if workloads is None else parse_tiers(workloads, gpu="core" in found.tiers)
        evaluator = judge_of(found, tiers, strict=strict, headers=headers)
        run = RunRecord(
            run=folder.root.name,
            started=started.isoformat(timespec="seconds"),
            model=model,
            mode=mode,
            condition=condition,
            without=left_out,
            target=chip,
            tasks=tuple(task.name for task in chosen),
            epochs=epochs,
            turns=turns if mode in (RunMode.MULTI_TURN, RunMode.AGENT) else 1,
            target_speedup=target_speedup,
            feedback_tokens=feedback_tokens,
            seeds=tuple(seed + epoch for epoch in range(epochs)) if seed is not None else (),
            device=evaluator.device.capabilities().model_dump(mode="json"),
            tiers=tiers,
            strict=strict,
            headers=headers,
            prompts=prompt_uses(prompts),
            generation=generation,
            limits=limits,
            price=asked,
            agent=agent,
            versions=run_versions(evaluator, (chosen[0].name, chip), mode),
            trained_on_evaluation_tasks=tuple(task.name for task in choose_tasks(trained_on)) if trained_on else (),
        )
        talk = open_run(run, Pace(jobs, connections, max_retries, timeout))
        with folder.lock():
            folder.create(run, prompts)
            go_on(talk, folder, bench_of(evaluator, resume=True))
    raise typer.Exit(answer(folder, as_json))


def resume_command(
    context: typer.Context,
    run: RunPath,
    device: DeviceName = "auto",
    retry: Annotated[bool, typer.Option("--retry", help="Repeat what a provider's failure ended.")] = False,
    jobs: Jobs = 1,
    connections: Connections = None,
    max_retries: Retries = 5,
    timeout: Timeout = 3600,
    as_json: Json = False,
) -> None:
    """Continue a run that was interrupted. What is done stays done; kernels judged before are not judged again."""
    folder = RunFolder(run)
    record = folder.record()
    if record.rejudged:
        raise UsageError(f"{run} holds kernels of another run that were judged again; repeat `ptxbench rejudge`")
    with judging(context.obj, parse_device(device), record.target) as found, folder.lock():
        evaluator = judge_of(found, same_tiers(record, found), strict=record.strict, headers=record.headers)
        name = evaluator.device.capabilities().name
        if name != record.device["name"]:
            raise UsageError(f"{run} was begun on {record.device['name']}, not on {name}; use --device, or a new run")
        talk = open_run(record, Pace(jobs, connections, max_retries, timeout))
        if retry:
            for trajectory in folder.trajectories():
                if trajectory.stop is StopReason.PROVIDER_ERROR:
                    folder.forget(trajectory)
        go_on(talk, folder, bench_of(evaluator, resume=True))
    raise typer.Exit(answer(folder, as_json))


def rejudge_command(
    context: typer.Context,
    run: RunPath,
    out: Annotated[
        Path | None, typer.Option("--out", help="The new run's folder; RUN-rejudged where not given.")
    ] = None,
    device: DeviceName = "auto",
    jobs: Jobs = 1,
    as_json: Json = False,
) -> None:
    """Judge every kernel of a run again, with fresh secret seeds, into a new run. No model is called.

    Exit code 0: every outcome is the same; 1: some are not, which is shown.
    """
    old = RunFolder(run)
    record = old.record()
    new = RunFolder(out or run.with_name(f"{run.resolve().name}-rejudged"))
    trajectories = old.trajectories()
    with judging(context.obj, parse_device(device), record.target) as found, new.lock():
        evaluator = judge_of(found, same_tiers(record, found), strict=record.strict, headers=record.headers)
        again = record.model_copy(
            update={
                "run": new.root.resolve().name,
                "rejudged": record.run,
                "device": evaluator.device.capabilities().model_dump(mode="json"),
                "tiers": evaluator.tiers,
                "versions": run_versions(evaluator, (record.tasks[0], record.target), RunMode.EXTERNAL),
            }
        )
        if not (new.exists() and new.record() == again):  # else an interrupted call is repeated
            new.create(again, stored_prompts(old, record))
        with batch_display(err, "judging again", len(trajectories)) as say:
            changes = rejudge(old, new, bench_of(evaluator, resume=False), jobs=jobs, on_end=lambda t: say(headline(t)))
    show_changes(new, changes, as_json)
    raise typer.Exit(1 if changes else 0)


def judge_of(evaluator: LocalEvaluator, tiers: Sequence[Tier], *, strict: bool, headers: bool) -> LocalEvaluator:
    """The evaluator as a run needs it: one thread for each kernel, the header set offered or withheld."""
    include = evaluator.include if headers else None
    return replace(evaluator, tiers=tuple(tiers), strict=strict, include=include, threads=1)


def same_tiers(record: RunRecord, evaluator: LocalEvaluator) -> tuple[Tier, ...]:
    """The tiers that a run was judged at, as far as this device can judge them."""
    return tuple(tier for tier in evaluator.tiers if tier in record.tiers)


def bench_of(evaluator: LocalEvaluator, *, resume: bool) -> Bench:
    """The judge of a run and its tools; ``resume`` returns verdicts that are stored already."""
    return Bench(
        evaluator=storing(evaluator, resume),
        key=evaluator.key,
        fresh=storing(evaluator, False),
        quick=storing(replace(evaluator, tiers=("small",)), True),
        compile=evaluator.compile,
        times=evaluator.device.capabilities().times,
    )


def go_on(talk: Continue, folder: RunFolder, bench: Bench) -> None:
    """Does what is left of a run, with a line for every trajectory that ends."""
    left = remaining(folder.record(), folder)
    with batch_display(err, "running", len(left)) as say:
        talk(folder, bench, lambda trajectory: say(headline(trajectory)))


def headline(trajectory: TrajectoryRecord) -> str:
    """One line about one trajectory, for a progress display."""
    best = trajectory.best
    turns = f"{len(trajectory.turns)} turn{'s' if len(trajectory.turns) != 1 else ''}"
    found = f"best {best.outcome} in turn {best.index}" if best else "no verdict"
    return f"{trajectory.task}@{trajectory.epoch}: {turns}, {found}; ended by {trajectory.stop}"


def answer(folder: RunFolder, as_json: bool) -> int:
    """Prints what became of a run and returns the exit code."""
    run, trajectories = folder.record(), folder.trajectories()
    failed = [t for t in trajectories if t.stop is StopReason.PROVIDER_ERROR]
    accepted = [t for t in trajectories if t.best and t.best.outcome and t.best.outcome.accepted]
    if as_json:
        emit(
            json.dumps(
                {
                    "schema": 1,
                    "folder": str(folder.root),
                    "run": run.model_dump(mode="json"),
                    "trajectories": [t.model_dump(mode="json") for t in trajectories],
                },
                indent=2,
            )
        )
    else:
        emit(f"{folder.root}: {len(accepted)} of {len(trajectories)} trajectories have an accepted kernel")
        if failed:
            first = failed[0].turns[-1].note if failed[0].turns else ""
            emit(f"A provider failed in {len(failed)} of them ({first}); `ptxbench resume {folder.root} --retry`")
    return TRY_AGAIN if failed else 0


def show_changes(folder: RunFolder, changes: Sequence[Change], as_json: bool) -> None:
    """Prints the turns whose outcome is another one."""
    rows = [
        {"trajectory": c.trajectory, "turn": c.turn, "before": c.before, "after": c.after} for c in changes
    ]
    if as_json:
        emit(json.dumps({"schema": 1, "folder": str(folder.root), "changes": rows}, indent=2))
        return
    for change in changes:
        emit(f"{change.trajectory}, turn {change.turn}: {change.before} before, {change.after} now")
    emit(f"{folder.root}: {len(changes)} outcomes changed" if changes else f"{folder.root}: every outcome is the same")


def check_mode(mode: RunMode, agent: str) -> None:
    """`UsageError` where mode and agent contradict each other, or Inspect is needed and missing."""
    if (mode is RunMode.EXTERNAL) != bool(agent):
        raise UsageError("--mode external and --agent COMMAND belong together; give both or neither")
    if mode is not RunMode.EXTERNAL:
        check_inspect()


def run_versions(evaluator: LocalEvaluator, run: tuple[str, Target], mode: RunMode) -> dict[str, str]:
    """What the verdicts are made with, and what calls the model; ``run`` is one of its tasks and its target."""
    task, target = run
    inspect = {} if mode is RunMode.EXTERNAL else {"inspect-ai": check_inspect()}
    return evaluator.key(make_candidate("", task=task, target=target, origin="")).versions | inspect
