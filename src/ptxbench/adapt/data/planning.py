"""Which fault is tried on which kernel, and in which order, before anything is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ptxbench.adapt.data.faults import Fault
from ptxbench.adapt.data.judged import GoodKernel
from ptxbench.adapt.data.recipe import Faults
from ptxbench.adapt.data.similarity import Shingles, jaccard, shingles


class Attempt(NamedTuple):
    """A good kernel and what an operator makes of it."""

    good: GoodKernel
    source: str


@dataclass(frozen=True)
class Planned:
    """An operator and all faulty kernels that it can make, in the order in which they are judged."""

    fault: Fault
    attempts: Sequence[Attempt]


def plan_attempts(faults: Sequence[Fault], good: Sequence[GoodKernel], limits: Faults) -> list[Planned]:
    """The attempts of all operators.

    An operator begins with kernels that are unlike each other, and among these with the tasks, then the targets, that
    the operators before it planned least for: verdicts have no part in the order, so that it is the same every time.
    One that only slows down is for kernels that were timed.
    """
    texts = {item.kernel.name: shingles(item.kernel.source) for item in good}
    alike = _Alike(texts, limits.unlike)
    served: Counter[str] = Counter()
    planned: list[Planned] = []
    for fault in faults:
        fitting = [item for item in good if item.verdict.timing is not None or not fault.only_slow]
        left = [Attempt(item, source) for item in fitting if (source := _applied(fault, item)) is not None]
        ordered: list[Attempt] = []
        while left and len(ordered) < limits.tries:
            chosen = min(left, key=lambda attempt: (
                any(alike(attempt, other) for other in ordered),
                served[attempt.good.kernel.task.name], served[attempt.good.kernel.target],
            ))  # fmt: skip
            left.remove(chosen)
            ordered.append(chosen)
            if len(ordered) <= limits.per_fault:
                served.update((chosen.good.kernel.task.name, chosen.good.kernel.target))
        left.sort(key=lambda attempt: served[attempt.good.kernel.task.name])
        planned.append(Planned(fault, (*ordered, *left)))
    return planned


class _Alike:
    """Whether two attempts begin with kernels as similar as ``limit``; pairs are compared once."""

    def __init__(self, texts: dict[str, Shingles], limit: float) -> None:
        self._texts, self._limit = texts, limit
        self._known: dict[frozenset[str], bool] = {}

    def __call__(self, one: Attempt, other: Attempt) -> bool:
        a, b = one.good.kernel.name, other.good.kernel.name
        pair = frozenset((a, b))
        if pair not in self._known:
            self._known[pair] = jaccard(self._texts[a], self._texts[b]) >= self._limit
        return self._known[pair]


def _applied(fault: Fault, item: GoodKernel) -> str | None:
    return fault.apply_to(item.kernel.variant) if item.kernel.variant is not None else None
