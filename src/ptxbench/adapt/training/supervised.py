"""Supervised training with TRL: the curriculum in order, the label check, validation, checkpoints, the record."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxbench.adapt.data.files import read_rows
from ptxbench.adapt.training.adapters import check_checkpoint, save_trained
from ptxbench.adapt.training.checkpoints import proving
from ptxbench.adapt.training.labels import Example, check_labels
from ptxbench.adapt.training.layout import gather_head, join_processes, keep_float32
from ptxbench.adapt.training.libraries import library, quiet, reporting, stopping_after, versions
from ptxbench.adapt.training.material import Material, curriculum, load_material
from ptxbench.adapt.training.models import (
    adapt,
    load_model,
    load_tokenizer,
    tiny_model,
    tiny_tokenizer,
    trained_parameters,
)
from ptxbench.adapt.training.recipe import TrainingRecipe
from ptxbench.adapt.training.saved import (
    TrainingRecord,
    continued,
    last_checkpoint,
    recipe_digest,
    write_record,
)
from ptxbench.core import Progress, UsageError

WEIGHTS = "model"
"""The folder of the trained weights: an adapter, or a whole model where everything was trained."""

BASE = "base"
"""The folder of a dry run's random base."""


@dataclass(frozen=True)
class Prepared:
    """What training starts from."""

    recipe: TrainingRecipe
    tokenizer: Any
    material: Material
    model: Any
    order: Sequence[Example]
    dry_run: bool


def prepare(
    recipe: TrainingRecipe, folder: Path, say: Progress, *, dry_run: bool = False, shortest: int | None = None
) -> Prepared:
    """Model, tokenizer and examples. A dry run takes a random base, which it saves as ``base`` so that its adapter can
    be merged. ``shortest`` keeps that many of the shortest rows of each data set and split.
    """
    quiet()
    if recipe.layout.gpus > 1:
        join_processes()
    say("reading the tokenizer")
    tokenizer = _stand_in(recipe) if dry_run else load_tokenizer(recipe.model)
    say("reading the data sets")
    material = load_material(recipe, tokenizer)
    if shortest:
        material = material.shortest(shortest)
    order = curriculum(recipe.phases, material.train, recipe.seed)
    say("loading the model")
    if dry_run:
        model = tiny_model(recipe.model.architecture, tokenizer, recipe.seed)
        model.save_pretrained(folder / BASE)
        tokenizer.save_pretrained(folder / BASE)
    else:
        model = load_model(recipe.model, whole=recipe.lora is None and bool(recipe.phases))
    library("transformers").set_seed(recipe.seed)
    if recipe.lora:
        model = adapt(model, recipe.lora)
    return Prepared(recipe, tokenizer, material, model, order, dry_run)


def train(
    prepared: Prepared, folder: Path, say: Progress, *, resume: bool = False, max_steps: int | None = None
) -> TrainingRecord:
    """Trains and writes ``model/`` and ``training.json`` in ``folder``. ``resume`` goes on from the last complete
    checkpoint there; ``max_steps`` ends sooner than the recipe.
    """
    recipe, material = prepared.recipe, prepared.material
    digest = recipe_digest(recipe)
    before = continued(folder, digest, material.uses) if resume else None
    if before is None and (folder / "training.json").exists():
        raise UsageError(f"{folder} holds a training already; go on with --resume, or choose another folder")
    trainer = _trainer(prepared, folder, max_steps, say)
    say("checking the labels")
    _check_batches(trainer, prepared)
    checkpoint = last_checkpoint(folder) if resume else None
    if checkpoint:
        check_checkpoint(prepared.model, checkpoint)
    step = int(checkpoint.name.rsplit("-", 1)[1]) if checkpoint else 0
    record = TrainingRecord(
        recipe=recipe.model_dump(mode="json"),
        recipe_digest=digest,
        dry_run=prepared.dry_run,
        data=material.uses,
        trained_parameters=trained_parameters(prepared.model) if recipe.phases else 0,
        planned_steps=_steps(prepared) if recipe.phases else 0,
        resumed_at=(*before.resumed_at, step) if before else (),
        versions=versions(),
        device=_device(),
        tokens={"learnt": sum(label >= 0 for example in prepared.order for label in example.labels),
                "read": sum(len(example.input_ids) for example in prepared.order)},
    )  # fmt: skip
    trainer.accelerator.wait_for_everyone()  # all have seen that there was no record
    if trainer.is_world_process_zero():
        write_record(folder, record)
    if recipe.phases:
        say(f"training for {record.planned_steps} steps")
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if trainer.is_fsdp_enabled:
        gather_head(trainer.model)
    say("measuring the validation loss")
    losses = _losses(trainer, material)
    say("saving the weights")
    save_trained(trainer, folder / WEIGHTS)
    steps = int(trainer.state.global_step)
    record = record.model_copy(update={
        "steps": steps,
        "stopped_early": steps < (max_steps or record.planned_steps),
        "finished": True,
        "history": tuple(_numbers(entry) for entry in trainer.state.log_history),
        "losses": losses,
    })  # fmt: skip
    if trainer.is_world_process_zero():
        write_record(folder, record)
    return record


def _trainer(prepared: Prepared, folder: Path, max_steps: int | None, say: Progress) -> Any:
    torch, trl, transformers = library("torch"), library("trl"), library("transformers")
    recipe, held_out = prepared.recipe, [e for examples in prepared.material.validation.values() for e in examples]
    optimizer, gpu = recipe.optimizer, torch.cuda.is_available()
    measured = {"eval_strategy": "steps", "eval_steps": recipe.validation.every, "load_best_model_at_end": True,
                "metric_for_best_model": "eval_loss", "greater_is_better": False}  # fmt: skip
    config = trl.SFTConfig(
        output_dir=str(folder),
        # The trainer's own limit of 1024 tokens would cut rows; here none is longer than the recipe allows.
        max_length=None,
        packing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        train_sampling_strategy="sequential",
        num_train_epochs=1,
        per_device_train_batch_size=optimizer.batch,
        per_device_eval_batch_size=optimizer.batch,
        gradient_accumulation_steps=optimizer.accumulate,
        learning_rate=optimizer.learning_rate,
        lr_scheduler_type=optimizer.schedule,
        warmup_steps=optimizer.warmup,
        weight_decay=optimizer.weight_decay,
        max_grad_norm=optimizer.clip,
        activation_checkpointing=optimizer.activation_checkpointing and (gpu or recipe.layout.gpus > 1),
        activation_offloading=recipe.layout.offload_activations and gpu,
        bf16=gpu and recipe.model.dtype == "bfloat16",
        use_cpu=not gpu,
        seed=recipe.seed,
        data_seed=recipe.seed,
        logging_steps=1,
        disable_tqdm=True,
        report_to="none",
        save_strategy="steps",
        save_steps=recipe.validation.every,
        save_total_limit=recipe.validation.keep,
        **(measured if held_out and recipe.phases else {"eval_strategy": "no"}),
    )
    stop = [transformers.EarlyStoppingCallback(recipe.validation.patience)] if held_out and recipe.phases else []
    if max_steps is not None:
        stop.append(stopping_after(max_steps, measured=bool(held_out)))
    trainer = trl.SFTTrainer(
        model=prepared.model,
        args=config,
        train_dataset=_as_data(prepared.order or [e for es in prepared.material.train.values() for e in es]),
        eval_dataset=_as_data(held_out) if held_out else None,
        processing_class=prepared.tokenizer,
        callbacks=[*stop, proving(), reporting(say, ("loss", "eval_loss"))],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    if trainer.is_fsdp_enabled:
        keep_float32(trainer, recipe)
    return trainer


def _as_data(examples: Sequence[Example]) -> Any:
    return library("datasets").Dataset.from_list(
        [{"input_ids": list(example.input_ids), "labels": list(example.labels)} for example in examples]
    )


def _check_batches(trainer: Any, prepared: Prepared) -> None:
    """The first batches as the model will see them, for training and for validation."""
    known = {
        example.input_ids: example
        for split in (prepared.material.train, prepared.material.validation)
        for examples in split.values()
        for example in examples
    }
    loaders = [trainer.get_train_dataloader()]
    if trainer.eval_dataset is not None:
        loaders.append(trainer.get_eval_dataloader())
    for loader in loaders:
        batch = next(iter(loader))
        for ids, labels, seen in zip(batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True):
            tokens = tuple(ids[seen.bool()].tolist())
            if tokens not in known:
                raise UsageError("a row reached the model changed or cut; this is a fault of the trainer's collator")
            check_labels(prepared.tokenizer, ids.tolist(), labels.tolist(), known[tokens])


def _losses(trainer: Any, material: Material) -> dict[str, float]:
    """Mean over held-out rows of the loss per learnt token, per data set and per task family."""
    losses: dict[str, float] = {}
    for name, examples in material.validation.items():
        families: dict[str, list[Example]] = {}
        for example in examples:
            families.setdefault(example.row.task_family, []).append(example)
        sums = 0.0
        for family, group in families.items():
            losses[f"{name}/{family}"] = float(trainer.evaluate(_as_data(group))["eval_loss"])
            sums += losses[f"{name}/{family}"] * len(group)
        if examples:
            losses[name] = sums / len(examples)
    return losses


def _steps(prepared: Prepared) -> int:
    optimizer, gpus = prepared.recipe.optimizer, prepared.recipe.layout.gpus
    return math.ceil(len(prepared.order) / (optimizer.batch * optimizer.accumulate * gpus))


def _stand_in(recipe: TrainingRecipe) -> Any:
    texts: list[str] = []
    for choice in recipe.data:
        texts += [message.content for row in read_rows(Path(choice.path)) for message in row.conversation]
    return tiny_tokenizer(recipe.model.architecture, texts)


def _device() -> str:
    torch = library("torch")
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "CPU"


def _numbers(entry: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in json.loads(json.dumps(entry)).items() if isinstance(value, int | float)}
