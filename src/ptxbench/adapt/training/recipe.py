"""Training recipes in TOML, checked when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from ptxbench.adapt.recipes import recipe_fields, recipe_of
from ptxbench.core import Record, Target, UsageError


class BaseModelChoice(Record):
    """The model that is adapted: ``base`` is a folder or a name that `transformers` knows.

    ``gguf`` names a GGUF file in that folder, whose weights are dequantized. ``architecture`` is the model type that a
    dry run builds a tiny random model of.
    """

    base: str
    gguf: str = ""
    architecture: Literal["llama", "qwen3_5"] = "llama"
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"


class Lora(Record):
    """A low-rank adapter on the linear layers whose names end in one of ``targets``; its scale is ``alpha / rank``."""

    rank: int = Field(default=32, ge=1)
    alpha: int = Field(default=64, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: tuple[str, ...] = Field(min_length=1)


class DataChoice(Record):
    """A data set by its folder. With ``digest`` it must be exactly that one.

    ``loss`` says what is learnt: the last message (``completion``), or every turn of the assistant (``assistant``).
    """

    name: str
    path: str
    digest: str = ""
    loss: Literal["completion", "assistant"]


class Phase(Record):
    """A part of the curriculum: in each epoch, ``share`` of each named data set's training rows, shuffled together.

    A share of 0.5 takes half of the rows, chosen anew in every epoch; one of 2 takes each row twice.
    """

    name: str
    epochs: int = Field(default=1, ge=1)
    share: dict[str, float]


class Optimizer(Record):
    """AdamW. A step sees ``batch × accumulate × number of GPUs`` rows. ``warmup`` is a share of all steps."""

    learning_rate: float = Field(gt=0)
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = Field(default=0.05, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    batch: int = Field(default=1, ge=1)
    accumulate: int = Field(default=1, ge=1)
    clip: float = Field(default=1.0, gt=0)
    activation_checkpointing: bool = True


class Validation(Record):
    """Every ``every`` steps the loss on the held-out families is measured and a checkpoint written, of which ``keep``
    stay. Training stops after ``patience`` measurements without an improvement, and the best checkpoint counts.
    """

    every: int = Field(default=20, ge=1)
    patience: int = Field(default=3, ge=1)
    keep: int = Field(default=2, ge=1)


class Samples(Record):
    """Replies that `ptxbench sample` lets the model write to the prompts of held-out rows: ``per_prompt`` for each of
    at most ``prompts`` prompts of the data sets ``data``, ``batch`` at a time.

    A reply has at most ``new_tokens`` tokens, and no more than the recipe's ``max_tokens`` leave after the longest
    prompt of its batch.
    """

    data: tuple[str, ...]
    prompts: int = Field(default=8, ge=1)
    per_prompt: int = Field(default=4, ge=1)
    new_tokens: int = Field(default=1024, ge=1)
    temperature: float = Field(default=0.8, ge=0)
    top_p: float = Field(default=0.95, gt=0, le=1)
    batch: int = Field(default=16, ge=1)


class Layout(Record):
    """The GPUs that training is spread over with FSDP2, and the layer class that is wrapped."""

    gpus: int = Field(default=1, ge=1)
    gib_per_gpu: float = Field(default=80, gt=0)
    wrap: str = ""
    offload_activations: bool = False


class Shape(Record):
    """Dimensions from which memory is worked out: those of the model's own configuration.

    ``trained`` is the number of trained parameters per unit of rank with the recipe's targets (0: all are trained).
    """

    parameters: float = Field(gt=0)
    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    ffn: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    trained_per_rank: float = Field(default=0, ge=0)


class TrainingRecipe(Record):
    """One supervised training. ``max_tokens`` bounds a row; longer ones are left out and counted, never cut.

    Without ``phases`` nothing is learnt: the base itself is validated and sampled, for comparison.
    """

    kind: Literal["supervised"]
    name: str
    about: str = ""
    seed: int = 0
    max_tokens: int = Field(ge=64)
    model: BaseModelChoice
    lora: Lora | None = None
    data: tuple[DataChoice, ...] = Field(min_length=1)
    phases: tuple[Phase, ...] = ()
    optimizer: Optimizer
    validation: Validation = Validation()
    samples: Samples | None = None
    layout: Layout = Layout()
    shape: Shape | None = None

    @model_validator(mode="after")
    def _names(self) -> TrainingRecipe:
        known = [choice.name for choice in self.data]
        if len(set(known)) < len(known):
            raise ValueError("two data sets have the same name")
        sampled = self.samples.data if self.samples else ()
        unknown = sorted({name for phase in self.phases for name in phase.share}.union(sampled) - set(known))
        if unknown:
            raise ValueError(f"phases or samples name data sets that are not listed: {', '.join(unknown)}")
        if any(share <= 0 for phase in self.phases for share in phase.share.values()):
            raise ValueError("a phase gives a data set a share of 0 or less; leave it out instead")
        return self


class RlPrompt(Record):
    """A prompt and the task that replies to it are judged on."""

    task: str
    target: Target
    system: str = ""
    text: str


class RlRecipe(Record):
    """Reinforcement learning with group-relative advantages (GRPO): each step samples ``group`` replies to each of
    ``prompts_per_step`` prompts and rewards them by ``tiers`` (see `reward`).
    """

    kind: Literal["grpo"]
    name: str
    about: str = ""
    seed: int = 0
    model: BaseModelChoice
    lora: Lora | None = None
    prompts: tuple[RlPrompt, ...] = Field(min_length=1)
    tiers: dict[str, float]
    steps: int = Field(ge=1)
    group: int = Field(default=8, ge=2)
    prompts_per_step: int = Field(default=1, ge=1)
    new_tokens: int = Field(default=512, ge=1)
    temperature: float = Field(default=1.0, gt=0)
    learning_rate: float = Field(gt=0)
    kl: float = Field(default=0.0, ge=0)
    every: int = Field(default=10, ge=1)


AnyRecipe = TrainingRecipe | RlRecipe


def load_training_recipe(path: Path) -> AnyRecipe:
    """Reads a recipe; `UsageError` in one sentence for everything that can be wrong with it."""
    fields = recipe_fields(path)
    kind = fields.get("kind")
    if kind not in ("supervised", "grpo"):
        raise UsageError(f"the recipe {path} is not for training: its kind is {kind!r}, not 'supervised' or 'grpo'")
    return recipe_of(TrainingRecipe, fields, path) if kind == "supervised" else recipe_of(RlRecipe, fields, path)
