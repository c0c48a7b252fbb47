"""Training on several GPUs: the configuration that `accelerate launch` reads."""

from __future__ import annotations

import os
from pathlib import Path

from ptxbench.adapt.training.recipe import TrainingRecipe
from ptxbench.core import UsageError
from ptxbench.store import write_atomically

_FSDP = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
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
  fsdp_activation_checkpointing: {checkpointing}
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: false
  fsdp_state_dict_type: SHARDED_STATE_DICT
"""


def accelerate_config(recipe: TrainingRecipe) -> str:
    """The YAML text. FSDP2 checkpoints activations itself; the trainer must not do so as well."""
    return _FSDP.format(
        gpus=recipe.layout.gpus,
        wrap=recipe.layout.wrap,
        checkpointing=str(recipe.optimizer.activation_checkpointing).lower(),
    )


def check_launch(recipe: TrainingRecipe, recipe_path: Path, folder: Path) -> None:
    """For several GPUs: writes ``accelerate.yaml``, and `UsageError` unless one process per GPU was started."""
    gpus = recipe.layout.gpus
    if gpus == 1:
        return
    if not recipe.layout.wrap:
        raise UsageError(f"the recipe '{recipe.name}' spreads over {gpus} GPUs but does not name the layer class to "
                         "wrap; set layout.wrap")  # fmt: skip
    config = folder / "accelerate.yaml"
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes == 1:
        write_atomically(config, accelerate_config(recipe).encode())
    if processes != gpus:
        raise UsageError(
            f"the recipe '{recipe.name}' is for {gpus} GPUs, and {processes} processes were started; run "
            f"`accelerate launch --config_file {config} -m ptxbench train {recipe_path} -o {folder}`"
        )
