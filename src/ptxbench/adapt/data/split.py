"""Which tasks belong together, which are held out for evaluation, and which for validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ptxbench.core import Task
from ptxbench.tasks import load_tasks

_MASKS = frozenset({"causal"})
"""Options that make another member of the same family."""


def family_key(task: Task) -> str:
    """What members of one family have in common: everything but masks, size rules and workloads.

    Derived from the row, so that a task under another name is still recognised.
    """
    arguments = [(a.role, a.dtype, a.shape) for a in task.arguments]
    options = sorted(name for name, on in task.options.items() if on and name not in _MASKS)
    return repr((task.operation, task.matrix_dtype, sorted(task.fixed_sizes.items()), arguments, options))


def families(tasks: Mapping[str, Task] | None = None) -> dict[str, str]:
    """The family of every task, named after its member with the shortest name."""
    rows = load_tasks() if tasks is None else tasks
    members: dict[str, list[str]] = {}
    for name, task in rows.items():
        members.setdefault(family_key(task), []).append(name)
    names = {key: min(group, key=lambda name: (len(name), name)) for key, group in members.items()}
    return {name: names[family_key(task)] for name, task in rows.items()}


def evaluation_families() -> frozenset[str]:
    """Families with a member that models are evaluated on: every task that is not training material."""
    rows, family = load_tasks(), families()
    return frozenset(family[name] for name, task in rows.items() if task.suite != "training")


def families_of(names: Iterable[str]) -> frozenset[str]:
    """The families of some tasks."""
    family = families()
    return frozenset(family[name] for name in names)


def shares_shape(task: Task, sizes: Mapping[str, int]) -> str:
    """The evaluation task of the same operation that is timed at the same sizes; empty if there is none."""
    for name, other in load_tasks().items():
        if other.suite == "training" or other.operation != task.operation:
            continue
        if any(dict(sizes) == workload.sizes for workload in other.of_tier("core")):
            return name
    return ""
