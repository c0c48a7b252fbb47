"""Every launcher of ``refused.cu`` is refused with the right outcome, and says why and what to write instead."""

from __future__ import annotations

import re

import pytest
from record_toy import SOURCES, Record

from ptxbench.core import Outcome, Rejection

CONTRACT, LAUNCH, TIMEOUT = Outcome.CONTRACT_ERROR, Outcome.LAUNCH_ERROR, Outcome.TIMEOUT

# launcher: (outcome, part of the reason, part of the advice)
CASES: dict[str, tuple[Outcome, str, str]] = {
    "counts_calls": (CONTRACT, r"on how often launch was called before: step 0, .* has grid \(1, 1, 1\)", "counters"),
    "counts_in_argument": (CONTRACT, "Parameter 2 of kernel .* how often launch was called before", "counters"),
    "works_once": (CONTRACT, "first call does a launch of kernel that the second call does not do", "every call"),
    "looks_at_pointer": (CONTRACT, "depends on the values of its pointers: .* grid", "pointer bits"),
    "looks_at_process": (CONTRACT, "Parameter 2 of kernel .* depends on the process", "environment"),
    "passes_host_pointer": (CONTRACT, "Parameter 0 of kernel holds a host address", "cudaMemcpyAsync"),
    "copies_once": (CONTRACT, "first call does a copy from the host that the second", "every call"),
    "keeps_map": (CONTRACT, "map in parameter 0 of with_map was encoded in an earlier call .* pointer A", "every call"),
    "keeps_pointer": (CONTRACT, "Parameter 0 of kernel holds the pointer A of an earlier call", "static variable"),
    "launches_nothing": (CONTRACT, "plan without a kernel", "at least one kernel"),
    "only_fills": (CONTRACT, "plan without a kernel", "at least one kernel"),
    "too_much_shared": (LAUNCH, r"307200 bytes \(300 KiB\) of shared memory .* allows 232448", "fewer stages"),
    "checks_shared": (LAUNCH, r"returned 1 \(cudaErrorInvalidValue\); cudaFuncSetAttribute .* 307200", "device allows"),
    "forgets_attribute": (LAUNCH, "65536 bytes of dynamic shared .* 49152 are allowed", "cudaFuncSetAttribute"),
    "large_static": (LAUNCH, "131072 bytes of static shared memory, and 49152 are allowed", "extern __shared__"),
    "block_too_large": (LAUNCH, r"block \(2048, 1, 1\)", "block within"),
    "beyond_bounds": (LAUNCH, "bounded has 256 threads per block, .* at most 128", "__launch_bounds__"),
    "empty_grid": (LAUNCH, r"grid \(1, 0, 1\)", "grid within"),
    "grid_no_multiple": (LAUNCH, r"grid \(6, 1, 1\), which is no multiple of its cluster \(4, 1, 1\)", "multiple"),
    "cluster_too_large": (LAUNCH, r"cluster \(32, 1, 1\)", "smaller cluster"),
    "cluster_not_portable": (LAUNCH, "cluster of 16 CTAs, and more than 8", "NonPortableClusterSizeAllowed"),
    "compiled_grid": (LAUNCH, r"compiled_cluster has grid \(3, 1, 1\), which is no multiple", "multiple"),
    "uses_freed": (LAUNCH, "allocation that was freed before", "cudaFree after"),
    "allocates_too_much": (LAUNCH, "cudaMalloc failed with cudaErrorMemoryAllocation", "error code"),
    "fills_beyond": (LAUNCH, "A fill touches bytes 0 to 131072 of C, which has 65536", "in bytes"),
    "fills_input": (Outcome.INTEGRITY_VIOLATION, "A fill writes the input A", "outputs and the workspace"),
    "copies_beyond_symbol": (LAUNCH, "beyond the variable table", "error code"),
    "cooperative_too_large": (LAUNCH, "cudaErrorCooperativeLaunchTooLarge.*does not fit on the device at once", ""),
    "map_swizzle": (LAUNCH, "on A, .* inner box is 256 bytes, and swizzle 128b allows 128", "rule"),
    "map_stride": (LAUNCH, "stride of dimension 1 is 386 bytes, and must be a multiple of 16", "rule"),
    "map_address": (LAUNCH, "address must be a multiple of 16", "rule"),
    "map_box": (LAUNCH, "box extent 1 is 512", "rule"),
    "map_inner_box": (LAUNCH, "inner box is 8 bytes, and must be a multiple of 16", "rule"),
    "map_fill": (LAUNCH, "fill with NaN needs a floating-point type", "rule"),
    "map_beyond": (CONTRACT, "on A, .* byte 98688 of a buffer of 98304 bytes; dimension 1", "strides in bytes"),
    "map_offset_beyond": (CONTRACT, "byte 98320 of a buffer of 98304 bytes", "strides in bytes"),
    "map_nowhere": (CONTRACT, "does not begin in a tensor argument", "pointer argument"),
    "map_unaligned_object": (LAUNCH, "cuTensorMapEncodeTiled had failed: .* multiple of 64 bytes", ""),
    "map_changed": (CONTRACT, "was changed after it was encoded", "copy it whole"),
    "never_joined": (CONTRACT, "launcher's stream never waits for", "cudaStreamWaitEvent"),
    "never_forked": (CONTRACT, "not forked from the launcher's stream", "cudaStreamWaitEvent"),
    "wild_stream": (LAUNCH, "cudaErrorInvalidResourceHandle", "error code"),
    "reads_device": (CONTRACT, "cudaMemcpyAsync .*depend on the sizes only", "into the kernel"),
    "reads_default": (CONTRACT, "cudaMemcpy .*depend on the sizes only", "into the kernel"),
    "dereferences": (CONTRACT, "device memory on the host", "into a kernel"),
    "asks_entry_point": (CONTRACT, "cuModuleLoadData .*only the kernels of the source", "<<<>>>"),
    "access_policy": (CONTRACT, "access policy window", "cache hints"),
    "unknown_attribute": (CONTRACT, "launch attribute 77", "cluster dimension"),
    "unknown_device_attribute": (CONTRACT, "cudaDeviceGetAttribute .attribute 33", "without this attribute"),
    "returns_error": (LAUNCH, r"launch returned 1 \(cudaErrorInvalidValue\)\.", "return 0"),
    "returns_nonsense": (LAUNCH, "launch returned -7", "return 0"),
    "ends_after_error": (LAUNCH, "exit code 1 after cudaMemsetAsync had failed with cudaErrorInvalidValue", ""),
    "exits": (CONTRACT, r"launch ends the process \(exit code 3\)", "return code"),
    "exits_at_once": (CONTRACT, r"launch ends the process \(exit code 0\)", "return code"),
    "aborts": (LAUNCH, "crashed on the host with SIGABRT", "straight code"),
    "crashes": (LAUNCH, "crashed on the host with SIGSEGV", "straight code"),
    "throws": (LAUNCH, "let a C.. exception out: no such shape", "straight code"),
    "overflows_stack": (LAUNCH, "crashed on the host with SIGSEGV", "straight code"),
    "loops": (TIMEOUT, "did not return within 0.3 s", "straight code"),
    "sleeps": (TIMEOUT, "did not return within 0.3 s", "straight code"),
    "forks": (CONTRACT, "system call fork, .* threads or processes", "straight code"),
    "takes_memory": (CONTRACT, "more than 1024 MiB of host memory", "straight code"),
    "launches_forever": (CONTRACT, "more than 4096 kernels", "fewer"),
    "writes_garbage": (CONTRACT, "Something other than the recorder", "straight code"),
    "closes_everything": (CONTRACT, r"ends the process \(exit code 3\)", "return code"),
    "floods": (TIMEOUT, "did not return", "straight code"),
    "forges_done": (CONTRACT, "Something other than the recorder", "straight code"),
    "forges_foreign_kernel": (CONTRACT, "The launch of stolen does not fit a kernel of the source", "<<<>>>"),
    "forges_parameters": (CONTRACT, "The launch of bounded does not fit a kernel of the source", "<<<>>>"),
    "forges_order": (CONTRACT, "no order", "straight code"),
    "forges_address": (CONTRACT, "destination of a fill is 0x3039, which is the address of no buffer", "workspace"),
    "forges_width": (CONTRACT, "Something other than the recorder", "straight code"),
    "forges_field": (CONTRACT, "Something other than the recorder", "straight code"),
}
_SHORT = {"loops", "sleeps", "floods"}


@pytest.mark.parametrize("launcher", CASES)
def test_refused_with_reason_and_advice(record: Record, launcher: str) -> None:
    outcome, reason, advice = CASES[launcher]
    result = record("refused", launcher, time_limit_s=0.3 if launcher in _SHORT else 5.0)
    assert isinstance(result, Rejection)
    assert result.outcome is outcome
    assert re.search(reason, result.reason), result.reason
    assert re.search(advice, result.advice), result.advice
    assert result.reason.endswith(".")
    assert "\n" not in result.reason


def test_every_launcher_of_the_source_has_a_case() -> None:
    launchers = re.findall(r"^LAUNCHER\((\w+)\)", (SOURCES / "refused.cu").read_text(), re.MULTILINE)
    assert set(launchers) - {"launch", "forges_own_kernel"} == set(CASES)


def test_a_whole_forged_recording_is_only_the_forgers_own_plan(record: Record) -> None:
    plan = record("refused", "forges_own_kernel")
    assert not isinstance(plan, Rejection)
    assert plan.kernels() == ("_Z7boundedP13__nv_bfloat16",)
    assert plan.nodes[0].op == "kernel"
    assert not plan.nodes[0].parameters.patches
