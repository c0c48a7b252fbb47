"""Explanations by a teacher model, which count only if they say nothing that is not known of the kernel."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ptxbench.adapt.data.conversation import Prompter
from ptxbench.adapt.data.explain import explain_variant, teacher_prompt
from ptxbench.adapt.data.judged import GoodKernel
from ptxbench.adapt.data.recipe import Explanations, Recipe
from ptxbench.core import UsageError

SYSTEM = "You explain CUDA kernels to engineers who learn to write them. You are exact, and you invent nothing."


class Lesson(NamedTuple):
    """What the teacher is asked about one kernel; ``number`` tells the kernels of a task apart."""

    task: str
    number: int
    system: str
    user: str


Teacher = Callable[[Sequence[Lesson]], Sequence[str]]
"""Answers lessons in their order; an empty text where there is no answer."""


class Taught(NamedTuple):
    """Accepted explanations by kernel, and why the others were not (these keep the template's)."""

    plans: Mapping[str, str]
    fallbacks: Mapping[str, int]


def taught(recipe: Recipe, prompter: Prompter, good: Sequence[GoodKernel], teacher: Teacher | None) -> Taught:
    """Asks the recipe's teacher, if it names one, about every kernel of a family.

    `UsageError` if nobody can be asked, or nothing was answered.
    """
    wanted = recipe.explanations
    if not wanted.teacher:
        return Taught({}, {})
    if teacher is None:
        raise UsageError(f"the recipe '{recipe.name}' names the teacher {wanted.teacher}, which cannot be asked here")
    numbers: Counter[str] = Counter()
    asked: list[tuple[str, Lesson, str]] = []
    for item in good:
        kernel = item.kernel
        if kernel.variant is None:
            continue
        numbers[kernel.task.name] += 1
        sizes = prompter.sizes(kernel.task, kernel.name)
        facts = explain_variant(kernel.variant, sizes)
        condition = prompter.condition(uses_headers=kernel.uses_headers)
        task = prompter.messages(kernel.task, kernel.target, condition, sizes)[1].content
        lesson = Lesson(kernel.task.name, numbers[kernel.task.name], SYSTEM,
                        teacher_prompt(wanted.words, task, facts, kernel.source))  # fmt: skip
        asked.append((kernel.name, lesson, "\n".join((kernel.source, facts, task))))
    answers = teacher([lesson for _, lesson, _ in asked])
    if asked and not any(answers):
        raise UsageError(f"the teacher {wanted.teacher} answered nothing; see that it can be reached, or leave it out")
    plans: dict[str, str] = {}
    fallbacks: Counter[str] = Counter()
    for (name, _, known), answer in zip(asked, answers, strict=True):
        problem = objection(answer, known, wanted)
        if problem:
            fallbacks[problem] += 1
        else:
            plans[name] = answer.strip() + "\n"
    return Taught(plans, dict(fallbacks))


def objection(answer: str, known: str, wanted: Explanations) -> str:
    """Why an explanation does not count, in a few words that are the same for all of its kind; empty if it does.

    ``known`` is all that may be spoken of: the kernel, its facts and its task.
    """
    least, most = wanted.words
    if not answer.strip():
        return "no answer"
    if "```" in answer:
        return "quotes code"
    if not least <= len(answer.split()) <= most:
        return "too short or too long"
    plain = known.replace(",", "")
    if any(name.strip() not in known for name in re.findall(r"`([^`\n]+)`", answer)):
        return "names what is not in the kernel"
    if _figures(answer) - _figures(plain):
        return "numbers that are not the kernel's"
    return ""


def _figures(text: str) -> set[str]:
    """Numbers and words with digits, in lower case; thousands separators, list marks and closing zeros do not count."""
    text = re.sub(r"(?m)^\s*\d+[.)]\s", "", text)
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text.lower())
    found = re.findall(r"(?<![\w.])(?:[a-z_]\w*\d\w*|0x[0-9a-f]+|\d+(?:\.\d+)?)", text)
    return {figure.rstrip("0").rstrip(".") if "." in figure else figure for figure in found}
