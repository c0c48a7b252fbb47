"""Reinforcement learning (GRPO) with the judge as reward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptxbench.adapt.training.adapters import check_checkpoint, save_trained
from ptxbench.adapt.training.checkpoints import proving
from ptxbench.adapt.training.libraries import library, quiet, reporting, versions
from ptxbench.adapt.training.models import adapt, load_model, load_tokenizer, trained_parameters
from ptxbench.adapt.training.recipe import RlRecipe
from ptxbench.adapt.training.reward import TIERS, check_tiers, judge_reply, paid
from ptxbench.adapt.training.saved import (
    TrainingRecord,
    continued,
    last_checkpoint,
    recipe_digest,
    write_record,
)
from ptxbench.adapt.training.supervised import WEIGHTS
from ptxbench.core import Evaluator, Progress, Target, UsageError
from ptxbench.tasks import get_task


class TierReward:
    """A reward function as TRL calls it; counts how many replies reached each tier, step by step."""

    __name__ = "tier"

    def __init__(self, recipe: RlRecipe, evaluator: Evaluator) -> None:
        check_tiers(recipe.tiers)
        self._recipe, self._evaluator = recipe, evaluator

    def __call__(
        self, completions: Sequence[Any], task: Sequence[str], target: Sequence[str], log_metric: Any = None, **_: Any
    ) -> list[float]:
        """The rewards of the replies to one batch of prompts."""
        reached = [
            judge_reply(self._evaluator, name, Target(chip), str(reply[-1]["content"]), "training")[0]
            for reply, name, chip in zip(completions, task, target, strict=True)
        ]
        if log_metric is not None:
            counts = Counter(reached)
            for index, tier in enumerate(TIERS):
                above = sum(counts[name] for name in TIERS[index:])
                log_metric(f"reached/{tier}", above / len(reached))
        return [paid(self._recipe.tiers, tier) for tier in reached]


def reinforce(
    recipe: RlRecipe, evaluator: Evaluator, folder: Path, say: Progress, *, resume: bool = False
) -> TrainingRecord:
    """Trains and writes ``model/`` and ``training.json``; the history holds reward and its spread per step."""
    reward = TierReward(recipe, evaluator)
    for prompt in recipe.prompts:
        get_task(prompt.task)
    digest = recipe_digest(recipe)
    before = continued(folder, digest, ()) if resume else None
    if before is None and (folder / "training.json").exists():
        raise UsageError(f"{folder} holds a training already; go on with --resume, or choose another folder")
    quiet()
    say("loading the model")
    tokenizer, model = load_tokenizer(recipe.model), load_model(recipe.model, whole=recipe.lora is None)
    library("transformers").set_seed(recipe.seed)
    if recipe.lora:
        model = adapt(model, recipe.lora)
    trainer = _trainer(recipe, model, tokenizer, reward, folder, say)
    checkpoint = last_checkpoint(folder) if resume else None
    if checkpoint:
        check_checkpoint(model, checkpoint)
    step = int(checkpoint.name.rsplit("-", 1)[1]) if checkpoint else 0
    record = TrainingRecord(
        recipe=recipe.model_dump(mode="json"),
        recipe_digest=digest,
        trained_parameters=trained_parameters(model),
        planned_steps=recipe.steps,
        resumed_at=(*before.resumed_at, step) if before else (),
        versions=versions(),
    )
    write_record(folder, record)
    say(f"training for {recipe.steps} steps")
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    save_trained(trainer, folder / WEIGHTS)
    history = tuple(
        {name: float(value) for name, value in entry.items() if isinstance(value, int | float)}
        for entry in trainer.state.log_history
    )
    record = record.model_copy(
        update={"steps": int(trainer.state.global_step), "finished": True, "history": history}
    )
    write_record(folder, record)
    return record


def _trainer(
    recipe: RlRecipe, model: Any, tokenizer: Any, reward: TierReward, folder: Path, say: Progress
) -> Any:
    torch, trl = library("torch"), library("trl")
    gpu = torch.cuda.is_available()
    rows = [
        {
            "prompt": [
                *([{"role": "system", "content": prompt.system}] if prompt.system else []),
                {"role": "user", "content": prompt.text},
            ],
            "task": prompt.task,
            "target": prompt.target.value,
        }
        for prompt in recipe.prompts
    ]
    config = trl.GRPOConfig(
        output_dir=str(folder),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.group * recipe.prompts_per_step,
        num_generations=recipe.group,
        max_completion_length=recipe.new_tokens,
        temperature=recipe.temperature,
        learning_rate=recipe.learning_rate,
        lr_scheduler_type="constant",
        beta=recipe.kl,
        bf16=gpu and recipe.model.dtype == "bfloat16",
        use_cpu=not gpu,
        seed=recipe.seed,
        data_seed=recipe.seed,
        logging_steps=1,
        disable_tqdm=True,
        report_to="none",
        save_steps=recipe.every,
        save_total_limit=2,
        activation_checkpointing=False,
    )
    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=reward,
        args=config,
        train_dataset=library("datasets").Dataset.from_list(rows * max(1, recipe.prompts_per_step)),
        processing_class=tokenizer,
        callbacks=[proving(), reporting(say, ("reward", "reward_std"))],
    )
    trainer.remove_callback(library("transformers").PrinterCallback)
    return trainer
