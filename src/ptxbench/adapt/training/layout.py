"""Training on several GPUs: the configuration that `accelerate launch` reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ptxbench.adapt.training.libraries import library
from ptxbench.adapt.training.recipe import TrainingRecipe
from ptxbench.core import UsageError
from ptxbench.store import write_atomically

_FSDP = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: "{precision}"
num_machines: 1
num_processes: {gpus}
machine_rank: 0
main_training_function: main
rdzv_backend: static
same_network: true
use_cpu: false
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: {wrap}
  fsdp_reshard_after_forward: true
  fsdp_activation_checkpointing: false
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_state_dict_type: SHARDED_STATE_DICT
"""


def accelerate_config(recipe: TrainingRecipe) -> str:
    """The YAML text. The model checkpoints its activations itself: the wrappers that accelerate would put around its
    layers change their names, and PEFT then finds no adapter in it to save.
    """
    precision = "bf16" if recipe.model.dtype == "bfloat16" else "no"
    return _FSDP.format(gpus=recipe.layout.gpus, wrap=recipe.layout.wrap, precision=precision)


def check_launch(recipe: TrainingRecipe, recipe_path: Path, folder: Path) -> None:
    """For several GPUs: writes ``accelerate.yaml``, and `UsageError` unless one process per GPU was started."""
    gpus = recipe.layout.gpus
    if gpus == 1:
        return
    if not recipe.layout.wrap:
        raise UsageError(f"the recipe '{recipe.name}' spreads over {gpus} GPUs but does not name the layer class to "
                         "wrap; set layout.wrap")  # fmt: skip
    if not recipe.phases:
        raise UsageError(f"the recipe '{recipe.name}' learns nothing that {gpus} GPUs could share (it has no phases); "
                         "set layout.gpus = 1")  # fmt: skip
    config = folder / "accelerate.yaml"
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes == 1:
        write_atomically(config, accelerate_config(recipe).encode())
    if processes != gpus:
        raise UsageError(
            f"the recipe '{recipe.name}' is for {gpus} GPUs, and {processes} processes were started; run "
            f"`accelerate launch --config_file {config} -m ptxbench train {recipe_path} -o {folder}`"
        )


def join_processes() -> None:
    """Lets the processes find each other. From then on only the first reads a model's weights, and the others get
    theirs when the model is spread; before, each would hold the whole model in the host's memory.
    """
    library("accelerate").PartialState()


def keep_float32(trainer: Any, recipe: TrainingRecipe) -> None:
    """Computes in the recipe's precision as one GPU does: gradients are summed over GPUs in float32, and what a layer
    or the loss returns in float32 stays so. By default accelerate rounds both to bfloat16.
    """
    if recipe.model.dtype == "bfloat16":
        torch, fsdp = library("torch"), library("torch.distributed.fsdp")
        policy = fsdp.MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        trainer.accelerator.state.fsdp_plugin.mixed_precision_policy = policy


def gather_head(model: Any) -> None:
    """Makes an output head that is spread, and the last norm beside it, whole again after a checkpoint was read into
    them. TRL multiplies with the head without calling it, so FSDP2 never sees the end of that pair's forward pass and
    does not gather it for the next one.
    """
    head = model.get_output_embeddings()
    if isinstance(head, library("torch.distributed.fsdp").FSDPModule):
        head.unshard()
