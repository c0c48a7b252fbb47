"""An adapter added into its base, so that the result is served like any other model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ptxbench.adapt.training.libraries import library, quiet
from ptxbench.adapt.training.models import load_model, load_tokenizer
from ptxbench.adapt.training.recipe import BaseModelChoice
from ptxbench.adapt.training.saved import read_record, write_record
from ptxbench.adapt.training.supervised import BASE, WEIGHTS
from ptxbench.core import Progress, UsageError


def merge(training: Path, out: Path, say: Progress, *, base: str = "") -> Path:
    """Merges the adapter of a training's folder into its base and writes the whole model to ``out``.

    ``base`` overrides where the base lies now. `UsageError` if the training did not end, trained no adapter, or the
    adapter does not fit the base.
    """
    record = read_record(training)
    if not record.finished:
        raise UsageError(f"the training in {training} did not end; finish it with `ptxbench train … --resume`")
    if not (training / WEIGHTS / "adapter_config.json").exists():
        raise UsageError(f"the training in {training} made a whole model, not an adapter; serve {training / WEIGHTS}")
    choice = BaseModelChoice.model_validate(record.recipe["model"])
    if record.dry_run:
        choice = choice.model_copy(update={"base": str(training / BASE), "gguf": ""})
    if base:
        choice = choice.model_copy(update={"base": base, "gguf": ""})
    quiet()
    say("loading the base")
    model, tokenizer = load_model(choice), load_tokenizer(choice)
    _fits(model, training / WEIGHTS, choice.base)
    say("merging")
    merged = library("peft").PeftModel.from_pretrained(model, str(training / WEIGHTS)).merge_and_unload()
    say("writing the model")
    merged.save_pretrained(out)
    tokenizer.save_pretrained(out)
    write_record(out, record)
    return out


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
