"""What the simulator adds to a verdict that hardware decides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ptxbench.build import find_toolchain
from ptxbench.core import Artifact, make_candidate
from ptxbench.devices import SimulatorDevice
from ptxbench.evaluate import LocalEvaluator, Simulated, simulate
from ptxbench.judge import Evidence
from ptxbench.native import Cache
from ptxbench.record import find_recorder
from ptxbench.solutions import examples, include_dir
from ptxbench.tasks import get_task

TASK = get_task("gemm_n7168_k5120")
ROWS = {row.file: row for row in examples()}

# One thread per element of C, far more warp instructions than are simulated beside hardware.
SLOW = """
#include <cuda_bf16.h>
__global__ void product(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int N, int K) {
    float sum = 0;
    for (int k = 0; k < K; ++k)
        sum += __bfloat162float(A[blockIdx.y * K + k]) * __bfloat162float(B[(blockIdx.x * 128 + threadIdx.x) * K + k]);
    C[blockIdx.y * N + blockIdx.x * 128 + threadIdx.x] = __float2bfloat16(sum);
}
extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    product<<<dim3(N / 128, M), 128, 0, stream>>>(A, B, C, N, K);
    return cudaGetLastError();
}
"""

Found = Callable[[str], Simulated]


@pytest.fixture(scope="module")
def found(shared_cache: Cache) -> Found:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PTXBENCH_CACHE", str(shared_cache.root))
        device, toolchain = SimulatorDevice(), find_toolchain()
        device.prepare()
    judge = LocalEvaluator(device, toolchain, find_recorder(toolchain, shared_cache), shared_cache, include_dir())

    def simulated(source: str) -> Simulated:
        candidate = make_candidate(source, task=TASK.name, target=ROWS["right_raw_asm.cu"].target, origin="")
        artifact = judge.compile(candidate)
        assert isinstance(artifact, Artifact), artifact
        plans = judge.record(artifact, TASK, TASK.of_tier("small"))
        assert isinstance(plans, tuple), plans
        evidence = Evidence(TASK, candidate, {}, artifact=artifact, plans=plans, seeds=(3,))
        return simulate(device, evidence, ("small", "core"), threads=2)

    return simulated


def test_a_clean_kernel_has_no_finding_and_follows_the_knock_out(found: Found) -> None:
    seen = found(ROWS["right_raw_asm.cu"].source())
    assert seen.findings == () and seen.note == ""
    assert seen.instructions is not None and seen.instructions.perturbation_followed == 1


def test_a_result_that_depends_on_the_schedule_is_a_finding(found: Found) -> None:
    seen = found(ROWS["wrong_early_release.cu"].source())
    assert {finding.kind for finding in seen.findings} == {"simulated_wrong_result"}
    assert all(finding.severity == "race" and "Output C is wrong" in finding.message for finding in seen.findings)


def test_a_deadlock_is_a_finding(found: Found) -> None:
    assert {finding.kind for finding in found(ROWS["wrong_barrier_parity.cu"].source()).findings} == {
        "simulated_deadlock"
    }


def test_a_kernel_that_is_too_slow_to_simulate_is_no_finding(found: Found) -> None:
    seen = found(SLOW)
    assert seen.findings == () and seen.instructions is None
    assert "Not simulated to the end" in seen.note
