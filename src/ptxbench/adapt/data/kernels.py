"""Good kernels before they are judged: where they come from, and the gates that need no judge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxbench.adapt.data.families import Variant, load_families, variants
from ptxbench.adapt.data.recipe import Recipe
from ptxbench.adapt.data.rows import Dropped
from ptxbench.adapt.data.similarity import NearDuplicates, shingles
from ptxbench.adapt.data.similarity import jaccard as similarity
from ptxbench.adapt.data.split import evaluation_families, families, families_of
from ptxbench.core import Target, Task, UsageError
from ptxbench.solutions import Solution, solutions
from ptxbench.tasks import get_task


@dataclass(frozen=True)
class Kernel:
    """A kernel that ought to be right. ``variant`` or ``solution`` is what it was made from."""

    name: str
    task: Task
    target: Target
    source: str
    group: str
    techniques: tuple[str, ...]
    variant: Variant | None = None
    solution: Solution | None = None

    @property
    def uses_headers(self) -> bool:
        """Whether it includes the header set."""
        return "#include <ptxbench/" in self.source


@dataclass
class Selection:
    """Kernels to judge, and what was dropped before."""

    kernels: list[Kernel]
    dropped: list[Dropped]


def select(recipe: Recipe, include: Path) -> Selection:
    """The kernels of a recipe in the order in which they are judged.

    Dropped without judging: kernels of evaluation families that were not asked for, kernels longer than the recipe
    allows, near-duplicates of kernels before, and kernels too similar to a known-good one of an evaluation task. Of
    what is left, ``per_task`` are taken for every task and target, evenly over the designs.
    """
    dropped: list[Dropped] = []
    chosen: list[Kernel] = []
    same_task: dict[tuple[str, str], NearDuplicates] = {}
    all_tasks = NearDuplicates(recipe.gates.copy_of_other_task)
    reference = {row.file: shingles(row.source()) for row in solutions()}
    for kernel in _in_turns(list(_permitted(recipe, include, dropped))):
        own = shingles(kernel.source)
        among = same_task.setdefault((kernel.task.name, kernel.target), NearDuplicates(recipe.gates.duplicate))
        if (found := among.add(kernel.name, own)).alike >= among.threshold or (
            found := all_tasks.add(kernel.name, own)
        ).alike >= all_tasks.threshold:
            detail = f"{found.alike:.2f} like {found.name}"
            dropped.append(Dropped(name=kernel.name, gate="near_duplicate", detail=detail))
            continue
        closest = max(reference, key=lambda file: similarity(own, reference[file]))
        alike = similarity(own, reference[closest])
        if kernel.solution is None and alike >= recipe.gates.contamination:
            detail = f"{alike:.2f} like the evaluation solution {closest}"
            dropped.append(Dropped(name=kernel.name, gate="contamination", detail=detail))
            continue
        chosen.append(kernel)
    return Selection(_spread(chosen, recipe.sources.per_task, dropped), dropped)


def _in_turns(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Tasks and targets in turns, beginning with another one each time.

    Of near-duplicates across tasks the first is kept, so that no task should always come first.
    """
    groups: dict[tuple[str, str], list[Kernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.task.name, kernel.target), []).append(kernel)
    queues = list(groups.values())
    ordered: list[Kernel] = []
    for turn in range(max(map(len, queues), default=0)):
        for i in range(len(queues)):
            queue = queues[(turn + i) % len(queues)]
            ordered += queue[turn : turn + 1]
    return ordered


def _permitted(recipe: Recipe, include: Path, dropped: list[Dropped]) -> Iterator[Kernel]:
    """Kernels of all sources whose task is asked for and not held out, and which are not too long."""
    held_out = evaluation_families() - families_of(recipe.evaluation_tasks)
    most = recipe.gates.max_source_bytes
    family = families()
    allowed = set(recipe.evaluation_tasks)
    for kernel in _all(recipe, include):
        if recipe.sources.tasks and kernel.task.name not in recipe.sources.tasks:
            continue
        if kernel.target not in recipe.sources.targets:
            continue
        if family[kernel.task.name] in held_out:
            detail = f"its family {family[kernel.task.name]} is held out for evaluation"
            dropped.append(Dropped(name=kernel.name, gate="evaluation_family", detail=detail))
        elif kernel.task.suite != "training" and kernel.task.name not in allowed:
            detail = f"{kernel.task.name} is evaluated and was not asked for"
            dropped.append(Dropped(name=kernel.name, gate="evaluation_family", detail=detail))
        elif most is not None and (size := len(kernel.source.encode())) > most:
            dropped.append(Dropped(name=kernel.name, gate="long_kernel", detail=f"{size} bytes, at most {most}"))
        else:
            yield kernel


def _all(recipe: Recipe, include: Path) -> Iterator[Kernel]:
    if recipe.sources.solutions:
        for row in solutions():
            yield Kernel(f"solutions/{row.file}", get_task(row.task), row.target, row.source(), "solutions", (),
                         solution=row)  # fmt: skip
    known = {family.name: family for family in load_families()}
    unknown = [name for name in recipe.sources.families if name not in known]
    if unknown:
        raise UsageError(f"the recipe '{recipe.name}' names the unknown kernel family '{unknown[0]}'; "
                         f"there are {', '.join(known)}")  # fmt: skip
    for family in known.values():
        if recipe.sources.families and family.name not in recipe.sources.families:
            continue
        if family.target not in recipe.sources.targets:
            continue
        for name in family.tasks:
            if recipe.sources.tasks and name not in recipe.sources.tasks:
                continue
            task = get_task(name)
            for variant in variants(family, task, include):
                yield Kernel(variant.name, task, variant.target, variant.source, family.name,
                             tuple(variant.plan.techniques), variant=variant)  # fmt: skip


def _spread(kernels: Sequence[Kernel], limit: int, dropped: list[Dropped]) -> list[Kernel]:
    """At most ``limit`` per task, target and source, spread over the designs; the others are dropped as not needed.

    A larger limit takes the same kernels and more. Tasks come in turns, so that an early end is balanced, too.
    """
    groups: dict[tuple[str, str, str], list[Kernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.task.name, kernel.target, kernel.group), []).append(kernel)
    taken: list[tuple[int, Kernel]] = []
    for group in groups.values():
        ordered = [group[i] for i in spread_order(len(group))]
        taken += enumerate(ordered[:limit])
        detail = f"more than {limit} for its task and target"
        dropped += [Dropped(name=kernel.name, gate="not_needed", detail=detail) for kernel in ordered[limit:]]
    return [kernel for _, kernel in sorted(taken, key=lambda pair: pair[0])]


def spread_order(number: int) -> list[int]:
    """The numbers below ``number``, each beginning of them spread evenly: by their bits in reverse (van der Corput)."""
    bits = max(1, (number - 1).bit_length())
    order = (int(f"{i:0{bits}b}"[::-1], 2) for i in range(1 << bits))
    return [i for i in order if i < number]
