"""A recorder, a task, and candidates that hold several launchers each (tests choose one by its name)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.build import Toolchain, compile_candidate, find_toolchain
from ptxbench.core import Argument, Artifact, Candidate, LaunchPlan, Rejection, Target, Task, Workload
from ptxbench.native import Cache
from ptxbench.record import Recorder, find_recorder

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


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    return find_toolchain()


@pytest.fixture(scope="session")
def recorder(toolchain: Toolchain, shared_cache: Cache) -> Recorder:
    return find_recorder(toolchain, shared_cache)


@pytest.fixture(scope="session")
def build(toolchain: Toolchain, shared_cache: Cache) -> Callable[[str], Artifact]:
    """Compiles ``sources/<name>.cu``, or a source text."""

    def compiled(source: str) -> Artifact:
        text = (SOURCES / f"{source}.cu").read_text() if "\n" not in source else source
        candidate = Candidate(
            task=TASK.name, target=Target.SM_90A, source=text, digest=hashlib.sha256(text.encode()).hexdigest()
        )
        artifact = compile_candidate(candidate, TASK, toolchain=toolchain, cache=shared_cache)
        assert isinstance(artifact, Artifact), artifact
        return artifact

    return compiled


@pytest.fixture
def record(recorder: Recorder, build: Callable[[str], Artifact]) -> Record:
    """Records a launcher of a source at the task's sizes."""

    def recorded(source: str, launcher: str, **options: float) -> LaunchPlan | Rejection:
        return recorder.record(build(source), TASK, SIZES, launcher=launcher, **options)

    return recorded
