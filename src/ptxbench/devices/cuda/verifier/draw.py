"""Inputs on the device: the distributions of the room `tasks`, from a counter-based generator (Philox)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping

from ptxbench.core import Task, UsageError
from ptxbench.devices.cuda.verifier.arrays import Array, Arrays, over
from ptxbench.tasks import DISTRIBUTIONS

KINDS = ("normal", "wide_range", "spikes", "equal_rows", "grown_rows", "repeated_row")
"""Names of the functions of `tasks.distributions` in the order of ``Kind`` in ``inputs.cu``."""


def draw(
    arrays: Arrays, task: Task, sizes: Mapping[str, int], distribution: str, seed: int, without: Collection[str] = ()
) -> dict[str, Array]:
    """Inputs of a task by name, in their dtypes, distributed as `tasks.draw_inputs` says, but with other values.

    Every (seed, distribution, sizes, argument) has a key of its own. ``without`` names inputs that are not drawn.
    `UsageError` for a distribution that is not in `tasks.DISTRIBUTIONS`.
    """
    if distribution not in DISTRIBUTIONS:
        raise UsageError(f"unknown input distribution '{distribution}'; known are {', '.join(DISTRIBUTIONS)}")
    values, apart = DISTRIBUTIONS[distribution]
    drawn: dict[str, Array] = {}
    for argument in (a for a in task.inputs if a.name not in without):
        array = arrays.empty(argument.dims(dict(sizes)), argument.dtype)
        kind = KINDS.index(apart.get(argument.name, values).__name__)
        columns, rows = array.shape[-1], array.shape[-2] if len(array.shape) > 1 else 1
        key = _key(seed, distribution, argument.name, *(sizes[name] for name in task.sizes))
        arrays.machine.launch(
            "fill_inputs", over(array.count), [array, array.code, array.count, columns, rows, kind, key]
        )
        drawn[argument.name] = array
    return drawn


def _key(*parts: int | str) -> int:
    """A 64-bit key that differs whenever any part does."""
    return int.from_bytes(hashlib.sha256(json.dumps(parts).encode()).digest()[:8], "little")
