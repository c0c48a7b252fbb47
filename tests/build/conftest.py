"""One toolchain, one task and one cache for the whole room."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from ptxbench.build import Limits, Toolchain, compile_candidate, find_toolchain
from ptxbench.core import Argument, Artifact, Candidate, Rejection, Target, Task
from ptxbench.native import Cache

TASK = Task(
    name="toy",
    title="C = A + B",
    operation="gemm",
    sizes=("M", "N"),
    size_rules={},
    arguments=(
        Argument(name="A", role="input", dtype="bf16", shape=("M", "N")),
        Argument(name="B", role="input", dtype="bf16", shape=("M", "N")),
        Argument(name="C", role="output", dtype="f32", shape=("M", "N")),
    ),
    workloads=(),
    distributions=(),
    baselines=(),
)

Compile = Callable[..., Artifact | Rejection]


def candidate(source: str, target: Target = Target.SM_90A) -> Candidate:
    digest = hashlib.sha256(source.encode(errors="surrogatepass")).hexdigest()
    return Candidate(task=TASK.name, target=target, source=source, digest=digest)


@pytest.fixture(scope="session")
def task() -> Task:
    return TASK


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    return find_toolchain()


@pytest.fixture(scope="session")
def compiled(toolchain: Toolchain, shared_cache: Cache) -> Compile:
    def run(source: str, target: Target = Target.SM_90A, **more: Limits) -> Artifact | Rejection:
        return compile_candidate(candidate(source, target), TASK, toolchain=toolchain, cache=shared_cache, **more)

    return run
