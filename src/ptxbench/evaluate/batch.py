"""Judging several candidates at once, and not twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ptxbench.core import Candidate, DeviceError, Evaluator, UnsupportedError, Verdict, in_parallel
from ptxbench.evaluate.pipeline import LocalEvaluator
from ptxbench.store import VerdictStore


@dataclass(frozen=True)
class Answer:
    """What became of one file: a verdict, or the sentence that says why there is none."""

    origin: str
    verdict: Verdict | None
    problem: str = ""


@dataclass(frozen=True)
class StoringEvaluator:
    """Stores every verdict as soon as there is one (`core.Evaluator`); ``resume`` returns what is stored already."""

    evaluator: LocalEvaluator
    store: VerdictStore
    resume: bool

    def evaluate(self, candidate: Candidate) -> Verdict:
        """The stored verdict under the candidate's own name, or a new one."""
        key = self.evaluator.key(candidate)
        found = self.store.get(key) if self.resume else None
        if found is not None:
            return found.model_copy(update={"origin": candidate.origin})
        verdict = self.evaluator.evaluate(candidate)
        self.store.put(key, verdict)
        return verdict


def evaluate_all(
    evaluator: Evaluator,
    candidates: Sequence[Candidate],
    *,
    jobs: int,
    on_answer: Callable[[Answer], None],
) -> list[Answer]:
    """Judges every candidate with ``jobs`` at a time and returns the answers in the order of ``candidates``.

    ``on_answer`` is called in the calling thread as each one ends. What only concerns one candidate is a problem in its
    answer: the simulator lacks an instruction, or a device fails twice on it. The first other infrastructure error ends
    the batch: what has not begun is not judged, and the error is raised when the running ones have ended.
    """

    def answer(candidate: Candidate) -> Answer:
        try:
            return Answer(candidate.origin, evaluator.evaluate(candidate))
        except UnsupportedError as error:
            return Answer(candidate.origin, None, str(error))
        except DeviceError:
            return second(candidate)

    def second(candidate: Candidate) -> Answer:
        try:
            return Answer(candidate.origin, evaluator.evaluate(candidate))
        except DeviceError as error:
            return Answer(candidate.origin, None, str(error))

    return in_parallel(answer, candidates, jobs, on_answer)
