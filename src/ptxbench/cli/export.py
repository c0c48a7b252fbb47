"""The command that hands tasks to other programs: `ptxbench harbor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ptxbench.cli.arguments import parse_names, parse_target
from ptxbench.cli.console import emit
from ptxbench.core import RunMode
from ptxbench.runners import choose_tasks, header_text, make_prompts, write_harbor_task
from ptxbench.solutions import include_dir, solutions

TargetName = Annotated[str, typer.Option("--target", help="sm_90a (Hopper) or sm_100a (Blackwell).")]
TaskNames = Annotated[str, typer.Option("--tasks", help="Names with commas, or a suite: core, extended.")]
ConditionName = Annotated[str, typer.Option("--condition", help="What the agent is shown.")]
Without = Annotated[str, typer.Option("--without", help="Parts of the condition to leave out.")]


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("harbor")(harbor_command)


def harbor_command(
    target: TargetName,
    package: Annotated[Path, typer.Option("--package", help="The wheel of PTXBench (`pip wheel --no-deps .`).")],
    tasks: TaskNames = "core",
    condition: ConditionName = "docs",
    without: Without = "",
    out: Annotated[Path, typer.Option("--out", help="Where each task's folder is made.")] = Path("harbor"),
    agent_seconds: Annotated[int, typer.Option(min=1, help="What an agent may take.")] = 3600,
) -> None:
    """Write tasks in the format of the Harbor framework, which runs coding agents in containers."""
    chip = parse_target(target)
    chosen = choose_tasks(tasks)
    headers = header_text(include_dir())
    prompts = make_prompts(
        chosen, chip, RunMode.EXTERNAL, condition=condition, without=parse_names(without), header_text=headers
    )
    for task in chosen:
        known = solutions(task.name, chip)
        folder = out / f"{task.name}-{chip}"
        write_harbor_task(
            folder, task, prompts[task.name], package=package, agent_seconds=agent_seconds,
            solution=known[-1].source() if known else None,
        )  # fmt: skip
        emit(str(folder))
