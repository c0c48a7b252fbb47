"""An adapter added into its base, so that the result is served like any other model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ptxbench.adapt.training.adapters import CONFIG_FILE, put_on
from ptxbench.adapt.training.libraries import quiet
from ptxbench.adapt.training.models import load_model, load_tokenizer
from ptxbench.adapt.training.recipe import BaseModelChoice
from ptxbench.adapt.training.saved import TrainingRecord, finished_record, write_record
from ptxbench.adapt.training.supervised import BASE, WEIGHTS
from ptxbench.core import Progress, UsageError


def merge(training: Path, out: Path, say: Progress, *, base: str = "") -> Path:
    """Merges the adapter of a training's folder into its base and writes the whole model to ``out``.

    ``base`` overrides where the base lies now. `UsageError` if the training did not end, trained no adapter, or the
    adapter does not fit the base.
    """
    record = finished_record(training)
    if not _has_adapter(training):
        raise UsageError(f"the training in {training} made a whole model, not an adapter; serve {training / WEIGHTS}")
    quiet()
    say("merging the adapter into its base")
    merged = trained_model(training, record, base=base)
    say("writing the model")
    merged.save_pretrained(out)
    load_tokenizer(_base_of(training, record, base)).save_pretrained(out)
    write_record(out, record)
    return out


def trained_model(training: Path, record: TrainingRecord, *, base: str = "") -> Any:
    """The model that a finished training made, with its adapter (if it has one) added into the base."""
    choice = _base_of(training, record, base)
    if not _has_adapter(training):
        return load_model(choice.model_copy(update={"base": str(training / WEIGHTS), "gguf": ""}))
    return put_on(load_model(choice), training / WEIGHTS, choice.base).merge_and_unload()


def _has_adapter(training: Path) -> bool:
    return (training / WEIGHTS / CONFIG_FILE).exists()


def _base_of(training: Path, record: TrainingRecord, base: str) -> BaseModelChoice:
    """Where the base lies: as said, beside a dry run, or as the recipe says."""
    choice = BaseModelChoice.model_validate(record.recipe["model"])
    elsewhere = base or (str(training / BASE) if record.dry_run else "")
    return choice.model_copy(update={"base": elsewhere, "gguf": ""}) if elsewhere else choice
