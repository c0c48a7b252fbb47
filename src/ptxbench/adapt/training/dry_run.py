"""A recipe's whole path on a tiny random model: train, stop, resume, merge, load again, generate."""

from __future__ import annotations

from pathlib import Path

from ptxbench.adapt.training.libraries import library
from ptxbench.adapt.training.memory import Memory, fits
from ptxbench.adapt.training.merge import merge
from ptxbench.adapt.training.recipe import TrainingRecipe, Validation
from ptxbench.adapt.training.saved import TrainingRecord
from ptxbench.adapt.training.supervised import WEIGHTS, prepare, train
from ptxbench.core import Progress, Record, UsageError

STEPS = 2
"""Optimizer steps before the stop, and as many after it."""

ROWS = 4
"""The shortest rows of each data set and split that take part."""


class Rehearsal(Record):
    """What a dry run did. ``first`` and ``last`` are the training losses of the first and the last step; ``memory``
    is what the real model would need per GPU, where the recipe gives its shape.
    """

    steps: int
    resumed_at: int
    first: float
    last: float
    validation: dict[str, float]
    trained_parameters: int
    generated: str
    memory: Memory | None


def rehearse(recipe: TrainingRecipe, folder: Path, say: Progress) -> Rehearsal:
    """Runs the recipe end to end in ``folder`` on a random model of its architecture, on the CPU, on its shortest rows.

    `UsageError` if the recipe's GPUs could not hold the real model, or if anything on the way does not fit together.
    """
    memory = fits(recipe) if recipe.shape else None
    layout = recipe.layout.model_copy(update={"gpus": 1})
    optimizer = recipe.optimizer.model_copy(update={"batch": 1, "accumulate": 1})
    model = recipe.model.model_copy(update={"dtype": "float32", "attention": "sdpa"})
    small = recipe.model_copy(update={
        "layout": layout, "optimizer": optimizer, "model": model, "validation": Validation(every=STEPS, keep=1),
    })  # fmt: skip
    if not small.phases:
        raise UsageError(f"the recipe '{recipe.name}' has no phases, so there is nothing to rehearse; train it as is")
    train(prepare(small, folder, say, dry_run=True, shortest=ROWS), folder, say, max_steps=STEPS)
    say("resuming")
    again = prepare(small, folder, say, dry_run=True, shortest=ROWS)
    record = train(again, folder, say, resume=True, max_steps=2 * STEPS)
    if record.resumed_at != (STEPS,):
        raise UsageError(f"the training in {folder} did not resume at step {STEPS}; its checkpoint is incomplete")
    losses = [entry["loss"] for entry in record.history if "loss" in entry]
    return Rehearsal(
        steps=record.steps,
        resumed_at=record.resumed_at[-1],
        first=losses[0],
        last=losses[-1],
        validation=record.losses,
        trained_parameters=record.trained_parameters,
        generated=_reload_and_generate(record, folder, say, adapter=recipe.lora is not None),
        memory=memory,
    )


def _reload_and_generate(record: TrainingRecord, folder: Path, say: Progress, *, adapter: bool) -> str:
    weights = merge(folder, folder / "merged", say) if adapter else folder / WEIGHTS
    say("generating with the result")
    transformers, torch = library("transformers"), library("torch")
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    model = transformers.AutoModelForCausalLM.from_pretrained(weights)
    inputs = tokenizer("__global__", return_tensors="pt", add_special_tokens=False)
    with torch.no_grad():
        out = model.generate(**inputs, max_new_tokens=8, do_sample=False, pad_token_id=tokenizer.pad_token_id)
    return str(tokenizer.decode(out[0, inputs["input_ids"].shape[1] :]))
