"""What a training leaves beside its weights: everything that its result depends on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ptxbench.adapt.training.checkpoints import NORMS
from ptxbench.adapt.training.material import DataUse
from ptxbench.core import Record, UsageError, record_in
from ptxbench.store import write_atomically

RECORD = "training.json"


class TrainingRecord(Record):
    """What ``training.json`` holds. ``recipe`` is the whole recipe with the seed that was used, ``history`` what the
    trainer logged step by step, ``losses`` the validation loss per data set and task family after training.
    """

    schema_version: int = 1
    recipe: dict[str, Any]
    recipe_digest: str
    dry_run: bool = False
    data: tuple[DataUse, ...] = ()
    trained_parameters: int = 0
    steps: int = 0
    planned_steps: int = 0
    stopped_early: bool = False
    resumed_at: tuple[int, ...] = ()
    finished: bool = False
    versions: dict[str, str] = {}
    device: str = ""
    history: tuple[dict[str, float], ...] = ()
    losses: dict[str, float] = {}
    tokens: dict[str, int] = {}

    @property
    def evaluation_tasks(self) -> tuple[str, ...]:
        """Evaluation tasks that the model was trained on, which every later result must say."""
        return tuple(sorted({task for use in self.data for task in use.evaluation_tasks}))


def recipe_digest(recipe: Record) -> str:
    """SHA-256 of the recipe's canonical JSON."""
    return hashlib.sha256(json.dumps(recipe.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def write_record(folder: Path, record: TrainingRecord) -> None:
    """Writes the record at once."""
    write_atomically(folder / RECORD, record.model_dump_json(indent=1).encode())


def read_record(folder: Path) -> TrainingRecord:
    """The record in a training's folder; `UsageError` if there is none that can be read."""
    return record_in(
        folder / RECORD, TrainingRecord, "a record of a training of schema 1", "give a folder of `ptxbench train`"
    )


def finished_record(folder: Path) -> TrainingRecord:
    """The record of a training that ended; `UsageError` if it did not."""
    record = read_record(folder)
    if not record.finished:
        raise UsageError(f"the training in {folder} did not end; finish it with `ptxbench train … --resume`")
    return record


def last_checkpoint(folder: Path) -> Path | None:
    """The latest checkpoint that was written completely: `NORMS` is the last of its files."""
    found: list[tuple[int, Path]] = []
    for path in folder.glob("checkpoint-*"):
        try:
            step = int(json.loads((path / "trainer_state.json").read_text())["global_step"])
        except (OSError, ValueError, KeyError):
            continue  # killed while it was written
        if not (path / NORMS).exists():
            continue
        found.append((step, path))
    return max(found)[1] if found else None


def continued(folder: Path, digest: str, data: tuple[DataUse, ...]) -> TrainingRecord:
    """The record of the training that is resumed; `UsageError` if it was of another recipe or other data."""
    before = read_record(folder)
    if before.recipe_digest != digest:
        raise UsageError(f"{folder} was trained with another recipe or seed; resume with that one, or train into "
                         "another folder")  # fmt: skip
    if [use.digest for use in before.data] != [use.digest for use in data]:
        raise UsageError(f"the data sets have changed since the training in {folder} began; build those again, or "
                         "train into another folder")  # fmt: skip
    return before
