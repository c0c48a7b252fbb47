"""Families of kernels as data: templates, the tasks they apply to, and designs that are sets of kernels."""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from pydantic import ValidationError

from ptxbench.adapt.data.attention import AttentionDesign, plan_attention
from ptxbench.adapt.data.gemm import GemmDesign, plan_gemm
from ptxbench.adapt.data.plan import Plan
from ptxbench.adapt.data.standalone import stand_alone
from ptxbench.core import Record, Target, Task
from ptxbench.tasks import get_task

Planner = Callable[[Task, Target, Mapping[str, Any]], Plan | None]


def _plan_gemm(task: Task, target: Target, design: Mapping[str, Any]) -> Plan | None:
    return plan_gemm(task, target, GemmDesign.model_validate(design))


def _plan_attention(task: Task, target: Target, design: Mapping[str, Any]) -> Plan | None:
    return plan_attention(task, target, AttentionDesign.model_validate(design))


PLANNERS: Mapping[str, Planner] = {"gemm": _plan_gemm, "attention": _plan_attention}


class Family(Record):
    """A template with the designs that fill it. ``planner`` names who works out budgets and names."""

    name: str
    template: str
    planner: str
    target: Target
    tasks: tuple[str, ...]
    designs: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Variant:
    """One kernel of a family: its source, what it shows, and the facts for its explanation."""

    name: str
    family: str
    task: str
    target: Target
    source: str
    design: Mapping[str, Any]
    plan: Plan

    @property
    def uses_headers(self) -> bool:
        """Whether it includes the header set."""
        return "#include <ptxbench/" in self.source


def load_families() -> tuple[Family, ...]:
    """The rows of ``families.toml``; `ValueError` on a row that contradicts itself."""
    text = (resources.files("ptxbench.adapt.data") / "families.toml").read_text(encoding="utf-8")
    families = tuple(Family.model_validate(row) for row in tomllib.loads(text)["families"])
    for family in families:
        if family.planner not in PLANNERS:
            raise ValueError(f"family '{family.name}' names an unknown planner '{family.planner}'")
    return families


@functools.cache
def kernel_templates() -> Environment:
    """The environment of the kernel templates (``<$ $>``, ``<% %>``, because C++ uses braces)."""
    return Environment(
        loader=PackageLoader("ptxbench.adapt.data", "kernels"),
        block_start_string="<%", block_end_string="%>", variable_start_string="<$", variable_end_string="$>",
        comment_start_string="<#", comment_end_string="#>",
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined, autoescape=False,
    )  # fmt: skip


def variants(family: Family, task: Task, include: Path) -> Iterator[Variant]:
    """Every kernel of a family for a task, in the order of its designs.

    ``include`` is the folder of the header set, from which standalone kernels take what they need.
    """
    template = kernel_templates().get_template(family.template)
    for design in designs(family):
        try:
            plan = PLANNERS[family.planner](task, family.target, design)
        except ValidationError as error:
            raise ValueError(f"family '{family.name}' has an impossible design {design}: {error}") from error
        if plan is None:
            continue
        source = _tidy(template.render(v=plan.parameters))
        if design.get("standalone"):
            source = stand_alone(source, include)
        yield Variant(
            name=f"{family.name}/{task.name}/{label(design)}",
            family=family.name,
            task=task.name,
            target=family.target,
            source=source,
            design=design,
            plan=plan,
        )


def _tidy(source: str) -> str:
    """Blank lines as a person leaves them: one at a time, none before a closing brace or after an opening one."""
    source = re.sub(r"[ \t]+$", "", source, flags=re.MULTILINE)
    source = re.sub(r"\n{3,}", "\n\n", source)
    source = re.sub(r"\n\n(?=[ \t]*}(?!  //))", "\n", source)
    return re.sub(r"(?<=[{(])\n\n(?=[ \t])", "\n", source)


def designs(family: Family) -> Iterator[dict[str, Any]]:
    """Every combination of the values of every design; the last key varies fastest."""
    for row in family.designs:
        values = [cast("list[Any]", value) if isinstance(value, list) else [value] for value in row.values()]
        for chosen in itertools.product(*values):
            yield dict(zip(row, chosen, strict=True))


def label(design: Mapping[str, Any]) -> str:
    """A short name such as ``warp-n128-c2-s4-tma``."""
    short = {"tile_n": "n", "consumers": "c", "stages": "s", "swizzle": "sw", "tile": "t", "warpgroups": "w",
             "accumulators": "acc"}  # fmt: skip
    parts: list[str] = []
    for key, value in design.items():
        if isinstance(value, bool):
            parts += [key] if value else []
        elif key in short:
            parts.append(f"{short[key]}{value}")
        elif value:
            parts.append(f"{key}_{value}" if key in ("cluster", "weights") else str(value))
    return "-".join(parts)


def all_variants(include: Path) -> Iterator[Variant]:
    """Every kernel of every family."""
    for family in load_families():
        for name in family.tasks:
            yield from variants(family, get_task(name), include)
