"""From data sets to what a training sees: examples of known length, in the order of the curriculum."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxbench.adapt.data.files import read_build, read_rows, rows_digest
from ptxbench.adapt.training.labels import Example, encode
from ptxbench.adapt.training.recipe import DataChoice, Phase, TrainingRecipe
from ptxbench.core import Record, UsageError


class DataUse(Record):
    """What became of one data set. ``too_long`` counts rows beyond the limit per split, ``longest`` is in tokens."""

    name: str
    digest: str
    rows: int
    train: int
    validation: int
    too_long: dict[str, int]
    longest: int
    evaluation_tasks: tuple[str, ...]


@dataclass(frozen=True)
class Material:
    """Examples by data set and split, and how each data set was used."""

    train: dict[str, list[Example]]
    validation: dict[str, list[Example]]
    uses: tuple[DataUse, ...]

    def shortest(self, count: int) -> Material:
        """The same with at most ``count`` examples of each data set and split: the shortest."""

        def few(split: dict[str, list[Example]]) -> dict[str, list[Example]]:
            return {name: sorted(rows, key=lambda row: len(row.input_ids))[:count] for name, rows in split.items()}

        return Material(few(self.train), few(self.validation), self.uses)


def load_material(recipe: TrainingRecipe, tokenizer: Any) -> Material:
    """All rows that fit. `UsageError` for a data set that is not the recipe's, holds a task both for training and for
    validation, or has no row that fits where the recipe learns from it.
    """
    train: dict[str, list[Example]] = {}
    validation: dict[str, list[Example]] = {}
    uses: list[DataUse] = []
    for choice in recipe.data:
        examples, evaluated = _examples(choice, tokenizer)
        fitting = [example for example in examples if len(example.input_ids) <= recipe.max_tokens]
        long = [example for example in examples if len(example.input_ids) > recipe.max_tokens]
        train[choice.name] = [example for example in fitting if example.row.split == "train"]
        validation[choice.name] = [example for example in fitting if example.row.split == "validation"]
        uses.append(DataUse(
            name=choice.name,
            digest=rows_digest([example.row for example in examples]),
            rows=len(examples),
            train=len(train[choice.name]),
            validation=len(validation[choice.name]),
            too_long={split: sum(example.row.split == split for example in long) for split in ("train", "validation")},
            longest=max(len(example.input_ids) for example in examples),
            evaluation_tasks=evaluated,
        ))  # fmt: skip
    _usable(recipe, train, uses)
    return Material(train, validation, tuple(uses))


def _examples(choice: DataChoice, tokenizer: Any) -> tuple[list[Example], tuple[str, ...]]:
    folder = Path(choice.path)
    rows, build = read_rows(folder), read_build(folder)
    digest = rows_digest(rows)
    if digest != build.digest:
        raise UsageError(f"the rows in {folder} are not those of its build.json; build it again")
    if choice.digest and choice.digest != digest:
        raise UsageError(f"the data set {folder} has the digest {digest}, but the recipe asks for {choice.digest}; "
                         "build the one that the recipe means, or change the recipe")  # fmt: skip
    both = {row.task_family for row in rows if row.split == "train"} & {
        row.task_family for row in rows if row.split == "validation"
    }
    if both:
        raise UsageError(f"the data set {folder} has rows of the family {min(both)} both for training and for "
                         "validation; build it again with whole families held out")  # fmt: skip
    return [encode(tokenizer, choice.name, row, choice.loss) for row in rows], build.statistics.evaluation_tasks


def _usable(recipe: TrainingRecipe, train: dict[str, list[Example]], uses: Sequence[DataUse]) -> None:
    for name in {name for phase in recipe.phases for name in phase.share}:
        if not train[name]:
            use = next(use for use in uses if use.name == name)
            raise UsageError(
                f"none of the {use.rows} rows of the data set '{name}' is for training and fits into "
                f"{recipe.max_tokens} tokens (the longest has {use.longest}); raise max_tokens"
            )


def curriculum(phases: Sequence[Phase], train: dict[str, list[Example]], seed: int) -> list[Example]:
    """The examples in the order in which they are learnt: phase by phase, epoch by epoch, shuffled within each."""
    chooser = random.Random(seed)
    order: list[Example] = []
    for phase in phases:
        for _ in range(phase.epochs):
            epoch = [example for name, share in phase.share.items() for example in _drawn(train[name], share, chooser)]
            chooser.shuffle(epoch)
            order += epoch
    return order


def _drawn(examples: Sequence[Example], share: float, chooser: random.Random) -> list[Example]:
    """``share`` of the examples: each as often as the whole part says, and a random part of them once more."""
    whole, part = divmod(share, 1)
    return [*examples] * int(whole) + chooser.sample(list(examples), round(part * len(examples)))
