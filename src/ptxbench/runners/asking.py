"""Single questions to a model, each by itself: no verdict, and no record of a run."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

from inspect_ai import Task, eval  # pyright: ignore[reportUnknownVariableType] - an optional package of Inspect's
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessageSystem, ChatMessageUser, GenerateConfig
from inspect_ai.solver import Generate, Solver, TaskState, solver

from ptxbench.core import ReplyRecord
from ptxbench.runners.planning import Pace
from ptxbench.runners.providers import Models, find_models, reply_of
from ptxbench.runners.starting import Question


def ask_models(model: str, questions: Sequence[Question], pace: Pace) -> list[ReplyRecord]:
    """The answers in the order of the questions; ``error`` says why there is none.

    A recording is asked for its first reply to (task, number). Answers of providers are kept in Inspect's cache, so
    that asking again costs nothing.
    """
    config = GenerateConfig(max_retries=pace.retries, timeout=pace.timeout, max_connections=pace.connections)
    models = find_models(model, config)
    for question in questions:
        models.of(question.task, question.number)
    with tempfile.TemporaryDirectory(prefix="ptxbench-") as logs:
        (log,) = eval(
            Task(name="questions", dataset=MemoryDataset([_sample(question) for question in questions]),
                 solver=_answering(models)),
            model=models.common(),
            display="none",
            log_dir=logs,
            log_level="error",
            log_refusals=False,
            ctl_server=False,
            score_display=False,
            fail_on_error=False,
            max_samples=pace.connections or models.common().api.max_connections(),
        )  # fmt: skip
        return [_answer(log, question) for question in questions]


def _answer(log: EvalLog, question: Question) -> ReplyRecord:
    sample = next((sample for sample in log.samples or [] if sample.id == _name(question)), None)
    if sample is not None and sample.output.choices:
        return reply_of(sample.output, task=question.task, epoch=question.number, call=1, price=None)
    problem = sample.error if sample is not None and sample.error else log.error
    return ReplyRecord(
        task=question.task, epoch=question.number, call=1, text="", error=problem.message if problem else "no answer"
    )


def _name(question: Question) -> str:
    return f"{question.task}@{question.number}"


def _sample(question: Question) -> Sample:
    return Sample(
        id=_name(question),
        input=[ChatMessageSystem(content=question.system), ChatMessageUser(content=question.user)],
        metadata={"task": question.task, "number": question.number},
    )


def _answering(models: Models) -> Solver:
    @solver(name="ptxbench/answering")
    def build() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            task, number = str(state.metadata["task"]), int(state.metadata["number"])
            live = models.recorded(task, number) is None
            state.output = await models.of(task, number).generate(state.messages, cache=live)
            return state

        return solve

    return build()
