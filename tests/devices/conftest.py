"""What tests on a real GPU share."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from cuda_support import Log, nvidia_smi, which_device
from devices_prepared import Prepared, prepared_cases

from ptxbench.build import Toolchain, find_toolchain
from ptxbench.cli.gpu import GPU_TIERS, bench_here
from ptxbench.core import Target
from ptxbench.devices import Arena, CudaDevice, SimulatorDevice, verifier_cubin
from ptxbench.evaluate import Bench, LocalEvaluator, on_bench
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.solutions import include_dir


@pytest.fixture
def log(results: Any) -> Log:
    return Log(results)


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    return find_toolchain()


@pytest.fixture(scope="session")
def prepared(shared_cache: Cache) -> Prepared:
    return prepared_cases(shared_cache)


@pytest.fixture(scope="session")
def bench(toolchain: Toolchain, shared_cache: Cache, results: Any) -> Iterator[Bench]:
    cubin = verifier_cubin(toolchain.cuda / "bin" / "nvcc", Target.SM_90A, shared_cache)
    with bench_here(shared_cache.root, cubin) as bench:
        date = datetime.now(UTC).isoformat(timespec="seconds")
        results.record(
            "machine", date=date, which=which_device(), **bench.device.properties, nvidia_smi=nvidia_smi(),
            libraries=bench.libraries(),
        )  # fmt: skip
        yield bench


@pytest.fixture(scope="session")
def gpu(bench: Bench) -> CudaDevice:
    return bench.device


@pytest.fixture(scope="session")
def arena(bench: Bench) -> Arena:
    return bench.arena


@pytest.fixture(scope="session")
def judge(bench: Bench, toolchain: Toolchain, shared_cache: Cache) -> LocalEvaluator:
    """The whole pipeline on the GPU, with the simulator beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTXBENCH_CACHE", str(shared_cache.root))
        simulator = SimulatorDevice()
        simulator.prepare()
    local = LocalEvaluator(
        simulator, toolchain, find_recorder(toolchain, shared_cache), shared_cache, include_dir(), tiers=GPU_TIERS
    )
    return on_bench(local, bench)
