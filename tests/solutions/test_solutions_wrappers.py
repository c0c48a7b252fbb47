"""Every wrapper of the header set is one PTX instruction: each is called once in a probe, and its PTX is counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from solutions_nvcc import nvcc

from ptxbench.core import Target
from ptxbench.solutions import include_dir

HEADERS = include_dir() / "ptxbench" / "ptx"

# Turn registers into predicates and back, because operands of asm statements cannot be predicates.
CONVERSIONS = {"setp", "selp"}

# Functions that are loops over a wrapper or no instruction of their own.
COMPOSED = {"shared_address", "mbarrier_wait_parity", "mbarrier_wait_parity_cluster"}

# Functions whose asm is not volatile: their result has to be used.
RETURNING = {"cluster_rank", "cluster_size", "exp2_approx", "map_to_rank"}

# Wrapper, in one of its forms -> (start of its instruction, call). In calls u and v are uint32_t, d and e uint64_t,
# rN is uint32_t[N] and p a pointer.
COMMON = {
    "bar_arrive": ("bar.arrive", "bar_arrive(1, 64)"),
    "bar_sync": ("bar.sync", "bar_sync(1, 64)"),
    "bulk_commit_group": ("cp.async.bulk.commit_group", "bulk_commit_group()"),
    "bulk_load": ("cp.async.bulk.shared::cluster.global", "bulk_load(u, p, 64, v)"),
    "bulk_reduce_add_f32": ("cp.reduce.async.bulk.global.shared::cta", "bulk_reduce_add_f32(p, u, 64)"),
    "bulk_store": ("cp.async.bulk.global.shared::cta", "bulk_store(p, u, 64)"),
    "bulk_wait_group": ("cp.async.bulk.wait_group 0", "bulk_wait_group<0>()"),
    "bulk_wait_group_read": ("cp.async.bulk.wait_group.read 1", "bulk_wait_group_read<1>()"),
    "cluster_arrive": ("barrier.cluster.arrive.release", "cluster_arrive()"),
    "cluster_rank": ("mov.u32", "cluster_rank()"),
    "cluster_size": ("mov.u32", "cluster_size()"),
    "cluster_wait": ("barrier.cluster.wait.acquire", "cluster_wait()"),
    "elect_sync": ("elect.sync", "elect_sync()"),
    "exp2_approx": ("ex2.approx.ftz.f32", "exp2_approx(p[1])"),
    "fence_acq_rel_cluster": ("fence.acq_rel.cluster", "fence_acq_rel_cluster()"),
    "fence_acq_rel_gpu": ("fence.acq_rel.gpu", "fence_acq_rel_gpu()"),
    "fence_mbarrier_init": ("fence.mbarrier_init.release.cluster", "fence_mbarrier_init()"),
    "fence_proxy_async_global": ("fence.proxy.async.global", "fence_proxy_async_global()"),
    "fence_proxy_async_shared": ("fence.proxy.async.shared::cta", "fence_proxy_async_shared()"),
    "ldmatrix_x4": ("ldmatrix.sync.aligned.m8n8.x4.shared", "ldmatrix_x4(r4, u)"),
    "ldmatrix_x4_trans": ("ldmatrix.sync.aligned.m8n8.x4.trans.shared", "ldmatrix_x4_trans(r4, u)"),
    "map_to_rank": ("mapa.shared::cluster", "map_to_rank(u, v)"),
    "mbarrier_arrive": ("mbarrier.arrive.shared::cta", "mbarrier_arrive(u)"),
    "mbarrier_arrive_cluster": ("mbarrier.arrive.release.cluster.shared::cluster", "mbarrier_arrive_cluster(u)"),
    "mbarrier_arrive_remote": ("mbarrier.arrive.shared::cluster.b64", "mbarrier_arrive_remote(u)"),
    "mbarrier_arrive_expect_tx": ("mbarrier.arrive.expect_tx", "mbarrier_arrive_expect_tx(u, 64)"),
    "mbarrier_expect_tx": ("mbarrier.expect_tx", "mbarrier_expect_tx(u, 64)"),
    "mbarrier_init": ("mbarrier.init.shared::cta", "mbarrier_init(u, 1)"),
    "mbarrier_inval": ("mbarrier.inval.shared::cta", "mbarrier_inval(u)"),
    "mbarrier_try_wait_parity": ("mbarrier.try_wait.parity.shared::cta", "mbarrier_try_wait_parity(u, 0)"),
    "mbarrier_try_wait_parity_cluster": (
        "mbarrier.try_wait.parity.acquire.cluster", "mbarrier_try_wait_parity_cluster(u, 0)",
    ),
    "prefetch_tensormap": ("prefetch.tensormap", "prefetch_tensormap(&map)"),
    "reduce_add_f32x4": ("red.relaxed.gpu.global.add.v4.f32", "reduce_add_f32x4(p, 1, 2, 3, 4)"),
    "setmaxnreg_dec": ("setmaxnreg.dec.sync.aligned.u32 40", "setmaxnreg_dec<40>()"),
    "setmaxnreg_inc": ("setmaxnreg.inc.sync.aligned.u32 232", "setmaxnreg_inc<232>()"),
    "stmatrix_x2": ("stmatrix.sync.aligned.m8n8.x2.shared", "stmatrix_x2(u, r2)"),
    "stmatrix_x4": ("stmatrix.sync.aligned.m8n8.x4.shared", "stmatrix_x4(u, r4)"),
    "stmatrix_x4_trans": ("stmatrix.sync.aligned.m8n8.x4.trans.shared", "stmatrix_x4_trans(u, r4)"),
    "tma_load_2d": ("cp.async.bulk.tensor.2d.shared::cluster.global", "tma_load_2d(u, &map, v, 1, 2)"),
    "tma_load_2d_multicast": (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
        "tma_load_2d_multicast(u, &map, v, 1, 2, 3)",
    ),
    "tma_load_3d": ("cp.async.bulk.tensor.3d.shared::cluster.global", "tma_load_3d(u, &map, v, 1, 2, 3)"),
    "tma_load_4d": ("cp.async.bulk.tensor.4d.shared::cluster.global", "tma_load_4d(u, &map, v, 1, 2, 3, 4)"),
    "tma_reduce_add_2d": ("cp.reduce.async.bulk.tensor.2d.global", "tma_reduce_add_2d(&map, u, 1, 2)"),
    "tma_store_2d": ("cp.async.bulk.tensor.2d.global.shared::cta", "tma_store_2d(&map, u, 1, 2)"),
    "tma_store_3d": ("cp.async.bulk.tensor.3d.global.shared::cta", "tma_store_3d(&map, u, 1, 2, 3)"),
    "tma_store_4d": ("cp.async.bulk.tensor.4d.global.shared::cta", "tma_store_4d(&map, u, 1, 2, 3, 4)"),
}
HOPPER = {
    "wgmma_fence": ("wgmma.fence", "wgmma_fence()"),
    "wgmma_commit_group": ("wgmma.commit_group", "wgmma_commit_group()"),
    "wgmma_wait_group": ("wgmma.wait_group.sync.aligned 1", "wgmma_wait_group<1>()"),
} | {
    f"wgmma_m64n{n}k16_bf16_{form}": (
        f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16",
        f"wgmma_m64n{n}k16_bf16_{form}(acc{n}, {'d' if form == 'ss' else 'r4'}, e, u)",
    )
    for n in (64, 128, 192, 256)
    for form in ("ss", "rs")
}
BLACKWELL = {
    "tcgen05_alloc": ("tcgen05.alloc.cta_group::1", "tcgen05_alloc(u, 32)"),
    "tcgen05_alloc<2>": ("tcgen05.alloc.cta_group::2", "tcgen05_alloc<2>(u, 32)"),
    "tcgen05_commit": ("tcgen05.commit.cta_group::1", "tcgen05_commit(u)"),
    "tcgen05_commit_pair": ("tcgen05.commit.cta_group::2", "tcgen05_commit_pair(u, 3)"),
    "tcgen05_dealloc": ("tcgen05.dealloc.cta_group::1", "tcgen05_dealloc(u, 32)"),
    "tcgen05_dealloc<2>": ("tcgen05.dealloc.cta_group::2", "tcgen05_dealloc<2>(u, 32)"),
    "tcgen05_fence_after_thread_sync": ("tcgen05.fence::after_thread_sync", "tcgen05_fence_after_thread_sync()"),
    "tcgen05_fence_before_thread_sync": ("tcgen05.fence::before_thread_sync", "tcgen05_fence_before_thread_sync()"),
    "tcgen05_ld_32x32b_x16": ("tcgen05.ld.sync.aligned.32x32b.x16", "tcgen05_ld_32x32b_x16(r16, u)"),
    "tcgen05_ld_32x32b_x32": ("tcgen05.ld.sync.aligned.32x32b.x32", "tcgen05_ld_32x32b_x32(r32, u)"),
    "tcgen05_mma_f16_ss": ("tcgen05.mma.cta_group::1.kind::f16", "tcgen05_mma_f16_ss(u, d, e, v, true)"),
    "tcgen05_mma_f16_ss<2>": ("tcgen05.mma.cta_group::2.kind::f16", "tcgen05_mma_f16_ss<2>(u, d, e, v, true)"),
    "tcgen05_mma_f16_ts": ("tcgen05.mma.cta_group::1.kind::f16", "tcgen05_mma_f16_ts(u, v, e, v, true)"),
    "tcgen05_relinquish_alloc_permit": (
        "tcgen05.relinquish_alloc_permit.cta_group::1", "tcgen05_relinquish_alloc_permit()",
    ),
    "tcgen05_relinquish_alloc_permit<2>": (
        "tcgen05.relinquish_alloc_permit.cta_group::2", "tcgen05_relinquish_alloc_permit<2>()",
    ),
    "tcgen05_st_32x32b_x16": ("tcgen05.st.sync.aligned.32x32b.x16", "tcgen05_st_32x32b_x16(u, r16)"),
    "tcgen05_st_32x32b_x32": ("tcgen05.st.sync.aligned.32x32b.x32", "tcgen05_st_32x32b_x32(u, r32)"),
    "tcgen05_wait_ld": ("tcgen05.wait::ld", "tcgen05_wait_ld()"),
    "tcgen05_wait_st": ("tcgen05.wait::st", "tcgen05_wait_st()"),
}
PROBES = {Target.SM_90A: COMMON | HOPPER, Target.SM_100A: COMMON | BLACKWELL}
FOREIGN = {Target.SM_90A: "tcgen05.cuh", Target.SM_100A: "wgmma.cuh"}


def headers_of(target: Target) -> list[str]:
    return sorted(path.name for path in HEADERS.glob("*.cuh") if path.name != FOREIGN[target])


def wrappers_of(target: Target) -> set[str]:
    """Names of the device functions that a target's headers define by asm or by a macro around it."""
    names: set[str] = set()
    for header in headers_of(target):
        text = re.sub(r"//[^\n]*", "", (HEADERS / header).read_text())
        for name in re.findall(r"__forceinline__ \w+ ([\w#]+)\(", text):
            names |= {name.replace("##N##", str(n)) for n in (64, 128, 192, 256)}
    return names - COMPOSED


def probe_source(target: Target) -> str:
    lines = [f"#include <ptxbench/ptx/{name}>" for name in headers_of(target)]
    for index, (name, (_, call)) in enumerate(PROBES[target].items()):
        lines += [
            f'extern "C" __global__ void probe_{index}(const __grid_constant__ CUtensorMap map, uint32_t u,',
            "    uint32_t v, uint64_t d, uint64_t e, float* p) {",
            "  uint32_t r2[2] = {u, v}, r4[4] = {u, v, u, v}, r16[16] = {}, r32[32] = {};",
            "  float acc64[32] = {}, acc128[64] = {}, acc192[96] = {}, acc256[128] = {};",
            f"  {'p[0] = ' if name in RETURNING else ''}ptx::{call};",
            "}",
        ]
    return "\n".join(lines) + "\n"


def inline_instructions(ptx: str, index: int) -> list[str]:
    """The instructions of a probe that came from asm statements."""
    body = ptx.split(f".entry probe_{index}(", 1)[1].split(".entry ", 1)[0]
    found: list[str] = []
    for block in re.findall(r"// begin inline asm(.*?)// end inline asm", body, re.DOTALL):
        statements = (part.strip(" \t\n{}") for part in re.split(r";", block))
        found += [re.sub(r"^\{\s*", "", part) for part in statements if part and not part.startswith(".reg")]
    return found


@pytest.mark.parametrize("target", list(Target))
def test_each_wrapper_is_one_instruction(target: Target, tmp_path: Path) -> None:
    probe, ptx = tmp_path / "probe.cu", tmp_path / "probe.ptx"
    probe.write_text(probe_source(target))
    done = nvcc(probe, target, ptx, "-diag-suppress=177,550")
    assert done.returncode == 0, done.stderr
    text = ptx.read_text()
    for index, (name, (start, _)) in enumerate(PROBES[target].items()):
        instructions = [i for i in inline_instructions(text, index) if i.split(".")[0] not in CONVERSIONS]
        assert len(instructions) == 1, (name, instructions)
        assert instructions[0].startswith(start), (name, instructions)


@pytest.mark.parametrize("target", list(Target))
def test_no_wrapper_is_left_out(target: Target) -> None:
    assert wrappers_of(target) == {name.split("<")[0] for name in PROBES[target]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "header"), [(target, header) for target in Target for header in headers_of(target)]
)
def test_each_header_compiles_alone(target: Target, header: str, tmp_path: Path) -> None:
    alone = tmp_path / "alone.cu"
    alone.write_text(f"#include <ptxbench/ptx/{header}>\n")
    done = nvcc(alone, target, tmp_path / "alone.cubin", "-Werror=all-warnings")
    assert done.returncode == 0, done.stderr
