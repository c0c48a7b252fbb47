"""Numbers of a data set: what is in it, how balanced it is, what every gate let through and kept out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ptxbench.adapt.data.build import Built
from ptxbench.adapt.data.faults import FAILURES, SLOW
from ptxbench.adapt.data.repair import Trial
from ptxbench.adapt.data.rows import Row
from ptxbench.adapt.data.similarity import NearDuplicates, Shingles, jaccard, shingles
from ptxbench.core import Record
from ptxbench.prompts import extract_kernel
from ptxbench.solutions import solutions

BINS = 20
"""Of a histogram of similarities from 0 to 1."""

PAIRS = 300
"""Kernels that are compared pair by pair at most, evenly chosen."""

AXES = ("task", "target", "failure", "technique")


class Axis(Record):
    """How rows are spread over the values of one axis.

    ``largest`` is the largest share of the rows; ``evenness`` the entropy of the shares over that of equal ones (1 is
    even). A row counts for each of its techniques.
    """

    counts: dict[str, int]
    largest: float
    evenness: float


class Operator(Record):
    """What became of one fault operator. ``bases`` is the number of different good kernels it was confirmed on,
    ``alike`` the largest similarity between two of the first three of them.
    """

    topic: str
    confirmed: int
    judged: int
    applies: int
    bases: int
    alike: float
    targets: tuple[str, ...]
    kinds: dict[str, int]


class Statistics(Record):
    """Everything that the report shows. Histograms have `BINS` equal bins from 0 to 1; ``fallbacks`` says why a
    teacher's explanations did not count.
    """

    rows: int
    splits: dict[str, int]
    tokens: dict[str, float]
    tokenizer: str
    max_tokens: int
    axes: dict[str, Axis]
    cross: dict[str, dict[str, dict[str, int]]]
    families: dict[str, int]
    conditions: dict[str, int]
    licences: dict[str, int]
    judges: dict[str, int]
    devices: dict[str, int]
    kernels: int
    distinct: dict[str, int]
    distinct_by_technique: dict[str, int]
    pair_similarity: tuple[int, ...]
    evaluation_similarity: tuple[int, ...]
    closest_to_evaluation: float
    duplicate_threshold: float
    contamination_threshold: float
    gates: dict[str, int]
    operators: dict[str, Operator]
    minimum: dict[str, int]
    missing: dict[str, str]
    unbalanced: tuple[str, ...]
    evaluation_tasks: tuple[str, ...]
    timed: int
    fallbacks: dict[str, int] = {}


def describe(built: Built) -> Statistics:
    """All numbers of a built data set."""
    rows, recipe = built.rows, built.recipe
    kernels = good_sources(rows)
    sets = {digest: shingles(source) for digest, source in kernels.items()}
    near = [max((jaccard(own, other) for other in _evaluation()), default=0.0) for own in sets.values()]
    axes = {
        "task": _axis(row.task for row in rows),
        "target": _axis(row.target.value for row in rows),
        "technique": _axis(technique for row in rows for technique in row.techniques),
        **({"failure": _axis(row.failure for row in rows)} if recipe.kind == "repair" else {}),
    }
    tokens = np.array([row.tokens for row in rows], dtype=float)
    return Statistics(
        rows=len(rows),
        splits=dict(Counter(row.split for row in rows)),
        tokens={
            "least": float(tokens.min()), "median": float(np.median(tokens)), "p90": float(np.quantile(tokens, 0.9)),
            "most": float(tokens.max()), "total": float(tokens.sum()),
        },
        tokenizer=recipe.tokenizer,
        max_tokens=recipe.gates.max_tokens,
        axes=axes,
        cross=_crossed(rows, recipe.kind),
        families=dict(Counter(row.kernel_family for row in rows)),
        conditions=dict(Counter(row.condition for row in rows)),
        licences=dict(Counter(row.licence for row in rows)),
        judges=_together(
            [version.get("code", "unknown") for version in row.provenance.judges.values()] for row in rows
        ),
        devices=_together(row.provenance.devices.values() for row in rows),
        kernels=len(kernels),
        distinct={f"{threshold:.2f}": _distinct(sets, threshold) for threshold in (0.95, 0.9, 0.85, 0.8, 0.7)},
        distinct_by_technique=_by_technique(rows),
        pair_similarity=_histogram(_pairs(list(sets.values()))),
        evaluation_similarity=_histogram(near),
        closest_to_evaluation=max(near, default=0.0),
        duplicate_threshold=recipe.gates.duplicate,
        contamination_threshold=recipe.gates.contamination,
        gates=dict(Counter(item.gate for item in built.dropped)),
        operators={trial.fault.name: _operator(trial) for trial in built.trials},
        minimum=dict(recipe.faults.minimum) if recipe.kind == "repair" else {},
        missing=_missing(built),
        unbalanced=_unbalanced(axes, recipe.gates.max_share),
        evaluation_tasks=recipe.evaluation_tasks,
        timed=sum(row.speedup is not None for row in rows),
        fallbacks=dict(built.fallbacks),
    )  # fmt: skip


def _together(names: Iterable[Iterable[str]]) -> dict[str, int]:
    """How many rows have each set of names."""
    return dict(Counter(" and ".join(sorted(set(own))) for own in names))


def good_sources(rows: Iterable[Row]) -> dict[str, str]:
    """The good kernels of the rows by source digest, each once."""
    return {row.provenance.good: extract_kernel(row.conversation[-1].content).source for row in rows}


def _evaluation() -> list[Shingles]:
    return [shingles(row.source()) for row in solutions()]


def _axis(values: Iterable[str]) -> Axis:
    counts = Counter(values)
    total = sum(counts.values())
    shares = [count / total for count in counts.values()]
    entropy = -sum(share * math.log(share) for share in shares)
    evenness = entropy / math.log(len(shares)) if len(shares) > 1 else 1.0
    return Axis(counts=dict(counts.most_common()), largest=max(shares, default=0.0), evenness=round(evenness, 4))


def _crossed(rows: Sequence[Row], kind: str) -> dict[str, dict[str, dict[str, int]]]:
    def table(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
        found: dict[str, Counter[str]] = {}
        for left, right in pairs:
            found.setdefault(left, Counter())[right] += 1
        return {left: dict(counts) for left, counts in sorted(found.items())}

    tables = {
        "task and target": table((row.task, row.target.value) for row in rows),
        "technique and target": table((t, row.target.value) for row in rows for t in row.techniques),
    }
    if kind == "repair":
        tables["failure and target"] = table((row.failure, row.target.value) for row in rows)
        tables["failure and task"] = table((row.failure, row.task) for row in rows)
    return tables


def _distinct(sets: Mapping[str, Shingles], threshold: float) -> int:
    seen = NearDuplicates(threshold)
    for digest, own in sets.items():
        seen.add(digest, own)
    return len(seen.kept)


def _by_technique(rows: Sequence[Row]) -> dict[str, int]:
    found: dict[str, set[str]] = {}
    for row in rows:
        for technique in row.techniques:
            found.setdefault(technique, set()).add(row.provenance.good)
    return {technique: len(digests) for technique, digests in sorted(found.items(), key=lambda kv: -len(kv[1]))}


def _pairs(sets: Sequence[Shingles]) -> list[float]:
    step = max(1, math.ceil(len(sets) / PAIRS))
    chosen = sets[::step]
    return [jaccard(own, other) for i, own in enumerate(chosen) for other in chosen[:i]]


def _histogram(values: Sequence[float]) -> tuple[int, ...]:
    counts, _ = np.histogram(values, bins=BINS, range=(0.0, 1.0))
    return tuple(int(count) for count in counts)


def _operator(trial: Trial) -> Operator:
    sources = {item.good.kernel.name: shingles(item.good.kernel.source) for item in trial.confirmed}
    first = list(sources.values())[:3]
    alike = max((jaccard(a, b) for i, a in enumerate(first) for b in first[:i]), default=0.0)
    return Operator(
        topic=trial.fault.topic,
        confirmed=len(trial.confirmed),
        judged=trial.judged,
        applies=trial.applies,
        bases=len(sources),
        alike=round(alike, 3),
        targets=tuple(sorted({item.good.kernel.target.value for item in trial.confirmed})),
        kinds=dict(Counter(item.failure for item in trial.confirmed)),
    )


def _missing(built: Built) -> dict[str, str]:
    """Kinds of failure with too few rows, and why."""
    found: dict[str, str] = {}
    for kind in FAILURES:
        number = built.missing.get(kind, 0)
        if not number:
            continue
        timed = any(row.speedup is not None for row in built.rows)
        reason = "needs a device that times kernels, and none was there" if kind == SLOW and not timed else (
            "the faults that show it were confirmed on too few kernels"
        )  # fmt: skip
        found[kind] = f"{number} of {built.recipe.faults.minimum[kind]} rows are missing: {reason}"
    return found


def _unbalanced(axes: Mapping[str, Axis], limit: float) -> tuple[str, ...]:
    return tuple(
        f"{axis.largest:.0%} of the rows share one {name} ({next(iter(axis.counts))})"
        for name, axis in axes.items()
        if name != "technique" and axis.largest > limit and len(axis.counts) > 1
    )
