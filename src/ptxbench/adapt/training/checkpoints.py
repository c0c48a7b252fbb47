"""Checkpoints that prove themselves: what a library restores is compared with what was saved."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptxbench.adapt.training.libraries import library
from ptxbench.core import InfrastructureError
from ptxbench.store import write_atomically

NORMS = "norms.json"
"""The last file of a checkpoint: the norm of every learnt tensor, and of what the optimizer keeps for it."""

TOLERANCE = 1e-5
"""Relative; the tensors are equal, but sums over other parts of them (other numbers of GPUs) round differently."""


def proving() -> Any:
    """A callback that writes `NORMS` into each checkpoint, and ends a training with `InfrastructureError` if the
    weights or the optimizer's state differ after a checkpoint was read: at a resumption, and for the best one at the
    end. Libraries skip what they do not find in a checkpoint without a word.

    It also makes a checkpoint's folder before the trainer does: with weights in parts, the trainer looks for the folder
    of the best checkpoint while another process is making it, and processes that do not see it would go other ways.
    """

    def on_step_end(_self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if control.should_save:
            _folder(args, state).mkdir(parents=True, exist_ok=True)

    def on_save(_self: Any, args: Any, state: Any, _control: Any, model: Any, optimizer: Any, **_: Any) -> None:
        norms = _norms(model, optimizer)
        if state.is_world_process_zero:
            write_atomically(_folder(args, state) / NORMS, json.dumps(norms, indent=1).encode())

    def on_train_begin(_self: Any, args: Any, state: Any, _control: Any, model: Any, optimizer: Any, **_: Any) -> None:
        if state.global_step:
            _compare(_norms(model, optimizer), _folder(args, state))

    def on_train_end(_self: Any, args: Any, state: Any, _control: Any, model: Any, **_: Any) -> None:
        if args.load_best_model_at_end and state.best_model_checkpoint:
            _compare(_norms(model, None), Path(state.best_model_checkpoint))

    base: Any = library("transformers").TrainerCallback
    return type("Proving", (base,), {
        "on_step_end": on_step_end, "on_save": on_save, "on_train_begin": on_train_begin,
        "on_train_end": on_train_end,
    })()  # fmt: skip


def _folder(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


def _norms(model: Any, optimizer: Any) -> dict[str, float]:
    """Norms over all processes; all of them take part."""
    norms: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            norms[name] = _norm(parameter)
            kept: Mapping[str, Any] = optimizer.state.get(parameter, {}) if optimizer else {}
            norms.update((f"{name} {kind}", _norm(value)) for kind, value in kept.items() if value.ndim)
    return norms


def _norm(tensor: Any) -> float:
    torch = library("torch")
    found = torch.linalg.vector_norm(tensor.detach().float())
    return float(found.full_tensor() if hasattr(found, "full_tensor") else found)


def _compare(found: Mapping[str, float], checkpoint: Path) -> None:
    saved: dict[str, float] = json.loads((checkpoint / NORMS).read_text())
    for name, norm in found.items():
        if name not in saved or not math.isclose(norm, saved[name], rel_tol=TOLERANCE, abs_tol=1e-30):
            raise InfrastructureError(
                f"{checkpoint} was not restored: {name} has norm {norm:.6g} and had {saved.get(name, math.nan):.6g}; "
                "use the versions of peft, transformers and accelerate that the training began with"
            )
