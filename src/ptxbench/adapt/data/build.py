"""Building a data set: kernels chosen, judged, turned into rows, measured against the gates, written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from ptxbench.adapt.data.conversation import Prompter
from ptxbench.adapt.data.counting import token_counter
from ptxbench.adapt.data.expert import expert_row
from ptxbench.adapt.data.faults import Fault, load_faults
from ptxbench.adapt.data.judged import GoodKernel, Say, good_kernels
from ptxbench.adapt.data.kernels import select
from ptxbench.adapt.data.mine import mined_rows
from ptxbench.adapt.data.planning import Planned, plan_attempts
from ptxbench.adapt.data.recipe import Recipe
from ptxbench.adapt.data.repair import Trial, add_more, repair_row, shortfalls, try_fault
from ptxbench.adapt.data.rows import Dropped, Row
from ptxbench.adapt.data.split import families_of
from ptxbench.adapt.data.teacher import Teacher, taught
from ptxbench.core import Evaluator, UsageError, in_parallel

Display = Callable[[str, int], AbstractContextManager[Say]]
"""Opens a progress display with a title and a number of items; yields what is called once per finished item."""


@dataclass(frozen=True)
class Built:
    """A data set before it is written. ``trials`` says what became of every fault operator (repair recipes),
    ``fallbacks`` why explanations of a teacher did not count (expert recipes).
    """

    recipe: Recipe
    rows: Sequence[Row]
    dropped: Sequence[Dropped]
    trials: Sequence[Trial] = ()
    fallbacks: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def missing(self) -> dict[str, int]:
        """Rows that kinds of failure lack of the recipe's minimum."""
        return shortfalls(self.recipe, self.rows) if self.recipe.kind == "repair" else {}


def build(
    recipe: Recipe, evaluator: Evaluator, include: Path, *, jobs: int, display: Display, teacher: Teacher | None = None
) -> Built:
    """Builds the rows of a recipe with an evaluator that stores its verdicts, so that a new start goes on.

    ``include`` is the folder of the header set; ``teacher`` asks the model that the recipe names for explanations.
    Raises `UsageError` if nothing is left to judge.
    """
    selection = select(recipe, include)
    prompter = Prompter(recipe, include)
    if not selection.kernels and not recipe.sources.trajectories:
        gates = Counter(item.gate for item in selection.dropped)
        raise UsageError(f"the recipe '{recipe.name}' leaves no kernel to judge ({_listed(gates)}); widen its sources")
    with display("judging kernels", len(selection.kernels)) as say:
        good, refused = good_kernels(
            evaluator, selection.kernels, jobs=jobs, speed_floor=recipe.gates.speed_floor, say=say
        )
    dropped = [*selection.dropped, *refused]
    trials: Sequence[Trial] = ()
    fallbacks: Mapping[str, int] = {}
    if recipe.kind == "expert":
        plans, fallbacks = taught(recipe, prompter, good, teacher)
        candidates: list[Row | Dropped] = [
            expert_row(recipe, prompter, item, plans.get(item.kernel.name, "")) for item in good
        ]
    else:
        trials = _try_faults(recipe, evaluator, good, jobs, display)
        candidates = [repair_row(recipe, prompter, item) for trial in trials for item in trial.confirmed]
        dropped += [item for trial in trials for item in trial.dropped]
    candidates += mined_rows(recipe, prompter)
    rows, refused = _gated(recipe, candidates)
    return Built(recipe, rows, [*dropped, *refused], trials, fallbacks)


def _try_faults(
    recipe: Recipe, evaluator: Evaluator, good: Sequence[GoodKernel], jobs: int, display: Display
) -> list[Trial]:
    """Every operator on unlike kernels, then more of those whose kind of failure is short of rows.

    Raises `UsageError` if no kernel is good.
    """
    if not good:
        raise UsageError(f"the judge accepted none of the kernels of the recipe '{recipe.name}', so none can be broken")
    planned = plan_attempts(_chosen_faults(recipe), _unlike_order(good), recipe.faults)
    with display("breaking kernels", len(planned)) as say:
        trials = in_parallel(
            lambda one: try_fault(evaluator, one, recipe),
            planned,
            jobs,
            lambda trial: say(f"{len(trial.confirmed)} of {trial.judged} confirmed  {trial.fault.name}"),
        )
    lacking = {
        kind: least - sum(item.failure == kind for trial in trials for item in trial.confirmed)
        for kind, least in recipe.faults.minimum.items()
    }
    lacking = {kind: number for kind, number in lacking.items() if number > 0}
    if lacking:
        with display("more of what is short", len(lacking)) as say:
            for kind, number in lacking.items():
                _fill(evaluator, kind, number, trials, planned)
                say(kind)
    return trials


def _fill(evaluator: Evaluator, kind: str, number: int, trials: Sequence[Trial], planned: Sequence[Planned]) -> None:
    """Adds ``number`` faults of a kind, in equal shares from the operators that have shown it."""
    both = zip(trials, planned, strict=True)
    able = [(trial, plan) for trial, plan in both if any(item.failure == kind for item in trial.confirmed)]
    for position, (trial, plan) in enumerate(able):
        share = -(-number // (len(able) - position))
        before = len(trial.confirmed)
        add_more(evaluator, trial, plan, share)
        number -= len(trial.confirmed) - before


def _chosen_faults(recipe: Recipe) -> list[Fault]:
    """The recipe's operators, topics in turns, so that an interrupted build has tried some of each."""
    faults = load_faults()
    known = {fault.name for fault in faults}
    unknown = [name for name in recipe.faults.names if name not in known]
    if unknown:
        raise UsageError(f"the recipe '{recipe.name}' names the unknown fault '{unknown[0]}'")
    chosen = [fault for fault in faults if not recipe.faults.names or fault.name in recipe.faults.names]
    turn: Counter[str] = Counter()
    keyed: list[tuple[int, Fault]] = []
    for fault in chosen:
        keyed.append((turn[fault.topic], fault))
        turn[fault.topic] += 1
    return [fault for _, fault in sorted(keyed, key=lambda pair: pair[0])]


def _unlike_order(good: Sequence[GoodKernel]) -> list[GoodKernel]:
    """Kernel families and tasks in turns, so that the first few are as different as can be."""
    turn: Counter[str] = Counter()
    place: Counter[str] = Counter()
    keyed: list[tuple[tuple[int, int], int, GoodKernel]] = []
    for index, item in enumerate(good):
        group = item.kernel.group
        keyed.append(((turn[group], place[item.kernel.task.name]), index, item))
        turn[group] += 1
        place[item.kernel.task.name] += 1
    return [item for _, _, item in sorted(keyed, key=lambda entry: entry[:2])]


def _gated(recipe: Recipe, candidates: Sequence[Row | Dropped]) -> tuple[list[Row], list[Dropped]]:
    """Counts tokens, drops what is too long or there already, and assigns the split."""
    count = token_counter(recipe.tokenizer)
    held_back = families_of(recipe.validation)
    rows: dict[str, Row] = {}
    dropped: list[Dropped] = []
    for item in candidates:
        if isinstance(item, Dropped):
            dropped.append(item)
            continue
        tokens = count(item.conversation)
        name = f"{item.fault} + {item.provenance.origin}".removeprefix(" + ")
        if tokens > recipe.gates.max_tokens:
            detail = f"{tokens} tokens, at most {recipe.gates.max_tokens}"
            dropped.append(Dropped(name=name, gate="too_long", detail=detail))
        elif item.id in rows:
            dropped.append(Dropped(name=name, gate="same_row", detail=f"the same messages as row {item.id}"))
        else:
            split = "validation" if item.task_family in held_back else "train"
            rows[item.id] = item.model_copy(update={"tokens": tokens, "split": split})
    return list(rows.values()), dropped


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {gate.replace('_', ' ')}" for gate, number in counts.most_common()) or "no source"
