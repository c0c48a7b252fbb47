"""Conversations as models will meet them: the prompts of a run, feedback in its words, answers in the asked form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from ptxbench.adapt.data.recipe import Recipe
from ptxbench.adapt.data.rows import Message
from ptxbench.adapt.data.split import shares_shape
from ptxbench.core import Target, Task, UsageError, Workload
from ptxbench.prompts import compose


def header_set(include: Path) -> str:
    """The header set as one text, each file in a fence under the name by which it is included."""
    files = sorted(include.rglob("*.cuh"))
    parts = (f"`<{path.relative_to(include)}>`\n\n```cuda\n{path.read_text().strip()}\n```" for path in files)
    return "\n\n".join(parts)


class Prompter:
    """Makes the first two messages for a task under a recipe's conditions."""

    def __init__(self, recipe: Recipe, include: Path) -> None:
        self.recipe = recipe
        self._headers = header_set(include)

    def condition(self, *, uses_headers: bool) -> str:
        """The prompt condition under which such a kernel is shown."""
        key = "headers" if uses_headers else "standalone"
        if key not in self.recipe.conditions:
            raise UsageError(f"the recipe '{self.recipe.name}' has no condition for kernels of kind '{key}'; add one")
        return self.recipe.conditions[key]

    def sizes(self, task: Task, name: str) -> dict[str, int]:
        """The timed sizes that the prompt shows: one of the recipe's for the operation, chosen by the row's name.

        Without a fitting one they are the task's own.
        """
        fixed = task.fixed_sizes
        fitting = [
            {size: {**shape, **fixed}[size] for size in task.sizes}
            for shape in self.recipe.shapes.get(task.operation, ())
            if set(task.sizes) <= {*shape, *fixed}
        ]
        if not fitting:
            return dict(task.of_tier("core")[0].sizes)
        digest = hashlib.sha256(f"{self.recipe.seed} {name}".encode()).digest()
        return fitting[int.from_bytes(digest[:4], "big") % len(fitting)]

    def messages(self, task: Task, target: Target, condition: str, sizes: Mapping[str, int]) -> tuple[Message, ...]:
        """System and user message for a task as `stated` with timed ``sizes``."""
        prompt = compose(stated(task, sizes), target, condition, header_text=self._headers)
        return Message(role="system", content=prompt.system), Message(role="user", content=prompt.user)


def stated(task: Task, sizes: Mapping[str, int]) -> Task:
    """The task as prompts state it: its timed sizes are ``sizes``; what is checked stays as the row says."""
    shown = (Workload(tier="core", sizes=dict(sizes)), *task.of_tier("small"))
    return task.model_copy(update={"workloads": shown})


def shape_conflict(task: Task, sizes: Mapping[str, int]) -> str:
    """Why showing these sizes would give an evaluation task away; empty if it would not."""
    other = shares_shape(task, sizes)
    return f"the prompt shows the timed sizes of {other}" if other and task.suite == "training" else ""


def answer(recipe: Recipe, explanation: str, sentence: str, source: str) -> Message:
    """The assistant's turn: explanation first, then the complete file in one fenced block."""
    code = f"```cuda\n{source.rstrip()}\n```\n"
    text = f"{sentence}\n\n{code}" if sentence else code
    if recipe.reasoning == "inline":
        return Message(role="assistant", content=f"{explanation.strip()}\n\n{text}")
    return Message(role="assistant", content=text, reasoning_content=explanation.strip())


def failed_turn(source: str, told: str) -> Sequence[Message]:
    """A model's faulty answer and what it is told of it, as in a run of several turns."""
    return (
        Message(role="assistant", content=f"```cuda\n{source.rstrip()}\n```\n"),
        Message(role="user", content=told),
    )
