"""Trainings compared on held-out tasks: validation loss, and what the judge says of their replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from ptxbench.adapt.training.reward import TIERS, judge_reply
from ptxbench.adapt.training.samples import Sample, read_samples
from ptxbench.adapt.training.saved import TrainingRecord, finished_record
from ptxbench.core import Evaluator, Progress, Record, UsageError
from ptxbench.stats import Estimate, share

SHOWN = ("code", "complete", "compiles", "contract", "correct", "instructions")


class Spread(Record):
    """The mean over seeds, and the least and the greatest of them (not an interval: seeds are few)."""

    mean: float
    least: float
    most: float
    seeds: int


class Replies(Record):
    """The replies to the prompts of one data set: how many, the share that ended by itself, and the shares that reached
    at least a tier, with 95 % intervals over tasks and replies.

    ``unchanged`` is the share that gives the kernel to be repaired back as it was, which compiles as that did; None
    where the prompts show no kernel.
    """

    number: int
    ended: float
    unchanged: float | None
    longest: int
    reached: dict[str, Estimate]


class Judged(NamedTuple):
    """A reply, the highest tier that it reached, and whether its kernel is the one that it was to repair."""

    sample: Sample
    tier: str
    unchanged: bool


class Arm(Record):
    """All seeds of one recipe. ``losses`` are per data set and task family, ``replies`` per data set."""

    name: str
    seeds: tuple[int, ...]
    losses: dict[str, Spread]
    replies: dict[str, Replies]
    too_long: dict[str, dict[str, int]]
    rows: dict[str, dict[str, int]]
    evaluation_tasks: tuple[str, ...]


class HeldOut(Record):
    """What ``heldout.json`` holds."""

    schema_version: int = 3
    judge: str
    devices: tuple[str, ...]
    data: dict[str, str]
    arms: tuple[Arm, ...]


def judge_trainings(folders: Sequence[Path], evaluator: Evaluator, judge: str, say: Progress) -> HeldOut:
    """Judges every reply of the trainings. `UsageError` if they differ in the data that they were validated on."""
    records = {folder: finished_record(folder) for folder in folders}
    digests = {tuple((use.name, use.digest) for use in record.data) for record in records.values()}
    if len(digests) != 1:
        raise UsageError("these trainings were validated on different data sets, so their losses cannot be compared; "
                         "list the same data sets in each recipe")  # fmt: skip
    groups: dict[str, list[Path]] = {}
    for folder, record in records.items():
        groups.setdefault(str(record.recipe["name"]), []).append(folder)
    return HeldOut(
        judge=judge,
        devices=tuple(sorted({record.device for record in records.values()})),
        data=dict(next(iter(digests))),
        arms=tuple(_arm(name, paths, records, evaluator, say) for name, paths in groups.items()),
    )


def _arm(
    name: str, folders: Sequence[Path], records: Mapping[Path, TrainingRecord], evaluator: Evaluator, say: Progress
) -> Arm:
    judged: dict[str, list[Judged]] = {}
    for folder in folders:
        samples = read_samples(folder)
        for number, sample in enumerate(samples, 1):
            say(f"{name}: judging reply {number} of {len(samples)} in {folder}")
            tier, verdict = judge_reply(evaluator, sample.task, sample.target, sample.reply, str(folder))
            unchanged = verdict is not None and verdict.source_digest == sample.faulty
            judged.setdefault(sample.data, []).append(Judged(sample, tier, unchanged))
    chosen = [records[folder] for folder in folders]
    first = chosen[0]
    return Arm(
        name=name,
        seeds=tuple(int(record.recipe["seed"]) for record in chosen),
        losses={group: _spread([record.losses[group] for record in chosen]) for group in first.losses},
        replies={data: _replies(own) for data, own in judged.items()},
        too_long={use.name: use.too_long for use in first.data},
        rows={use.name: {"train": use.train, "validation": use.validation} for use in first.data},
        evaluation_tasks=first.evaluation_tasks,
    )


def _replies(judged: Sequence[Judged]) -> Replies:
    samples = [own.sample for own in judged]
    tasks = [sample.task_family for sample in samples]
    return Replies(
        number=len(samples),
        ended=fmean(sample.ended for sample in samples),
        unchanged=fmean(own.unchanged for own in judged) if any(sample.faulty for sample in samples) else None,
        longest=max(sample.tokens for sample in samples),
        reached={
            tier: share([_reaches(own.tier, tier) for own in judged], tasks, np.random.default_rng(0)) for tier in SHOWN
        },
    )


def _reaches(own: str, tier: str) -> bool:
    return bool(own) and TIERS.index(own) >= TIERS.index(tier)


def _spread(values: Sequence[float]) -> Spread:
    return Spread(mean=fmean(values), least=min(values), most=max(values), seeds=len(values))
