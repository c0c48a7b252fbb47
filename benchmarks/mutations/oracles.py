"""Kernels of another compiler as subjects: those of the Triton oracles, with their inputs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np

from benchmarks.mutations.trying import Subject, clean, run
from ptxbench.check import Contents
from ptxbench.core import Target
from ptxbench.evaluate import SCHEDULES

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "tests" / "oracles"))
from cases_attention import BACKWARD, FORWARD, backward, forward
from cases_matmul import DESCRIPTORS, POINTERS, through_descriptors, through_pointers
from oracles_expected import Oracle

_ELEMENTS = {
    np.dtype(np.float16): "f16", np.dtype(ml_dtypes.bfloat16): "bf16", np.dtype(np.float32): "f32",
    np.dtype(ml_dtypes.float8_e4m3fn): "e4m3", np.dtype(ml_dtypes.float8_e5m2): "e5m2",
}  # fmt: skip
TOLERATED = {
    "unwaited_tensor_load", "missing_mbarrier_init_fence", "missing_tcgen05_fence_before",
    "missing_tcgen05_fence_after",
}  # fmt: skip
"""Rules of the ISA that Triton 3.9 does not keep and ptxas does not need kept: loads of tensor memory used before their
wait, mbarriers of a single CTA without a fence, barriers without the fences of tcgen05.
"""


def _both() -> dict[str, Callable[[], Oracle]]:
    found: dict[str, Callable[[], Oracle]] = {}
    for target in Target:
        for name in ("tile", "specialised", "persistent-specialised"):
            found[f"triton/{target}/matmul-{name}"] = partial(through_descriptors, DESCRIPTORS[name], target)
        found[f"triton/{target}/matmul-pointers"] = partial(through_pointers, POINTERS["plain"], target)
        found[f"triton/{target}/forward"] = partial(forward, FORWARD["d64"], target, causal=False)
        found[f"triton/{target}/backward"] = partial(backward, BACKWARD["d64"], target, causal=False)
    return found


ORACLES = _both()
"""Twelve kernels by their names: six of each target."""


def oracle(name: str) -> Subject:
    """One of the kernels. Raises `ValueError` if its results are not right, or more is reported than is tolerated."""
    made = ORACLES[name]()
    artifact, plan = made.launch.plan()
    contents = {
        buffer: Contents(_ELEMENTS.get(array.dtype, "bytes"), array.tobytes())
        for buffer, array in made.launch.buffers.items()
    }
    made.launch.simulate()
    wrong = [output for output, expected in made.expected.items() if expected.ratio(made.launch.buffers[output]) > 1]
    if wrong:
        raise ValueError(f"{name} is wrong in {', '.join(wrong)}")
    shown = {finding.kind for s in SCHEDULES for finding in run(artifact, plan, contents, s, races=True)[1]}
    return clean(Subject(name, artifact, plan, contents, {}, frozenset(shown & TOLERATED)))
