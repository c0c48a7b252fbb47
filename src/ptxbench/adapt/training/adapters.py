"""Adapters in files: gathered from all processes, checked name by name and shape by shape, put on a base."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptxbench.adapt.training.libraries import library
from ptxbench.core import InfrastructureError, UsageError

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of matrices by their names in an adapter's file."""

WEIGHTS_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"


def save_trained(trainer: Any, folder: Path) -> None:
    """Writes the weights and the tokenizer, and reads an adapter's file again to see that it is whole.

    All processes take part where each holds a part of the weights; of an adapted model only the adapter is gathered.
    `InfrastructureError` if the file is not what was learnt.
    """
    model = trainer.model
    adapted = isinstance(model, library("peft").PeftModel)
    if trainer.is_fsdp_enabled:  # checkpoints are kept in parts, for which the trainer would write no weights here
        states = library("torch.distributed.checkpoint.state_dict")
        options = states.StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=adapted)
        whole = states.get_model_state_dict(model, options=options)
        if trainer.is_world_process_zero():
            model.save_pretrained(str(folder), state_dict=whole)
            trainer.processing_class.save_pretrained(str(folder))
    else:
        trainer.save_model(str(folder))
    if adapted and trainer.is_world_process_zero():
        problem = difference(adapter_shapes(model), saved_shapes(folder))
        if problem:
            raise InfrastructureError(f"the adapter that was written to {folder} is not the one that was learnt: it "
                                      f"{problem}; use the versions of peft and transformers that the package asks for"
                                      )  # fmt: skip


def put_on(model: Any, folder: Path, base: str) -> Any:
    """The base ``model`` with the adapter in ``folder`` on it; `UsageError` unless every matrix that the adapter's
    configuration asks for on this base is in its file, in its shape, and nothing else.
    """
    peft = library("peft")
    refused = f"the adapter in {folder} does not fit the base {base}"
    try:
        config = peft.PeftConfig.from_pretrained(str(folder))
        config.base_model_name_or_path = model.name_or_path  # the base may lie elsewhere now
        adapted = peft.get_peft_model(model, config)
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UsageError(f"{refused}: {reason[:200]}; give its own base, or train again") from error
    problem = difference(adapter_shapes(adapted), saved_shapes(folder))
    if problem:
        raise UsageError(f"{refused}: it {problem}; give its own base, or train again")
    weights = library("safetensors.torch").load_file(str(folder / WEIGHTS_FILE))
    skipped = peft.set_peft_model_state_dict(adapted, weights).unexpected_keys
    if skipped:
        raise UsageError(f"{refused}: peft does not know where {skipped[0]} belongs; train again")
    return adapted


def check_checkpoint(model: Any, checkpoint: Path) -> None:
    """`UsageError` if a checkpoint's file of the adapter, where it is one file, does not hold this model's adapter."""
    if not isinstance(model, library("peft").PeftModel) or any(checkpoint.glob("pytorch_model_fsdp*")):
        return
    problem = difference(adapter_shapes(model), saved_shapes(checkpoint))
    if problem:
        raise UsageError(f"{checkpoint} does not hold this training's adapter: it {problem}; delete it to go on from "
                         "an earlier one")  # fmt: skip


def adapter_shapes(model: Any) -> Shapes:
    """The matrices of a model's adapter, whole even where each process holds a part."""
    return {
        name.replace(f".{model.active_adapter}.", "."): tuple(parameter.shape)
        for name, parameter in model.named_parameters()
        if ".lora_" in name
    }


def saved_shapes(folder: Path) -> Shapes:
    """The matrices in an adapter's file; `UsageError` if it cannot be read."""
    safetensors = library("safetensors")
    try:
        with safetensors.safe_open(str(folder / WEIGHTS_FILE), framework="pt") as saved:
            return {name: tuple(saved.get_slice(name).get_shape()) for name in saved.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise UsageError(f"cannot read the adapter in {folder} ({WEIGHTS_FILE}: {error}); it is damaged; restore it or "
                         "go on from an earlier checkpoint") from error  # fmt: skip


def difference(wanted: Shapes, found: Shapes) -> str:
    """What is wrong with the matrices that were found, as the end of a sentence; empty if nothing is."""
    missing, unknown = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    if missing:
        return f"lacks {len(missing)} of {len(wanted)} matrices ({missing[0]} for one)" + (
            f" and has {len(unknown)} that belong to nothing ({unknown[0]} for one)" if unknown else ""
        )
    if unknown:
        return f"has {len(unknown)} matrices that belong to nothing ({unknown[0]} for one)"
    other = [name for name in sorted(wanted) if wanted[name] != found[name]]
    if other:
        return f"has {other[0]} with {found[other[0]]} instead of {wanted[other[0]]}"
    return ""
