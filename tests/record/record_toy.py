"""The task that the tests of this room record launchers for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ptxbench.core import Argument, LaunchPlan, Rejection, Task, Workload

SOURCES = Path(__file__).with_name("sources")
SIZES = {"M": 256, "N": 128, "K": 192}

TASK = Task(
    name="toy",
    title="C = A·Bᵀ",
    operation="gemm",
    sizes=("M", "N", "K"),
    size_rules={"M": 128, "N": 128, "K": 64},
    arguments=(
        Argument(name="A", role="input", dtype="bf16", shape=("M", "K")),
        Argument(name="B", role="input", dtype="bf16", shape=("N", "K")),
        Argument(name="C", role="output", dtype="bf16", shape=("M", "N")),
    ),
    workloads=(Workload(tier="small", sizes=SIZES),),
    distributions=("normal",),
    baselines=("cublas",),
)

Record = Callable[..., LaunchPlan | Rejection]
