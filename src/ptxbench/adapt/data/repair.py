"""Repair rows from verified faults: a good kernel is broken in one place, and the judge must find exactly that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ptxbench.adapt.data.conversation import Prompter, answer, failed_turn, shape_conflict
from ptxbench.adapt.data.expert import provenance
from ptxbench.adapt.data.explain import explain_repair
from ptxbench.adapt.data.faults import Fault, changes
from ptxbench.adapt.data.judged import GoodKernel
from ptxbench.adapt.data.recipe import Recipe
from ptxbench.adapt.data.rows import Dropped, Row
from ptxbench.adapt.data.similarity import Shingles, jaccard, shingles
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


def try_fault(evaluator: Evaluator, fault: Fault, good: Sequence[GoodKernel], recipe: Recipe) -> Trial:
    """Applies an operator to kernels that are unlike each other until enough of them are confirmed.

    One that only slows down is not tried where nothing was timed.
    """
    trial = Trial(fault)
    if fault.only_slow and not any(item.verdict.timing for item in good):
        return trial
    for item, source in _unlike_first(fault, good, recipe.faults.unlike):
        trial.applies += 1
        if len(trial.confirmed) < recipe.faults.per_fault and trial.judged < recipe.faults.tries:
            _judge(evaluator, trial, item, source)
    return trial


def add_more(evaluator: Evaluator, trial: Trial, good: Sequence[GoodKernel], wanted: int) -> None:
    """Applies an operator that was confirmed before to further kernels until ``wanted`` more are confirmed."""
    done = {item.good.kernel.name for item in trial.confirmed}
    done |= {item.name.partition(" + ")[2] for item in trial.dropped}
    goal, attempts = len(trial.confirmed) + wanted, 0
    for item in good:
        if len(trial.confirmed) >= goal or attempts >= 2 * wanted:
            return
        if item.kernel.name in done or item.kernel.variant is None:
            continue
        source = trial.fault.apply_to(item.kernel.variant)
        if source is not None:
            attempts += 1
            _judge(evaluator, trial, item, source)


def repair_row(recipe: Recipe, prompter: Prompter, item: Confirmed) -> Row | Dropped:
    """The row of one confirmed fault, before its tokens are counted."""
    kernel = item.good.kernel
    sizes = prompter.sizes(kernel.task, kernel.name)
    conflict = shape_conflict(kernel.task, sizes)
    name = f"{item.fault.name} + {kernel.name}"
    if conflict:
        return Dropped(name=name, gate="evaluation_shape", detail=conflict)
    condition = prompter.condition(uses_headers=kernel.uses_headers)
    told = feedback(item.verdict, item.source, max_tokens=recipe.gates.feedback_tokens)
    explanation = explain_repair(item.fault, item.verdict, changes(item.source, kernel.source))
    origin = provenance(item.good)
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
        provenance=origin.model_copy(
            update={
                "faulty": item.verdict.source_digest,
                "verdicts": {**origin.verdicts, "faulty": item.verdict.outcome.value},
            }
        ),
    )


def shortfalls(recipe: Recipe, rows: Sequence[Row]) -> dict[str, int]:
    """How many rows each kind of failure lacks of the recipe's minimum."""
    counts = Counter(row.failure for row in rows)
    return {kind: least - counts[kind] for kind, least in recipe.faults.minimum.items() if counts[kind] < least}


def _judge(evaluator: Evaluator, trial: Trial, item: GoodKernel, source: str) -> None:
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


def _unlike_first(fault: Fault, good: Sequence[GoodKernel], unlike: float) -> Iterator[tuple[GoodKernel, str]]:
    """Kernels to which the fault applies, with the faulty source: first each that is unlike all before it."""
    later: list[tuple[GoodKernel, str]] = []
    seen: list[Shingles] = []
    for item in good:
        source = fault.apply_to(item.kernel.variant) if item.kernel.variant else None
        if source is None:
            continue
        own = shingles(item.kernel.source)
        if all(jaccard(own, other) < unlike for other in seen):
            seen.append(own)
            yield item, source
        else:
            later.append((item, source))
    yield from later
