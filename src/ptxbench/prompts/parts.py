"""The parts that prompts are made of: documents with metadata, one file each under the folder ``parts``.

A file begins with metadata in TOML between two lines ``+++``; the rest is a Jinja2 template with the delimiters of
`ENVIRONMENT`, chosen so that CUDA, PTX and Markdown need no escapes. Its folder is its group, its stem its name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal

from jinja2 import Environment, StrictUndefined

from ptxbench.core import Record, Target, Task

_FENCE = "+++\n"

ENVIRONMENT = Environment(
    undefined=StrictUndefined,
    autoescape=False,  # the output is text for a model, not HTML
    trim_blocks=True,
    lstrip_blocks=True,
    variable_start_string="<$",
    variable_end_string="$>",
    block_start_string="<%",
    block_end_string="%>",
    comment_start_string="<#",
    comment_end_string="#>",
)


class Part(Record):
    """One document. It applies to ``targets`` and ``operations`` (all if empty) with all of ``options`` switched on.

    ``version`` grows with every change of the text. ``order`` is its place among the parts of its group, ``role`` says
    whose message it belongs to.
    """

    name: str
    group: str
    title: str
    version: int
    order: int = 0
    role: Literal["system", "user"] = "user"
    targets: tuple[Target, ...] = ()
    operations: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    template: str

    def applies(self, task: Task, target: Target) -> bool:
        """Whether the part says something about this task on this target."""
        return (
            (not self.targets or target in self.targets)
            and (not self.operations or task.operation in self.operations)
            and all(task.options.get(option, False) for option in self.options)
        )

    def render(self, context: Mapping[str, object]) -> str:
        """The text, without blank lines at either end."""
        return ENVIRONMENT.from_string(self.template).render(context).strip()


def load_parts() -> dict[str, Part]:
    """Every part by name, sorted by group, order and name. A name that two files share is a `ValueError`."""
    folder = resources.files("ptxbench.prompts") / "parts"
    groups = [group for group in folder.iterdir() if group.is_dir()]
    found = [_read(file, group.name) for group in groups for file in group.iterdir() if file.name.endswith(".md")]
    parts: dict[str, Part] = {}
    for part in sorted(found, key=lambda part: (part.group, part.order, part.name)):
        if part.name in parts:
            raise ValueError(f"two parts have the name '{part.name}'")
        parts[part.name] = part
    return parts


def _read(file: Traversable, group: str) -> Part:
    text = file.read_text(encoding="utf-8")
    before, metadata, template = text.split(_FENCE, 2)
    if before:
        raise ValueError(f"the part {file.name} must begin with a line +++")
    return Part(name=file.name.removesuffix(".md"), group=group, template=template, **tomllib.loads(metadata))
