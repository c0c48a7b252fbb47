"""Opens a run in its mode. Inspect is imported when a model is called, not before: that takes seconds."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ptxbench.core import ReplyRecord, RunMode, RunRecord, TrajectoryRecord, UsageError
from ptxbench.runners.bench import Bench
from ptxbench.runners.external import run_external
from ptxbench.runners.planning import Pace
from ptxbench.store import RunFolder

OnEnd = Callable[[TrajectoryRecord], None]
"""Called for every trajectory as it ends, in the thread that runs the run."""

Continue = Callable[[RunFolder, Bench, OnEnd], None]
"""Does what a run has not done yet and stores each trajectory as it ends.

Raises `InfrastructureError` if the judge could not do its work, once what was under way has ended.
"""


def open_run(run: RunRecord, pace: Pace) -> Continue:
    """Makes ready whoever works on the tasks; nothing is written yet. `UsageError` if the model cannot be had."""
    if run.mode is RunMode.EXTERNAL:
        return partial(run_external, pace)
    check_inspect()
    from ptxbench.runners.running import open_models

    return open_models(run, pace)


class Question(NamedTuple):
    """A single question about a task; ``number`` tells the questions about the same one apart."""

    task: str
    number: int
    system: str
    user: str


def ask(model: str, questions: Sequence[Question], pace: Pace) -> list[ReplyRecord]:
    """The answers of a model in the order of the questions, with ``error`` where there is none.

    ``model`` is a name as `ptxbench run` takes it. `UsageError` if it cannot be had.
    """
    check_inspect()
    from ptxbench.runners.asking import ask_models

    return ask_models(model, questions, pace)


def check_inspect() -> str:
    """The version of Inspect; `UsageError` where it is not installed."""
    try:
        return importlib.metadata.version("inspect-ai")
    except importlib.metadata.PackageNotFoundError as error:
        raise UsageError("running models needs inspect-ai; install it with `pip install 'ptxbench[models]'`") from error
