"""FlashAttention-4, whose kernels the CuTe DSL compiles without a GPU, comes out right on the simulator."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("flash_attn.cute")

from cute_launches import record
from oracles_expected import of_problem
from oracles_run import Array

from ptxbench.core import RunOptions, Schedule, Target, Workload
from ptxbench.tasks import Problem, get_task, make_problem

pytestmark = pytest.mark.slow

SIZES = {"B": 1, "H": 2, "S": 256, "D": 128}
SCHEDULES = [
    Schedule(),
    Schedule(copies="late", products="late", reverse=True),
    Schedule(copies="eager", products="late"),
    Schedule(copies="late", products="eager"),
]
OUTPUTS = {"forward": {"O": "o", "LSE": "lse"}, "backward": {"dQ": "dq", "dK": "dk", "dV": "dv"}}
ALLOWED = {
    Target.SM_90A: set[str](),
    Target.SM_100A: {"unwaited_tensor_load", "unwaited_bulk_store"},
}
"""Rules of the ISA that it breaks, with right results: see docs/oracles.md."""


def problem_of(direction: str, *, causal: bool) -> Problem:
    task = get_task(f"mha_{'fwd' if direction == 'forward' else 'bwd'}_d128" + ("_causal" if causal else ""))
    return make_problem(task, Workload(tier="small", sizes=SIZES), "normal", 3)


def turned(array: Array) -> Array:
    """[B, H, S, ...] as [B, S, H, ...] and back; LSE stays."""
    return np.ascontiguousarray(array.swapaxes(1, 2)) if array.ndim == 4 else array


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("direction", OUTPUTS)
@pytest.mark.parametrize("target", Target)
def test_flash_attention(target: Target, direction: str, causal: bool, tmp_path: Path) -> None:
    problem = problem_of(direction, causal=causal)
    inputs = {name.lower(): turned(array) for name, array in problem.inputs.items()}
    recorded = record(target, direction, inputs, tmp_path, causal=causal)
    product = "wgmma.mma_async" if target is Target.SM_90A else "tcgen05.mma"
    assert any(product in artifact.ptx for artifact, _ in recorded.steps)
    for schedule in SCHEDULES:
        seen, buffers = recorded.simulate(inputs, RunOptions(schedule=schedule))
        for step in seen:
            assert step.fault is None, step.fault
            assert {hazard.kind for hazard in step.hazards} <= ALLOWED[target], step.hazards
        for name, buffer in OUTPUTS[direction].items():
            truth = problem.truth[name]
            kind = np.float32 if name == "LSE" else ml_dtypes.bfloat16
            shape = turned(truth).shape
            found = turned(np.frombuffer(buffers[buffer], kind).reshape(shape))
            assert of_problem(problem, name, found).ratio(found) <= 1, (name, schedule)
