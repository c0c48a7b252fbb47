"""What a run will do, before anything is done: its tasks, its prompts, its record and its folder."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError

from ptxbench.core import PromptUse, RunMode, RunRecord, Target, Task, UsageError
from ptxbench.prompts import Answer, Prompt, compose
from ptxbench.store import RunFolder
from ptxbench.tasks import get_task, load_tasks

_ANSWERS: Mapping[RunMode, Answer] = {
    RunMode.ONE_SHOT: "answer",
    RunMode.MULTI_TURN: "answer",
    RunMode.AGENT: "answer_with_tools",
    RunMode.EXTERNAL: "answer_in_folder",
}


@dataclass(frozen=True)
class Pace:
    """How hard a provider is used. ``jobs`` kernels are judged at a time; ``connections`` bounds calls and
    trajectories at a time (None leaves it to the provider's default); ``timeout`` in seconds bounds one call with its
    retries.
    """

    jobs: int
    connections: int | None = None
    retries: int = 5
    timeout: int = 3600


def remaining(run: RunRecord, folder: RunFolder) -> Sequence[tuple[str, int]]:
    """(task, epoch) of the trajectories that have no record."""
    done = {(trajectory.task, trajectory.epoch) for trajectory in folder.trajectories()}
    return [sample for sample in run.samples if sample not in done]


def choose_tasks(names: str) -> tuple[Task, ...]:
    """Tasks by comma-separated names, a suite (``core``, ``extended``) standing for all of its tasks.

    Raises `UsageError` on an unknown name.
    """
    rows = load_tasks().values()
    chosen: dict[str, Task] = {}
    for name in (part.strip() for part in names.split(",")):
        suite = [task for task in rows if task.suite == name]
        chosen |= {task.name: task for task in suite or [get_task(name)]}
    return tuple(chosen.values())


def make_prompts(
    tasks: Sequence[Task],
    target: Target,
    mode: RunMode,
    *,
    condition: str,
    without: Collection[str],
    header_text: str,
) -> dict[str, Prompt]:
    """The first messages by task; `UsageError` on an unknown condition or part."""
    return {
        task.name: compose(
            task, target, condition, without=without, header_text=header_text, answer=_ANSWERS[mode]
        )
        for task in tasks
    }


def header_text(include: Path) -> str:
    """The header set below an include folder as one text, each file in a fence under its name."""
    files = sorted(include.rglob("*.cuh"))
    texts = (f"`<{file.relative_to(include)}>`\n\n```cuda\n{file.read_text().strip()}\n```" for file in files)
    return "\n\n".join(texts)


def prompt_uses(prompts: Mapping[str, Prompt]) -> dict[str, PromptUse]:
    """What a run's record says of its prompts."""
    return {
        task: PromptUse(
            digest=prompt.digest,
            tokens=prompt.tokens,
            parts=tuple((part.name, part.version) for part in prompt.parts),
        )
        for task, prompt in prompts.items()
    }


def stored_prompts(folder: RunFolder, run: RunRecord) -> dict[str, Prompt]:
    """The prompts that a run was begun with, whatever the templates say today."""
    prompts: dict[str, Prompt] = {}
    for task in run.tasks:
        path = folder.root / "prompts" / f"{task}.json"
        try:
            prompts[task] = Prompt.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise UsageError(f"cannot read {path}; the run's folder is incomplete") from error
        if prompts[task].digest != run.prompts[task].digest:
            raise UsageError(f"{path} is not the prompt that the run was begun with; restore it")
    return prompts


def run_name(model: str, mode: RunMode, condition: str, target: Target, now: datetime) -> str:
    """A name for a run's folder, such as ``20261129-181500-gpt-5-multi-turn-docs-sm_90a``."""
    kind, _, argument = model.partition(":")
    short = Path(argument).stem if argument else kind.split("/")[-1]
    clean = "".join(c if c.isalnum() or c in "._-" else "-" for c in short)
    return f"{now:%Y%m%d-%H%M%S}-{clean}-{mode}-{condition}-{target}"

