"""Repair rows from verified faults: a good kernel is broken in one place, and the judge must find exactly that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from ptxbench.adapt.data.conversation import Prompter, answer, failed_turn, shape_conflict, stated
from ptxbench.adapt.data.explain import explain_repair
from ptxbench.adapt.data.faults import Fault, changes
from ptxbench.adapt.data.judged import GoodKernel
from ptxbench.adapt.data.planning import Attempt, Planned
from ptxbench.adapt.data.recipe import Recipe
from ptxbench.adapt.data.rows import Dropped, Row, provenance
from ptxbench.adapt.data.split import families
from ptxbench.core import Evaluator, UnsupportedError, Verdict, make_candidate
from ptxbench.prompts import feedback


@dataclass(frozen=True)
class Confirmed:
    """A faulty kernel of which the judge said what it had to."""

    fault: Fault
    good: GoodKernel
    source: str
    verdict: Verdict
    failure: str


@dataclass
class Trial:
    """What became of one operator: confirmed faults, and attempts that were not."""

    fault: Fault
    confirmed: list[Confirmed] = field(default_factory=list[Confirmed])
    dropped: list[Dropped] = field(default_factory=list[Dropped])
    applies: int = 0

    @property
    def judged(self) -> int:
        """Faulty kernels that were judged."""
        return len(self.confirmed) + len(self.dropped)


def try_fault(evaluator: Evaluator, planned: Planned, recipe: Recipe) -> Trial:
    """Judges an operator's faulty kernels in their order until enough of them are confirmed."""
    trial = Trial(planned.fault, applies=len(planned.attempts))
    for attempt in planned.attempts:
        if len(trial.confirmed) == recipe.faults.per_fault or trial.judged == recipe.faults.tries:
            break
        _judge(evaluator, trial, attempt)
    return trial


def add_more(evaluator: Evaluator, trial: Trial, planned: Planned, wanted: int) -> None:
    """Judges further kernels of an operator that was confirmed before until ``wanted`` more are confirmed."""
    goal, last = len(trial.confirmed) + wanted, trial.judged + 2 * wanted
    for attempt in planned.attempts[trial.judged :]:
        if len(trial.confirmed) == goal or trial.judged == last:
            return
        _judge(evaluator, trial, attempt)


def repair_row(recipe: Recipe, prompter: Prompter, item: Confirmed) -> Row | Dropped:
    """The row of one confirmed fault, before its tokens are counted."""
    kernel = item.good.kernel
    sizes = prompter.sizes(kernel.task, kernel.name)
    conflict = shape_conflict(kernel.task, sizes)
    name = f"{item.fault.name} + {kernel.name}"
    if conflict:
        return Dropped(name=name, gate="evaluation_shape", detail=conflict)
    condition = prompter.condition(uses_headers=kernel.uses_headers)
    told = feedback(
        item.verdict, item.source, max_tokens=recipe.gates.feedback_tokens, stated=stated(kernel.task, sizes)
    )
    explanation = explain_repair(item.fault, item.verdict, changes(item.source, kernel.source))
    return Row(
        kind="repair",
        task=kernel.task.name,
        task_family=families()[kernel.task.name],
        target=kernel.target,
        kernel_family=kernel.group,
        techniques=kernel.techniques,
        failure=item.failure,
        fault=item.fault.name,
        prompt=(
            *prompter.messages(kernel.task, kernel.target, condition, sizes),
            *failed_turn(item.source, told),
        ),
        completion=(answer(recipe, explanation, item.fault.fix, kernel.source),),
        condition=condition,
        sizes=sizes,
        speedup=item.good.verdict.timing.speedup.median if item.good.verdict.timing else None,
        provenance=provenance(kernel.name, item.good.verdict, item.verdict),
    )


def shortfalls(recipe: Recipe, rows: Sequence[Row]) -> dict[str, int]:
    """How many rows each kind of failure lacks of the recipe's minimum."""
    counts = Counter(row.failure for row in rows)
    return {kind: least - counts[kind] for kind, least in recipe.faults.minimum.items() if counts[kind] < least}


def _judge(evaluator: Evaluator, trial: Trial, attempt: Attempt) -> None:
    item, source = attempt
    name = f"{trial.fault.name} + {item.kernel.name}"
    try:
        verdict = evaluator.evaluate(
            make_candidate(source, task=item.kernel.task.name, target=item.kernel.target, origin=name)
        )
    except UnsupportedError as error:
        trial.dropped.append(Dropped(name=name, gate="no_verdict", detail=str(error)))
        return
    failure = trial.fault.confirmed(source, verdict, item.verdict)
    if failure:
        trial.confirmed.append(Confirmed(trial.fault, item, source, verdict, failure))
        return
    gate = "not_broken" if verdict.outcome.accepted and not verdict.hazards else "other_diagnosis"
    trial.dropped.append(Dropped(name=name, gate=gate, detail=f"{verdict.outcome.value}: {verdict.reason}"))
