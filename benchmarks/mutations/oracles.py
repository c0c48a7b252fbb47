"""Kernels of another compiler as subjects: those of the Triton oracles, with their inputs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
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


Maker = Callable[[], Oracle]


def _both() -> dict[str, tuple[Maker, ...]]:
    found: dict[str, tuple[Maker, ...]] = {}
    plain, one_cta = POINTERS["plain"], replace(DESCRIPTORS["persistent-specialised"], programs=1)
    for target in Target:
        for name in ("tile", "specialised"):
            found[f"triton/{target}/matmul-{name}"] = (partial(through_descriptors, DESCRIPTORS[name], target),)
        found[f"triton/{target}/matmul-persistent-specialised"] = tuple(
            partial(through_descriptors, case, target) for case in (DESCRIPTORS["persistent-specialised"], one_cta)
        )
        found[f"triton/{target}/matmul-pointers"] = tuple(
            partial(through_pointers, case, target) for case in (plain, replace(plain, depth=plain.depth + 1))
        )
        for name, make, case in (("forward", forward, FORWARD["d64"]), ("backward", backward, BACKWARD["d64"])):
            cases = case, replace(case, length=384, heads=1)
            found[f"triton/{target}/{name}"] = tuple(partial(make, each, target, causal=False) for each in cases)
    return found


ORACLES = _both()
"""Twelve kernels by their names, six of each target: how each is made, and made again at a further size: one step or
tile more than is even, or than there are stages.
"""


def oracle(name: str) -> Subject:
    """One of the kernels. Raises `ValueError` if its results are not right, or more is reported than is tolerated, or
    the compiler makes another kernel for the further size.
    """
    first, *others = (_subject(name, make()) for make in ORACLES[name])
    if any(other.artifact.ptx != first.artifact.ptx for other in others):
        raise ValueError(f"{name} is another kernel at another size")
    return replace(first, others=tuple(others))


def _subject(name: str, made: Oracle) -> Subject:
    artifact, plan = made.launch.plan()
    contents = {
        buffer: Contents(_ELEMENTS.get(array.dtype, "bytes"), array.tobytes())
        for buffer, array in made.launch.buffers.items()
    }
    made.launch.simulate()
    wrong = [output for output, expected in made.expected.items() if expected.ratio(made.launch.buffers[output]) > 1]
    if wrong:
        raise ValueError(f"{name} is wrong in {', '.join(wrong)}")
    known: Counter[str] = Counter()
    for schedule in SCHEDULES:
        known |= Counter(finding.kind for finding in run(artifact, plan, contents, schedule, races=True)[1])
    return clean(Subject(name, artifact, plan, contents, {}, {kind: known[kind] for kind in TOLERATED & set(known)}))
