"""A run from its record: what is not done yet is done. Starting a run and resuming it are the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from inspect_ai import Task, eval  # pyright: ignore[reportUnknownVariableType] - an optional package of Inspect's
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import (
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ModelCost,
    ModelInfo,
    set_model_cost,
    set_model_info,
)

from ptxbench.core import InfrastructureError, RunMode, RunRecord, TrajectoryRecord
from ptxbench.prompts import Prompt
from ptxbench.runners.bench import Bench
from ptxbench.runners.planning import Pace, remaining, stored_prompts
from ptxbench.runners.providers import Models, find_models
from ptxbench.runners.talking import Session, bookkeeper, conversation
from ptxbench.runners.tools import agent
from ptxbench.store import RunFolder


def open_models(run: RunRecord, pace: Pace) -> Callable[[RunFolder, Bench, Callable[[TrajectoryRecord], None]], None]:
    """The model of a run, ready to be talked to; `UsageError` if it cannot be had, or lacks a trajectory (recordings).
    """
    models = find_models(run.model, generation(run, pace))
    for task, epoch in run.samples:
        models.of(task, epoch)
    return partial(run_models, models, pace)


def run_models(
    models: Models, pace: Pace, folder: RunFolder, bench: Bench, on_end: Callable[[TrajectoryRecord], None]
) -> None:
    """Runs every trajectory of the folder's run that has no record yet, and stores each as it ends.

    ``on_end`` is called for each in the calling thread. A provider's failure is a trajectory's outcome; the judge's
    `InfrastructureError` is raised once what was under way has ended.
    """
    run = folder.record()
    prompts, todo = stored_prompts(folder, run), remaining(run, folder)
    if not todo:
        return
    session = Session(run, folder, bench, models, pace.jobs, on_end)
    _tell_price(run, models)
    solve = agent(session) if run.mode is RunMode.AGENT else conversation(session)
    task = Task(
        name=run.run,
        dataset=MemoryDataset([_sample(prompts[name], name, epoch) for name, epoch in todo]),
        solver=solve,
        scorer=bookkeeper(session),
    )
    log = _evaluate(task, run, models, pace, folder)
    if session.failure:
        raise session.failure
    if remaining(run, folder):
        raise InfrastructureError(f"{folder.root} is not complete ({_why(log)}); continue it with `ptxbench resume`")


def _evaluate(task: Task, run: RunRecord, models: Models, pace: Pace, folder: RunFolder) -> EvalLog:
    """Inspect's evaluation. Errors of samples do not end it; the bookkeeper has stored what is an outcome."""
    try:
        (log,) = eval(
            task,
            model=models.common(),
            display="none",
            log_dir=str(folder.root / "logs"),
            log_level="error",
            log_buffer=1,
            log_realtime=False,
            log_refusals=False,
            ctl_server=False,
            score_display=False,
            fail_on_error=False,
            score_on_error=True,
            token_limit=run.limits.tokens,
            cost_limit=run.limits.cost,
            time_limit=run.limits.seconds,
            turn_limit=run.limits.calls,
            max_samples=pace.connections or models.common().api.max_connections(),
        )
    except OSError as error:
        where = error.filename or "its folder of data"
        raise InfrastructureError(f"Inspect cannot use {where}: {error.strerror}; set XDG_DATA_HOME") from error
    return log


def generation(run: RunRecord, pace: Pace) -> GenerateConfig:
    """What is asked of the model with every call."""
    return GenerateConfig(
        temperature=run.generation.temperature,
        max_tokens=run.generation.max_tokens,
        reasoning_effort=run.generation.effort,
        max_retries=pace.retries,
        timeout=pace.timeout,
        max_connections=pace.connections,
    )


def _sample(prompt: Prompt, task: str, epoch: int) -> Sample:
    return Sample(
        id=f"{task}@{epoch}",
        input=[ChatMessageSystem(content=prompt.system), ChatMessageUser(content=prompt.user)],
        metadata={"task": task, "epoch": epoch},
    )


def _tell_price(run: RunRecord, models: Models) -> None:
    """Inspect counts costs, and stops at a limit of them, by the price that the run names."""
    if run.price is None:
        return
    name = str(models.common())
    price = run.price
    cost = ModelCost(
        input=price.input, output=price.output, input_cache_write=price.input, input_cache_read=price.cached
    )
    set_model_info(name, ModelInfo())
    set_model_cost(name, cost)


def _why(log: EvalLog) -> str:
    errors = [sample.error.message for sample in log.samples or [] if sample.error]
    if log.error:
        errors.append(log.error.message)
    return " ".join(errors[0].split())[:300] if errors else f"Inspect ended with status {log.status}"
