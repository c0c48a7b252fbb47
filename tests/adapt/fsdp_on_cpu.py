"""`ptxbench` in a process that `accelerate launch` started for FSDP2, on a CPU.

accelerate spreads a model with FSDP only over accelerators. Here it takes the process group of the CPUs for one of
GPUs; everything after that is what runs on GPUs.
"""

import os

import torch.distributed
from accelerate.state import DistributedType, PartialState

from ptxbench.cli.console import main


def gloo(*_: object) -> tuple[str, DistributedType]:
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    return "gloo", DistributedType.MULTI_GPU


os.environ["ACCELERATE_TORCH_DEVICE"] = "cpu"
PartialState._prepare_backend = gloo  # type: ignore[method-assign]
main()
