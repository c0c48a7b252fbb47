"""The suite: every row of data in the folder ``rows``, by name."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from importlib import resources

from ptxbench.core import Suite, Task, UsageError
from ptxbench.tasks.distributions import DISTRIBUTIONS
from ptxbench.tasks.operations import OPERATIONS


def load_tasks(suite: Suite | None = None) -> Mapping[str, Task]:
    """The tasks of one suite, or all tasks of the package, by name, sorted.

    A row that contradicts itself is a `ValueError`.
    """
    rows = resources.files("ptxbench.tasks") / "rows"
    files = sorted((f for f in rows.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name)
    tasks = [Task.model_validate(tomllib.loads(f.read_text(encoding="utf-8"))) for f in files]
    for task in tasks:
        check(task)
    return {task.name: task for task in tasks if suite in (None, task.suite)}


def get_task(name: str) -> Task:
    """The task of that name; `UsageError` with the closest names otherwise."""
    tasks = load_tasks()
    if name in tasks:
        return tasks[name]
    close = difflib.get_close_matches(name, tasks, n=3) or list(tasks)
    raise UsageError(f"unknown task '{name}'; did you mean {' or '.join(close)}?")


def sizes_problem(task: Task, sizes: Mapping[str, int]) -> str:
    """Why ``sizes`` are outside the task's rules, in one sentence; empty if they are inside."""
    if set(sizes) != set(task.sizes):
        return f"task '{task.name}' needs exactly the sizes {', '.join(task.sizes)}"
    for name, value in sizes.items():
        if value != task.fixed_sizes.get(name, value):
            return f"size {name}={value} of task '{task.name}' must be {task.fixed_sizes[name]}"
        multiple = task.size_rules.get(name, 1)
        if value < 1 or value % multiple:
            return f"size {name}={value} of task '{task.name}' is not a positive multiple of {multiple}"
    return ""


def check(task: Task) -> None:
    """`ValueError` with every contradiction in a row."""
    unknown = [d for d in task.distributions if d not in DISTRIBUTIONS]
    problems = [f"unknown distributions {unknown}"] if unknown else []
    if task.operation not in OPERATIONS:
        problems.append(f"unknown operation '{task.operation}'")
    problems += filter(None, (sizes_problem(task, w.sizes) for w in task.workloads))
    lost = {*task.size_rules, *task.fixed_sizes, *(s for a in task.arguments for s in a.shape)} - set(task.sizes)
    problems += [f"unknown sizes {sorted(lost)}"] if lost else []
    if problems:
        raise ValueError(f"the row of task '{task.name}' is wrong: {'; '.join(problems)}")
