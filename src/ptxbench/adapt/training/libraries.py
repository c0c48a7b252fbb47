"""Packages that only training needs, imported where they are used."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

from ptxbench.core import Progress, UsageError


def library(name: str) -> Any:
    """The module; `UsageError` with the remedy if it is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"training needs the package {error.name}, which is not installed; pip install 'ptxbench[train]'"
        ) from error


def quiet() -> None:
    """Stops the libraries' own progress bars and hints, which would mix with what the program says."""
    logging = library("transformers").logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    library("datasets").disable_progress_bars()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")


def reporting(say: Progress, numbers: Sequence[str]) -> Any:
    """A callback that says where a training is: the step and the chosen ones of the logged numbers."""

    def on_log(_self: Any, _args: Any, state: Any, _control: Any, logs: dict[str, Any], **_: Any) -> None:
        told = [f"{name} {float(logs[name]):.4g}" for name in numbers if name in logs]
        if told:
            say(f"step {state.global_step} of {state.max_steps}: {', '.join(told)}")

    base: Any = library("transformers").TrainerCallback
    return type("Reporting", (base,), {"on_log": on_log})()


def stopping_after(steps: int, *, measured: bool) -> Any:
    """A callback that ends a training after ``steps``, with a checkpoint, and with the learning rates of the whole one.

    ``measured`` says whether there are held-out rows to measure the loss on.
    """

    def on_step_end(_self: Any, _args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step >= steps:
            control.should_save = control.should_training_stop = True
            control.should_evaluate = measured

    base: Any = library("transformers").TrainerCallback
    return type("StoppingAfter", (base,), {"on_step_end": on_step_end})()


def versions() -> dict[str, str]:
    """Versions of what a training's result depends on."""
    names = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
    return {name: str(library(name).__version__) for name in names}
