"""Real compiles: what an artifact holds, and how every kind of failure is named."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ptxbench.build import COMPILE_LIMITS, Limits, Sandbox, Toolchain, compile_candidate, find_toolchain
from ptxbench.core import Artifact, Candidate, Outcome, ParameterSlot, Rejection, Target, Task, ToolchainError
from ptxbench.native import Cache

Compile = Callable[..., Artifact | Rejection]

HEAD = "#include <cuda_bf16.h>\n"
KERNEL = "__global__ void k(float* c) { c[0] = c[1]; }\n"
LAUNCH = (
    'extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, float* C, int M, int N, void* workspace, '
    "cudaStream_t stream)"
)
BODY = " { k<<<1, 1, 0, stream>>>(C); return 0; }\n"
GOOD = HEAD + KERNEL + LAUNCH + BODY

FACTS = """\
#include <cuda_bf16.h>
struct alignas(64) Box { char bytes[128]; };
__device__ __noinline__ float far(float x, int n) { float b[40]; for (int& i : *(int(*)[40])b) i = x; return b[n]; }
__device__ __forceinline__ float near(float x) {
  return x * 3.0f + 1.0f;
}
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(256, 1)
    k(int n, const __grid_constant__ Box box, const float* a, float* c, char tail) {
  __shared__ float s[300];
  s[threadIdx.x] = near(a[threadIdx.x]);
  __syncthreads();
  c[threadIdx.x] = far(s[n], n) + box.bytes[n] + tail;
}
__global__ void empty() {}
"""

PRODUCT = """\
#include <cuda_bf16.h>
__global__ void __launch_bounds__(128) k(float* c) {
  float d[4] = {c[0], c[1], c[2], c[3]};
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(1ll), "l"(2ll));
  asm volatile("wgmma.commit_group.sync.aligned;");
  asm volatile("wgmma.wait_group.sync.aligned 0;");
  for (int i = 0; i < 4; ++i) c[i] = d[i];
}
"""


def accepted(result: Artifact | Rejection) -> Artifact:
    assert isinstance(result, Artifact), result
    return result


def refused(result: Artifact | Rejection, outcome: Outcome) -> Rejection:
    assert isinstance(result, Rejection)
    assert result.outcome is outcome, result.reason
    assert result.reason.endswith(".")
    assert "/" not in result.reason.replace("ptxbench/ptx/", "")
    return result


# `noexcept` and the optional function must not disturb the check of the interface.
FACTS += LAUNCH + ' noexcept { return 0; }\nextern "C" size_t workspace_bytes(int m, int n) { return m; }\n'


def test_kernel_facts(compiled: Compile) -> None:
    artifact = accepted(compiled(FACTS))
    by_name = {facts.name: facts for facts in artifact.kernels}
    facts = by_name["_Z1ki3BoxPKfPfc"]
    assert facts.parameters == (
        ParameterSlot(offset=0, size=4), ParameterSlot(offset=64, size=128), ParameterSlot(offset=192, size=8),
        ParameterSlot(offset=200, size=8), ParameterSlot(offset=208, size=1),
    )
    assert facts.static_shared == 1200
    assert facts.local >= 160
    assert facts.max_threads == 256
    assert facts.required_cluster == (2, 1, 1)
    assert 8 <= facts.registers <= 64
    empty = by_name["_Z5emptyv"]
    assert (empty.parameters, empty.static_shared, empty.local) == ((), 0, 0)
    assert (empty.max_threads, empty.required_cluster) == (None, None)


def test_source_frames_read_innermost_first(compiled: Compile) -> None:
    artifact = accepted(compiled(FACTS))
    code = next(sass for sass in artifact.sass if sass.kernel == "_Z1ki3BoxPKfPfc").instructions
    assert (("kernel.cu", 5), ("kernel.cu", 10)) in {instruction.frames for instruction in code}
    assert [instruction.offset for instruction in code] == list(range(0, 16 * len(code), 16))
    # The function that is not inlined is listed in its kernel.
    assert any(instruction.frames[:1] == (("kernel.cu", 3),) for instruction in code)


def test_matrix_instructions_and_compiler_advice(compiled: Compile) -> None:
    artifact = accepted(compiled(PRODUCT + LAUNCH + BODY))
    products = [i for sass in artifact.sass for i in sass.instructions if i.opcode.startswith("HGMMA")]
    assert [i.opcode for i in products] == ["HGMMA.64x8x16.F32.BF16"]
    assert products[0].frames[0][0] == "kernel.cu"
    assert "wgmma.mma_async.sync.aligned.m64n8k16" in artifact.ptx
    assert any("setmaxnreg" in remark.message and remark.severity == "remark" for remark in artifact.remarks)


def test_blackwell_target(compiled: Compile) -> None:
    source = HEAD + "__global__ void k(float* c) { __shared__ int s[10]; s[threadIdx.x] = c[0]; __syncthreads();" + (
        ' asm volatile("tcgen05.fence::before_thread_sync;"); c[1] = s[int(c[2])]; }\n'
    )
    artifact = accepted(compiled(source + LAUNCH + BODY, Target.SM_100A))
    assert artifact.target is Target.SM_100A
    assert ".target sm_100a" in artifact.ptx
    assert artifact.kernels[0].static_shared == 40


def test_equal_sources_make_equal_artifacts_without_machine_paths(
    toolchain: Toolchain, task: Task, tmp_path: Path, compiled: Compile
) -> None:
    first = accepted(compiled(GOOD))
    digest = hashlib.sha256(GOOD.encode()).hexdigest()
    again = Candidate(task=task.name, target=Target.SM_90A, source=GOOD, digest=digest, origin="elsewhere")
    stages: list[str] = []
    second = compile_candidate(again, task, toolchain=toolchain, cache=Cache(tmp_path), progress=stages.append)
    assert second == first
    assert stages == ["compile", "disassemble"]
    if toolchain.sandbox.level == "full":
        for data in (first.ptx.encode(), first.cubin, first.host_library):
            assert str(Path.home()).encode() + b"/" not in data
            assert str(toolchain.cuda).encode() not in data
    # A second time it comes from the cache.
    assert compile_candidate(again, task, toolchain=toolchain, cache=Cache(tmp_path), progress=stages.append) == first
    assert len(stages) == 2


def test_headers_are_offered_or_withheld(toolchain: Toolchain, task: Task, tmp_path: Path) -> None:
    wrapper = tmp_path / "include" / "ptxbench" / "ptx" / "add.cuh"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(
        '__device__ __forceinline__ int add(int a) { asm volatile("add.s32 %0, %0, 1;" : "+r"(a)); return a; }\n'
    )
    source = "#include <ptxbench/ptx/add.cuh>\n" + GOOD.replace("c[0] = c[1]", "c[0] = add(int(c[1]))")
    candidate = Candidate(
        task=task.name, target=Target.SM_90A, source=source, digest=hashlib.sha256(source.encode()).hexdigest()
    )
    cache = Cache(tmp_path / "cache")
    offered = compile_candidate(candidate, task, toolchain=toolchain, cache=cache, include=tmp_path / "include")
    frames = {i.frames for sass in accepted(offered).sass for i in sass.instructions}
    assert (("ptxbench/ptx/add.cuh", 1), ("kernel.cu", 3)) in frames
    withheld = refused(compile_candidate(candidate, task, toolchain=toolchain, cache=cache), Outcome.COMPILE_ERROR)
    assert withheld.source_line == 1


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        (HEAD + KERNEL + LAUNCH + "{ return 0 }", 3, 'expected a ";"'),
        (HEAD + KERNEL + LAUNCH + "{ return 0; }\n#if 1", 4, "unterminated #if"),
        (HEAD + KERNEL + LAUNCH + "{ return 0; }\n/* open", 4, "unterminated comment"),
        (HEAD + KERNEL + LAUNCH + "{ return 0; }\nnamespace open {", 0, "end of the source"),
        (HEAD + KERNEL + LAUNCH + BODY + "#error \"PASSED\"", 4, "PASSED"),
        (HEAD + KERNEL + 'asm("foo bar");\n' + LAUNCH + BODY, 0, "no such instruction"),
        (
            HEAD + "__global__ void k(float* c) {\n  int q;\n"
            '  asm volatile("mov.b32 %0, %1;" : "=r"(q) : "l"(c)); c[0] = q; }\n' + LAUNCH + BODY,
            4, "Arguments mismatch",
        ),
        (
            HEAD + "\n__global__ void k(float* c) { __shared__ int s[90000]; s[int(c[0])] = 1; c[1] = s[int(c[2])]; }\n"
            + LAUNCH + BODY,
            3, "too much shared data",
        ),
        (
            HEAD + KERNEL + "#include <algorithm>\nstruct Q {};\nvoid f() { Q q[3]; std::sort(q, q + 3); }\n" + LAUNCH
            + BODY,
            5, 'no operator "<"',
        ),
        (
            HEAD + "template <int N> struct F { static constexpr int v = F<N - 1>::v; };\nint x = F<3>::v;\n" + LAUNCH
            + "{ return 0; }",
            2, "excessive recursion",
        ),
        (HEAD + KERNEL + "char big[1ull << 36] = {};\n" + LAUNCH + BODY, 0, "larger than 2 GiB"),
    ],
)
def test_compile_errors_name_the_line(compiled: Compile, source: str, line: int, says: str) -> None:
    rejection = refused(compiled(source), Outcome.COMPILE_ERROR)
    assert says in rejection.reason
    assert rejection.source_line == line
    if line:
        assert rejection.remarks[0].line == line


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (HEAD + KERNEL, "defines no function named launch"),
        (HEAD + KERNEL + LAUNCH.replace("*/", "").replace('extern "C"', "static") + BODY, 'extern "C"'),
        (
            HEAD + KERNEL + LAUNCH.replace("* B", "* B, int extra") + BODY,
            "launch takes 8 arguments, expected 7; argument 3 (C) of launch is int, expected float*",
        ),
        (
            HEAD + KERNEL + LAUNCH.replace("const __nv_bfloat16* B", "const float* B") + BODY,
            "Argument 2 (B) of launch is const float *, expected const __nv_bfloat16*",
        ),
        (
            HEAD + KERNEL + LAUNCH.replace("int N", "long N") + BODY,
            "Argument 5 (N) of launch is long, expected int",
        ),
        (HEAD + KERNEL + LAUNCH.replace("int launch", "void launch") + "{}", "launch returns void, expected int"),
        (HEAD + KERNEL + 'extern "C" int launch; int launch = 3;', "launch is not a function"),
        (HEAD + KERNEL + LAUNCH + BODY + "int launch(int) { return 1; }", "launch is overloaded"),
        (
            HEAD + KERNEL + LAUNCH + BODY + 'extern "C" int workspace_bytes(int) { return 0; }',
            'workspace_bytes must be declared as extern "C" size_t workspace_bytes(int M, int N)',
        ),
        (
            HEAD + KERNEL + "#define static_assert(...)\n#define decltype(x) int\n"
            + LAUNCH.replace("int M", "unsigned M") + BODY,
            "Argument 4 (M) of launch is unsigned int, expected int",
        ),
        (
            HEAD + "__global__ void k(float** c) { c[0] = (float*)malloc(*c[1]); }\n" + LAUNCH + "{ return 0; }",
            "calls malloc",
        ),
        (HEAD + KERNEL + "__global__ void p(float* c) { k<<<1, 1>>>(c); }\n" + LAUNCH + BODY, "launches another"),
        (
            HEAD + "__device__ char big[1ull << 33];\n__global__ void k(float* c) { big[int(*c)] = 1; }\n" + LAUNCH
            + BODY,
            "device variables are 8589934592 bytes",
        ),
    ],
)
def test_contract_errors_name_the_argument(compiled: Compile, source: str, says: str) -> None:
    rejection = refused(compiled(source), Outcome.CONTRACT_ERROR)
    assert says in rejection.reason
    assert rejection.advice


@pytest.mark.parametrize(
    ("source", "limits", "says"),
    [
        (
            "constexpr int spin(int n) { int s = 0; for (int i = 0; i < n * 1000; ++i) s ^= i; return s; }\n"
            + "".join(f"constexpr int v{i} = spin(900);\n" for i in range(400)),
            Limits(seconds=1.5), "1.5 seconds",
        ),
        (
            "template <int N, int M> struct T { T<N - 1, 2 * M> a; T<N - 1, 2 * M + 1> b; };\n"
            "template <int M> struct T<0, M> { int x; };\nT<18, 0> t;\n",
            replace(COMPILE_LIMITS, memory=200 << 20), "200 MiB of memory",
        ),
        (
            "__device__ int big[3000000] = {1};\n", replace(COMPILE_LIMITS, disk=16 << 20), "16 MiB",
        ),
    ],
)
def test_limits_are_named(compiled: Compile, source: str, limits: Limits, says: str) -> None:
    rejection = refused(compiled(HEAD + source + KERNEL + LAUNCH + BODY, limits=limits), Outcome.COMPILE_ERROR)
    assert says in rejection.reason


def test_a_rejection_for_a_limit_is_not_kept(toolchain: Toolchain, task: Task, tmp_path: Path) -> None:
    candidate = Candidate(
        task=task.name, target=Target.SM_90A, source=GOOD, digest=hashlib.sha256(GOOD.encode()).hexdigest()
    )
    cache = Cache(tmp_path)
    slow = Limits(seconds=0.05)
    refused(compile_candidate(candidate, task, toolchain=toolchain, cache=cache, limits=slow), Outcome.COMPILE_ERROR)
    assert not list(tmp_path.glob("artifact/*/"))


def test_the_weak_level_compiles_too(toolchain: Toolchain, task: Task, tmp_path: Path) -> None:
    weak = replace(toolchain, sandbox=Sandbox("weak", "asked for by the test"))
    candidate = Candidate(
        task=task.name, target=Target.SM_90A, source=GOOD, digest=hashlib.sha256(GOOD.encode()).hexdigest()
    )
    artifact = accepted(compile_candidate(candidate, task, toolchain=weak, cache=Cache(tmp_path)))
    assert {frame for sass in artifact.sass for i in sass.instructions for frame in i.frames} == {("kernel.cu", 2)}


def test_the_toolchain_is_the_packages_own(toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("CUDA_HOME", "/nonexistent")
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--nonexistent")
    found = find_toolchain()
    assert found.cuda == toolchain.cuda
    assert found.cuda.parts[-2:] == ("nvidia", "cu13")
    assert found.versions["cuda-nvcc"] == "13.0.88"
    assert found.versions["g++"].startswith("g++")
    found.check()


def test_missing_tools_name_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match=r"apt-get install g\+\+"):
        find_toolchain()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolchainError, match=r"pip install 'cuda-toolkit\[nvcc"):
        find_toolchain()


def test_a_broken_toolchain_is_not_the_candidates_fault(toolchain: Toolchain, task: Task, tmp_path: Path) -> None:
    (tmp_path / "cuda" / "bin").mkdir(parents=True)
    broken = replace(toolchain, cuda=tmp_path / "cuda")
    candidate = Candidate(
        task=task.name, target=Target.SM_90A, source=GOOD, digest=hashlib.sha256(GOOD.encode()).hexdigest()
    )
    with pytest.raises(ToolchainError, match="cannot compile a one-line kernel"):
        compile_candidate(candidate, task, toolchain=broken, cache=Cache(tmp_path / "cache"))
