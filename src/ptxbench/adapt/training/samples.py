"""Replies of a trained model to held-out prompts, kept for judging elsewhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptxbench.adapt.training.labels import Example, as_messages
from ptxbench.adapt.training.libraries import library
from ptxbench.adapt.training.recipe import Samples
from ptxbench.adapt.training.supervised import Prepared
from ptxbench.core import Progress, Record, Target, UsageError
from ptxbench.store import write_atomically

FILE = "samples.jsonl"


class Sample(Record):
    """One reply. ``row`` is the held-out row whose prompt it answers; ``ended`` whether it stopped by itself."""

    data: str
    row: str
    task: str
    task_family: str
    target: Target
    reply: str
    tokens: int
    ended: bool


def write_samples(prepared: Prepared, folder: Path, say: Progress) -> int:
    """Samples as the recipe asks and writes ``samples.jsonl``; returns how many replies there are."""
    wanted = prepared.recipe.samples
    if wanted is None:
        return 0
    chosen = held_out_prompts(prepared, wanted)
    torch = library("torch")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = prepared.model.to(device, getattr(torch, prepared.recipe.model.dtype)).eval()
    model.config.use_cache = True
    torch.manual_seed(prepared.recipe.seed)
    jobs = [example for example in chosen for _ in range(wanted.per_prompt)]
    written: list[Sample] = []
    for start in range(0, len(jobs), wanted.batch):
        say(f"sampling replies {start + 1} to {min(start + wanted.batch, len(jobs))} of {len(jobs)}")
        written += _batch(model, prepared.tokenizer, jobs[start : start + wanted.batch], wanted, device)
    lines = "".join(sample.model_dump_json() + "\n" for sample in written)
    write_atomically(folder / FILE, lines.encode())
    return len(written)


def read_samples(folder: Path) -> list[Sample]:
    """The replies in a training's folder; `UsageError` if there are none."""
    path = folder / FILE
    try:
        return [Sample.model_validate(json.loads(line)) for line in path.read_text().splitlines()]
    except OSError as error:
        raise UsageError(f"{folder} holds no replies ({error.strerror}: {FILE}); train a recipe with [samples]"
                         ) from error  # fmt: skip
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {str(error).splitlines()[0]}; sample again") from error


def held_out_prompts(prepared: Prepared, wanted: Samples) -> list[Example]:
    """Held-out rows whose prompts fit with room for a reply, evenly over task families and targets, in an order that
    does not depend on the seed, so that all trainings answer the same prompts.
    """
    limit = prepared.recipe.max_tokens - wanted.new_tokens
    groups: dict[tuple[str, str, str], list[Example]] = {}
    for name in wanted.data:
        for example in sorted(prepared.material.validation[name], key=_order):
            if _prompt_length(example) <= limit:
                groups.setdefault((name, example.row.task_family, example.row.target.value), []).append(example)
    if not groups:
        raise UsageError(f"no held-out prompt leaves room for {wanted.new_tokens} new tokens within "
                         f"{prepared.recipe.max_tokens}; lower samples.new_tokens")  # fmt: skip
    chosen: list[Example] = []
    depth = 0
    while len(chosen) < wanted.prompts and any(len(group) > depth for group in groups.values()):
        chosen += [group[depth] for group in groups.values() if len(group) > depth]
        depth += 1
    return chosen[: wanted.prompts]


def _order(example: Example) -> str:
    return hashlib.sha256(example.row.id.encode()).hexdigest()


def _prompt_length(example: Example) -> int:
    return sum(label < 0 for label in example.labels)


def _batch(model: Any, tokenizer: Any, jobs: Sequence[Example], wanted: Samples, device: str) -> list[Sample]:
    torch = library("torch")
    asked = [as_messages(job.row.conversation[:-1]) for job in jobs]
    prompts = [tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True) for turns in asked]
    tokenizer.padding_side = "left"
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False).to(device)
    chosen: dict[str, Any] = {"do_sample": False}
    if wanted.temperature:
        chosen = {"do_sample": True, "temperature": wanted.temperature, "top_p": wanted.top_p, "top_k": 0}
    with torch.no_grad():
        out = model.generate(
            **inputs, max_new_tokens=wanted.new_tokens, pad_token_id=tokenizer.pad_token_id, **chosen
        )
    replies = out[:, inputs["input_ids"].shape[1] :].tolist()
    found: list[Sample] = []
    for job, tokens in zip(jobs, replies, strict=True):
        ended = tokenizer.eos_token_id in tokens
        kept = tokens[: tokens.index(tokenizer.eos_token_id)] if ended else tokens
        found.append(Sample(
            data=job.data, row=job.row.id, task=job.row.task, task_family=job.row.task_family, target=job.row.target,
            reply=tokenizer.decode(kept, skip_special_tokens=True), tokens=len(kept), ended=ended,
        ))  # fmt: skip
    return found
