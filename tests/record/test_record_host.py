"""Host code that is refused before or while it is loaded, and what the API answers to a launcher's questions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from record_toy import SIZES, TASK

from ptxbench.build import Sandbox
from ptxbench.core import Artifact, LaunchPlan, Outcome, Rejection, SandboxError, Target
from ptxbench.native import Cache
from ptxbench.record import Recorder

HEAD = """
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
"""
LAUNCH = 'extern "C" int launch(void *A, void *B, void *C, int M, int N, int K, void *w, cudaStream_t stream) '

Host = Callable[[str], Artifact]


def _rejection(recorder: Recorder, artifact: Artifact, seconds: float = 5.0) -> Rejection:
    result = recorder.record(artifact, TASK, SIZES, time_limit_s=seconds)
    assert isinstance(result, Rejection), result
    return result


# case: (declarations, body of launch, part of the reason, part of the advice)
LINKAGE = {
    "cublas": (
        'extern "C" int cublasGemmEx(void);', "return cublasGemmEx();",
        "cublasGemmEx, .*library call", "kernel",
    ),
    "cudnn": (
        'extern "C" int cudnnBackendExecute(void);', "return cudnnBackendExecute();",
        "cudnnBackendExecute", "kernel",
    ),
    "graph": (
        "", "cudaGraph_t g; return cudaGraphCreate(&g, 0);",
        "cudaGraphCreate, and graphs", "plain launches",
    ),
    "capture": (
        "", "return cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);",
        "BeginCapture", "plain",
    ),
    "is_capturing": (
        "", "cudaStreamCaptureStatus s; return cudaStreamIsCapturing(stream, &s);",
        "IsCapturing", "plain",
    ),
    "callback": (
        "", "return cudaLaunchHostFunc(stream, [](void *) {}, nullptr);",
        "host callbacks", "as a kernel",
    ),
    "module": (
        "", "CUmodule m; return cuModuleLoadData(&m, A);",
        "cuModuleLoadData, and only the kernels", "<<<>>>",
    ),
    "library": (
        "", "CUlibrary l; return cuLibraryLoadData(&l, A, 0, 0, 0, 0, 0, 0);",
        "cuLibraryLoadData", "<<<>>>",
    ),
    "managed": (
        "", "void *p; return cudaMallocManaged(&p, 1, 1);",
        "cudaMallocManaged, and managed", "cudaMalloc",
    ),
    "ipc": (
        "", "cudaIpcMemHandle_t h; return cudaIpcGetMemHandle(&h, C);",
        "other processes", "outputs",
    ),
    "from_symbol": (
        "", "int v; return cudaMemcpyFromSymbol(&v, A, 4, 0, cudaMemcpyDeviceToHost);",
        "cannot read", "kernel",
    ),
    "elapsed": (
        "", "float ms; return cudaEventElapsedTime(&ms, 0, 0);",
        "cannot measure time", "function of the sizes",
    ),
    "pitch": (
        "", "return cudaMemset2DAsync(C, 64, 0, 32, 8, stream);",
        "with a pitch", "contiguous",
    ),
    "l2": (
        "", "return cudaCtxResetPersistingL2Cache();",
        "outlive a launch", "cache hints",
    ),
    "unknown": (
        "", "return cudaDeviceReset();",
        "cudaDeviceReset, and the recorder does not know it", "kernel launches",
    ),
    "dlopen": (
        'extern "C" void *dlopen(const char *, int);', 'return dlopen("libcublas.so", 2) == 0;',
        "dlopen", "directly",
    ),
    "system": (
        "", 'return system("true");',
        "calls system, .*threads or processes", "straight code",
    ),
    "signal": (
        "#include <signal.h>\n", "signal(SIGSEGV, SIG_IGN); return 0;",
        "signals, timers", "straight code",
    ),
    "thread": (
        "#include <thread>\n", "std::thread([] {}).join(); return 0;",
        "threads or processes", "straight code",
    ),
}


@pytest.mark.parametrize("case", LINKAGE)
def test_calls_are_named_before_anything_runs(recorder: Recorder, host_only: Host, case: str) -> None:
    declarations, body, reason, advice = LINKAGE[case]
    # A constructor that would show that something ran.
    trap = "static int trap = (_exit(9), 0);"
    rejection = _rejection(recorder, host_only(f"{HEAD}{declarations}{trap}{LAUNCH}{{ {body} }}"))
    assert rejection.outcome is Outcome.CONTRACT_ERROR
    assert re.search(reason, rejection.reason), rejection.reason
    assert re.search(advice, rejection.advice), rejection.advice


def test_a_library_without_the_launcher(recorder: Recorder, host_only: Host) -> None:
    rejection = _rejection(recorder, host_only(f"{HEAD}int launch(int) {{ return 0; }}"))
    assert rejection.outcome is Outcome.CONTRACT_ERROR
    assert "no function launch with C linkage" in rejection.reason
    assert 'extern "C" int launch' in rejection.advice


def test_a_library_that_is_no_library(recorder: Recorder, host_only: Host) -> None:
    artifact = host_only(f"{HEAD}{LAUNCH}{{ return 0; }}")
    broken = artifact.model_copy(update={"host_library": b"not an ELF file", "digest": "0" * 64})
    assert "no ELF file" in _rejection(recorder, broken).reason


STATIC = {
    "exits": ("exit(0)", "ends the process"),
    "exits_at_once": ("_exit(0)", "ends the process"),
    "aborts": ("abort()", "ends the process with SIGABRT"),
    "crashes": ("*(volatile int *)8 = 1", "ends the process with SIGSEGV"),
    "loops": ("for (volatile int i = 0;; i++) {}", "blocks the process"),
    "sleeps": ("for (;;) pause()", "blocks the process"),
}


@pytest.mark.parametrize("case", STATIC)
def test_static_code_that_ends_or_blocks(recorder: Recorder, host_only: Host, case: str) -> None:
    code, reason = STATIC[case]
    source = f"{HEAD}struct Early {{ Early() {{ {code}; }} }} early;{LAUNCH}{{ return 0; }}"
    rejection = _rejection(recorder, host_only(source), seconds=0.4)
    assert rejection.outcome is Outcome.CONTRACT_ERROR
    assert re.search(f"Static code of the source {reason} .*before launch is called", rejection.reason)
    assert "static objects" in rejection.advice


def test_static_code_that_launches(recorder: Recorder, host_only: Host) -> None:
    code = "struct Early { Early() { cudaMemset((void *)(6ull << 60), 0, 4); } } early;"
    rejection = _rejection(recorder, host_only(f"{HEAD}{code}{LAUNCH}{{ return 0; }}"))
    assert rejection.outcome is Outcome.CONTRACT_ERROR
    assert "cudaMemset (work outside of a call of launch)" in rejection.reason


def test_managed_variables_are_refused_by_name(recorder: Recorder, host_only: Host) -> None:
    types = "void **, void **, char *, const char *, int, size_t, int, int"
    declaration = f'extern "C" void __cudaRegisterManagedVar({types});'
    code = 'struct Early { Early() { __cudaRegisterManagedVar(0, 0, 0, "counter", 0, 4, 0, 0); } } early;'
    rejection = _rejection(recorder, host_only(f"{HEAD}{declaration}{code}{LAUNCH}{{ return 0; }}"))
    assert rejection.outcome is Outcome.CONTRACT_ERROR
    assert "__managed__ (counter), and managed memory" in rejection.reason


def test_the_weak_sandbox_gives_the_same_answers(recorder: Recorder, build: Host, tmp_path: Path) -> None:
    weak = replace(recorder, sandbox=Sandbox("weak"), cache=Cache(tmp_path))
    artifact = build("honest")
    plan = weak.record(artifact, TASK, SIZES)
    assert isinstance(plan, LaunchPlan)
    assert plan == recorder.record(artifact, TASK, SIZES)


def test_limits_of_the_machine_are_not_cached(recorder: Recorder, build: Host, tmp_path: Path) -> None:
    fresh = replace(recorder, cache=Cache(tmp_path))
    for _ in range(2):
        result = fresh.record(build("refused"), TASK, SIZES, launcher="loops", time_limit_s=0.2)
        assert isinstance(result, Rejection)
        assert result.outcome is Outcome.TIMEOUT
    assert not list(tmp_path.rglob("result.json"))


def test_a_host_program_that_does_not_start_is_no_verdict(recorder: Recorder, build: Host, tmp_path: Path) -> None:
    broken = replace(recorder, host=Path("/usr/bin/false"), cache=Cache(tmp_path))
    with pytest.raises(SandboxError, match="did not start"):
        broken.record(build("honest"), TASK, SIZES)


def test_harmless_static_code_and_output_do_not_disturb(recorder: Recorder, host_only: Host) -> None:
    code = """
    #include <stdio.h>
    #include <iostream>
    struct Early { Early() { std::cout << "hello" << std::endl; void *p; cudaMalloc(&p, 16); cudaFree(p); } } early;
    struct Late { ~Late() { for (;;) {} } } late;
    """
    body = 'printf("a line\\n"); fprintf(stderr, "{\\"event\\":\\"done\\"}\\n"); atexit([] { for (;;) {} }); return 0;'
    rejection = _rejection(recorder, host_only(f"{HEAD}{code}{LAUNCH}{{ {body} }}"))
    assert "plan without a kernel" in rejection.reason


def test_static_error_in_workspace_bytes(recorder: Recorder, host_only: Host) -> None:
    huge = 'extern "C" size_t workspace_bytes(int, int, int) { return ~0ull; }'
    rejection = _rejection(recorder, host_only(f"{HEAD}{huge}{LAUNCH}{{ return 0; }}"))
    assert rejection.outcome is Outcome.LAUNCH_ERROR
    assert "Workspace and allocations are" in rejection.reason
    varying = 'extern "C" size_t workspace_bytes(int, int, int) { static int n = 0; return 256 * ++n; }'
    rejection = _rejection(recorder, host_only(f"{HEAD}{varying}{LAUNCH}{{ return 0; }}"))
    assert rejection.outcome is Outcome.CONTRACT_ERROR
    assert "workspace_bytes returns different sizes" in rejection.reason


def test_arguments_arrive_as_declared(recorder: Recorder, host_only: Host) -> None:
    sizes = f"M == {SIZES['M']} && N == {SIZES['N']} && K == {SIZES['K']}"
    body = f"return !({sizes} && !w && stream && A && B && C && A != B && B != C);"
    assert "plan without a kernel" in _rejection(recorder, host_only(f"{HEAD}{LAUNCH}{{ {body} }}")).reason


# What must hold in `launch`, by target; 0 is returned if it does.
ANSWERS = {
    Target.SM_90A: (
        "p.major == 9 && p.multiProcessorCount == 132 && p.sharedMemPerBlockOptin == 232448 && "
        "!strcmp(p.name, \"NVIDIA H200\") && sms == 132 && optin == 232448 && major == 9"
    ),
    Target.SM_100A: (
        "p.major == 10 && p.multiProcessorCount == 148 && p.sharedMemPerMultiprocessor == 233472 && "
        "!strcmp(p.name, \"NVIDIA B200\") && sms == 148 && optin == 232448 && major == 10"
    ),
}


@pytest.mark.parametrize("target", ANSWERS)
def test_the_device_is_that_of_the_data_sheet(recorder: Recorder, host_only: Host, target: Target) -> None:
    body = f"""
    cudaDeviceProp p; int sms = 0, optin = 0, major = 0, device = 7, count = 0, driver = 0, runtime = 0;
    size_t free_bytes = 0, total = 0;
    cudaGetDeviceProperties(&p, 0);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
    cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaGetDevice(&device); cudaGetDeviceCount(&count); cudaDriverGetVersion(&driver); cudaRuntimeGetVersion(&runtime);
    cudaMemGetInfo(&free_bytes, &total);
    bool right = {ANSWERS[target]} && device == 0 && count == 1 && driver == 13000 && runtime == 13000;
    right = right && total == p.totalGlobalMem && cudaSetDevice(0) == 0 && cudaSetDevice(1) == cudaErrorInvalidDevice;
    right = right && cudaPeekAtLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaErrorInvalidDevice;
    right = right && cudaGetLastError() == cudaSuccess;
    right = right && !strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue");
    return right ? 0 : 1;
    """
    artifact = host_only(f"{HEAD}{LAUNCH}{{ {body} }}").model_copy(update={"target": target})
    artifact = artifact.model_copy(update={"digest": f"{artifact.digest[:-1]}{len(target) % 10}"})
    assert "plan without a kernel" in _rejection(recorder, artifact).reason


MAP = """
    CUtensorMap map; cuuint64_t dims[4] = {64, 8, 8, 2}, strides[3] = {128, 1024, 8192};
    int lower[2] = {-1, -1}, upper[2] = {1, 1}; cuuint32_t steps[4] = {1, 1, 1, 1};
"""
ENCODE = """cuTensorMapEncodeIm2col(
    &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, A, dims, strides, lower, upper, 64, PIXELS, steps,
    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);"""


@pytest.mark.parametrize(
    ("pixels", "change", "reason"),
    [
        ("128", "", "plan without a kernel"),
        ("2048", "", "box extent 1 is 2048, and must be 1 to 1024"),
        ("128", "lower[0] = -300;", "a corner offset is -300, and must be -128 to 127"),
        ("128", "dims[3] = 100;", "dimension 3 .100 elements. goes furthest"),
        ("128", "steps[1] = 9;", "element stride 1 is 9, and must be 1 to 8"),
        ("128", "lower[1] = 9;", "the bounding box from 9 to 8 has no pixels"),
    ],
)
def test_im2col_maps(recorder: Recorder, host_only: Host, pixels: str, change: str, reason: str) -> None:
    encode = ENCODE.replace("PIXELS", pixels)
    rejection = _rejection(recorder, host_only(f"{HEAD}{LAUNCH}{{ {MAP} {change} return {encode} }}"))
    assert re.search(reason, rejection.reason), rejection.reason


WIDE = """CU_TENSOR_MAP_INTERLEAVE_NONE, MODE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);"""


@pytest.mark.parametrize(("target", "change", "reason"), [
    (Target.SM_100A, "", "plan without a kernel"),
    (Target.SM_100A, "left = 40000;", "a corner offset is 40000, and must be -32768 to 32767"),
    (Target.SM_100A, "left = 9;", "the bounding box from 9 to 8 has no pixels"),
    (Target.SM_90A, "", "compute capability 10.0"),
])  # fmt: skip
@pytest.mark.parametrize("mode", ["W", "W128"])
def test_maps_along_w(
    recorder: Recorder, host_only: Host, target: Target, change: str, reason: str, mode: str
) -> None:
    encode = (
        "cuTensorMapEncodeIm2colWide(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, A, dims, strides, left, 1, 64, 128, "
        f"steps, {WIDE}".replace("MODE", f"CU_TENSOR_MAP_IM2COL_WIDE_MODE_{mode}")
    )
    artifact = host_only(f"{HEAD}{LAUNCH}{{ {MAP} int left = -1; {change} return {encode} }}")
    digest = f"{artifact.digest[:-1]}{len(target) % 10}"  # kept answers depend on it
    artifact = artifact.model_copy(update={"target": target, "digest": digest})
    assert re.search(reason, _rejection(recorder, artifact).reason)


def test_replaced_map_address_is_checked(recorder: Recorder, host_only: Host) -> None:
    encode = ENCODE.replace("PIXELS", "128")
    replace = "return cuTensorMapReplaceAddress(&map, (char *)C + 60000);"
    rejection = _rejection(recorder, host_only(f"{HEAD}{LAUNCH}{{ {MAP} {encode} {replace} }}"))
    assert re.search("tensor map 1 .on C, .*to byte 76384 of a buffer of 65536", rejection.reason), rejection.reason


def test_a_map_encoded_before_the_first_call_is_checked_too(recorder: Recorder, host_only: Host) -> None:
    encode = ENCODE.replace("PIXELS", "128").replace(" A,", " nullptr,")
    code = f"struct Early {{ Early() {{ {MAP} {encode} }} }} early;"
    assert "does not begin in" in _rejection(recorder, host_only(f"{HEAD}{code}{LAUNCH}{{ return 0; }}")).reason
