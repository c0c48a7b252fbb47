"""Worked explanations: templates filled with a kernel's own numbers, and with a fault's cause and place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ptxbench.adapt.data.families import Variant
from ptxbench.adapt.data.faults import Change, Fault
from ptxbench.core import Verdict, sizes_text

SHOWN_CHANGES = 3
"""Places of a fault that its explanation quotes; what rewrites whole kernels differs in many."""


def explain_variant(variant: Variant, sizes: Mapping[str, int]) -> str:
    """The plan of a kernel before its code, in Markdown; ``sizes`` are those that the prompt shows as timed."""
    facts = variant.plan.facts
    gemm = facts["operation"] == "gemm"
    if gemm:
        columns = -(-sizes["N"] // facts["tile_n"])
        tiles, steps = -(-sizes["M"] // facts["product_m"]) * columns * sizes.get("L", 1), sizes["K"] // facts["tile_k"]
    else:
        tiles, steps = sizes["B"] * sizes["H"] * (sizes["S"] // facts["rows"]), -(-sizes["S"] // facts["block"])
    return _render(
        "gemm.md.j2" if gemm else "attention.md.j2",
        f=facts,
        sizes_text=sizes_text(sizes),
        tiles=tiles,
        steps=steps,
        processors=variant.target.sheet.sm_count,
    )


def explain_solution(source: str, about: str) -> str:
    """The plan of a hand-written kernel: what the comment at its head says, and its constants."""
    head = re.match(r"(?://[^\n]*\n)+", source)
    comment = re.sub(r"(?m)^// ?", "", head[0]).strip() if head else about
    constants = re.findall(r"(?m)^constexpr int ([^;]*);(?:  // ([^\n]*))?", source)
    lines = [f"- {names}" + (f": {remark}" if remark else "") for names, remark in constants]
    return f"{comment}\n\n**Constants.**\n" + "\n".join(lines) + "\n" if lines else comment + "\n"


def explain_repair(fault: Fault, verdict: Verdict, changes: Sequence[Change]) -> str:
    """What is wrong, where, and what the repair is, in Markdown."""
    shown = list(changes[:SHOWN_CHANGES])
    return _render("repair.md.j2", fault=fault, verdict=_in_brief(verdict), changes=shown)


def teacher_prompt(words: tuple[int, int], task: str, facts: str, source: str) -> str:
    """What a teacher model is asked about a kernel; ``words`` are the least and the most it may write."""
    least, most = words
    return _render("teacher.md.j2", least=least, most=most, task=task, facts=facts, source=source.rstrip())


def summary_sentence(variant: Variant) -> str:
    """One line for the answer itself, before the code."""
    words = ", ".join(technique.replace("_", " ") for technique in variant.plan.techniques)
    return f"The kernel below uses: {words}."


def _in_brief(verdict: Verdict) -> str:
    """What a verdict says, without places, sizes and ratios; of a kernel that is right, its first finding or speed."""
    if verdict.timing is not None and not verdict.hazards:
        return f"{verdict.reason.partition(' (')[0]}."
    said = verdict.hazards[0].message if verdict.outcome.accepted and verdict.hazards else verdict.reason
    said = re.sub(r" at [A-Z]+=\d+(?:, [A-Z]+=\d+)*(?: on \w+ inputs)?(?: with [^:]*)?", "", said)
    said = re.sub(r" \([^()]*\)", "", said.partition("; ")[0])
    return said.rstrip(".:") + "."


def _render(name: str, **values: Any) -> str:
    environment = Environment(
        loader=PackageLoader("ptxbench.adapt.data", "explanations"),
        block_start_string="<%", block_end_string="%>", variable_start_string="<$", variable_end_string="$>",
        trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, autoescape=False,
    )  # fmt: skip
    text = environment.get_template(name).render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
