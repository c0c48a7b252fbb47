"""Replies of trained models to held-out prompts, kept for judging elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from ptxbench.adapt.training.decoding import Decoding, decode
from ptxbench.adapt.training.labels import Example
from ptxbench.adapt.training.libraries import library, quiet
from ptxbench.adapt.training.material import Material, load_material
from ptxbench.adapt.training.merge import trained_model
from ptxbench.adapt.training.models import load_tokenizer
from ptxbench.adapt.training.recipe import Samples, TrainingRecipe
from ptxbench.adapt.training.saved import finished_record
from ptxbench.core import Progress, Record, Target, UsageError
from ptxbench.store import write_atomically

FILE = "samples.jsonl"


class Sample(Record):
    """One reply. ``row`` is the held-out row whose prompt it answers, ``faulty`` the digest of the kernel in it that is
    to be repaired (empty for other prompts); ``ended`` whether it stopped by itself.
    """

    data: str
    row: str
    faulty: str = ""
    task: str
    task_family: str
    target: Target
    reply: str
    tokens: int
    ended: bool


class Source(NamedTuple):
    """What trainings share whose recipes have the same model, data sets and longest row."""

    tokenizer: Any
    material: Material


class Sampled(NamedTuple):
    """A training whose replies are wanted: its recipe's settings, its tokenizer and model, batches of prompts."""

    folder: Path
    recipe: TrainingRecipe
    wanted: Samples
    tokenizer: Any
    model: Any
    batches: Sequence[Sequence[Example]]


def write_samples(folders: Sequence[Path], say: Progress, *, seconds: float | None = None) -> int:
    """Writes ``samples.jsonl`` in the folders of finished trainings, as their recipes ask, and counts the replies.

    A batch of every training is written at a time. After ``seconds`` for the writing alone it stops: replies that have
    begun are kept as they are, further batches are not begun. `UsageError` for a training that cannot be sampled.
    """
    quiet()
    sources: dict[tuple[Any, ...], Source] = {}
    trainings = [_opened(folder, sources, say) for folder in folders]
    written: dict[Path, list[Sample]] = {training.folder: [] for training in trainings}
    left = seconds
    for number, batches in enumerate(zip_longest(*(training.batches for training in trainings)), 1):
        going = [(training, batch) for training, batch in zip(trainings, batches, strict=True) if batch]
        say(f"reading the prompts of batch {number}")
        decodings = [_decoding(training, batch) for training, batch in going]
        took = decode(decodings, say, seconds=left)
        for (training, batch), decoding in zip(going, decodings, strict=True):
            written[training.folder] += _replies(training, batch, decoding)
            lines = "".join(sample.model_dump_json() + "\n" for sample in written[training.folder])
            write_atomically(training.folder / FILE, lines.encode())
        left = None if left is None else left - took
        if left is not None and left <= 0:
            break
    return sum(map(len, written.values()))


def read_samples(folder: Path) -> list[Sample]:
    """The replies in a training's folder; `UsageError` if there are none."""
    path = folder / FILE
    try:
        return [Sample.model_validate(json.loads(line)) for line in path.read_text().splitlines()]
    except OSError as error:
        raise UsageError(f"{folder} holds no replies ({error.strerror}: {FILE}); write them with `ptxbench sample`"
                         ) from error  # fmt: skip
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {str(error).splitlines()[0]}; sample again") from error


def held_out_prompts(held_out: Sequence[Example], prompts: int) -> list[Example]:
    """At most ``prompts`` held-out rows, evenly over task families and targets, in an order that does not depend on
    the seed, so that all trainings answer the same prompts.
    """
    groups: dict[tuple[str, str, str], list[Example]] = {}
    for example in sorted(held_out, key=_order):
        key = (example.data, example.row.task_family, example.row.target.value)
        groups.setdefault(key, []).append(example)
    deepest = max(map(len, groups.values()), default=0)
    in_turns = [group[depth] for depth in range(deepest) for group in groups.values() if len(group) > depth]
    return in_turns[:prompts]


def _opened(folder: Path, sources: dict[tuple[Any, ...], Source], say: Progress) -> Sampled:
    record = finished_record(folder)
    recipe = TrainingRecipe.model_validate(record.recipe)
    if recipe.samples is None:
        raise UsageError(f"the recipe of the training in {folder} asks for no replies; give it [samples]")
    say(f"loading {folder}")
    shared = (recipe.model, recipe.data, recipe.max_tokens)
    if shared not in sources:
        tokenizer = load_tokenizer(recipe.model)
        sources[shared] = Source(tokenizer, load_material(recipe, tokenizer))
    tokenizer, material = sources[shared]
    if [use.digest for use in material.uses] != [use.digest for use in record.data]:
        raise UsageError(f"the data sets have changed since the training in {folder}; build those again")
    wanted = recipe.samples
    chosen = held_out_prompts([row for name in wanted.data for row in material.validation[name]], wanted.prompts)
    if not chosen:
        raise UsageError(f"the data sets {', '.join(wanted.data)} hold no row back, so {folder} cannot be sampled")
    batches: list[list[Example]] = []
    for name in wanted.data:
        jobs = [example for example in chosen if example.data == name for _ in range(wanted.per_prompt)]
        batches += [jobs[start : start + wanted.batch] for start in range(0, len(jobs), wanted.batch)]
    torch = library("torch")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = trained_model(folder, record).to(device, getattr(torch, recipe.model.dtype)).eval()
    return Sampled(folder, recipe, wanted, tokenizer, model, batches)


def _order(example: Example) -> str:
    return hashlib.sha256(example.row.id.encode()).hexdigest()


def _decoding(training: Sampled, batch: Sequence[Example]) -> Decoding:
    """Ready to write at most as many tokens as the recipe says and the context leaves after the longest prompt."""
    prompts = [example.input_ids[: sum(label < 0 for label in example.labels)] for example in batch]
    room = training.recipe.max_tokens - max(map(len, prompts))
    return Decoding(
        training.model, prompts, training.wanted, new_tokens=min(training.wanted.new_tokens, room),
        end=training.tokenizer.eos_token_id, seed=training.recipe.seed,
    )  # fmt: skip


def _replies(training: Sampled, batch: Sequence[Example], decoding: Decoding) -> list[Sample]:
    return [
        Sample(
            data=example.data, row=example.row.id, faulty=example.row.provenance.faulty, task=example.row.task,
            task_family=example.row.task_family, target=example.row.target,
            reply=training.tokenizer.decode(tokens, skip_special_tokens=True), tokens=len(tokens), ended=ended,
        )
        for example, (tokens, ended) in zip(batch, decoding.texts(), strict=True)
    ]  # fmt: skip
