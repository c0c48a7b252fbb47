"""An adapter added into its base, so that the result is served like any other model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ptxbench.adapt.training.libraries import library, quiet
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
    model = load_model(choice)
    _fits(model, training / WEIGHTS, choice.base)
    return library("peft").PeftModel.from_pretrained(model, str(training / WEIGHTS)).merge_and_unload()


def _has_adapter(training: Path) -> bool:
    return (training / WEIGHTS / "adapter_config.json").exists()


def _base_of(training: Path, record: TrainingRecord, base: str) -> BaseModelChoice:
    """Where the base lies: as said, beside a dry run, or as the recipe says."""
    choice = BaseModelChoice.model_validate(record.recipe["model"])
    elsewhere = base or (str(training / BASE) if record.dry_run else "")
    return choice.model_copy(update={"base": elsewhere, "gguf": ""}) if elsewhere else choice


def _fits(model: Any, adapter: Path, base: str) -> None:
    """`UsageError` unless every matrix of the adapter has a layer of its size in the base."""
    torch = library("torch")
    with library("safetensors").safe_open(str(adapter / "adapter_model.safetensors"), framework="pt") as saved:
        names: list[str] = list(saved.keys())
        shapes: dict[str, tuple[int, ...]] = {name: tuple(saved.get_slice(name).get_shape()) for name in names}
    layers: dict[str, Any] = {name: own for name, own in model.named_modules() if isinstance(own, torch.nn.Linear)}
    for name, shape in shapes.items():
        layer, _, matrix = name.removeprefix("base_model.model.").removesuffix(".weight").rpartition(".lora_")
        found = layers.get(layer)
        size = None if found is None else (found.in_features if matrix == "A" else found.out_features)
        if size != (shape[1] if matrix == "A" else shape[0]):
            raise UsageError(
                f"the adapter in {adapter} does not fit the base {base}: it changes {layer} with "
                f"{shape}, which the base {'lacks' if found is None else f'has with {size}'}; give its own base"
            )
