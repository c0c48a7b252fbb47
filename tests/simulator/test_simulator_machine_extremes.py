"""Launches and operands at the edge of what their types hold: an answer, never a crash or a silent nothing."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import kernel

from ptxbench.core import FaultKind, RunOptions, UnsupportedError
from ptxbench.simulator import load

BULK = """
.shared .align 128 .b8 tile[256];
.shared .align 8 .b64 bar;
mov.u32 %r2, tile;
mov.u32 %r3, bar;
mbarrier.init.shared.b64 [%r3], 1;
fence.mbarrier_init.release.cluster;
"""
LOAD = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [{to}], [%rd1], 16, [%r3];\n"
TENSOR_LOAD = "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd1, {0}], [%r3];\n"


@pytest.mark.parametrize("grid", [(2**31 - 1, 65535, 65535), (2**31 - 1, 1, 1), (2**17, 2**15, 1)])
@pytest.mark.parametrize("copies", [False, True], ids=["plain", "with bulk copies"])
def test_a_huge_grid_ends_at_the_step_limit(grid: tuple[int, int, int], copies: bool) -> None:
    body = f"{BULK}setp.eq.u32 %p1, %r2, 0;\n@%p1 {LOAD.format(to='%r2')}ret;" if copies else "ret;"
    out = np.zeros(8, np.uint32)
    launch = Launch("k", ["out"], grid=grid, block=(1, 1, 1))
    seen = run(load(kernel(body), ["k"]), launch, RunOptions(step_limit=2000), out=out)
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.TIME_LIMIT


@pytest.mark.parametrize("copy", [LOAD.format(to="%r4"), TENSOR_LOAD], ids=["bulk", "tensor"])
def test_an_address_of_a_cta_that_the_cluster_lacks(copy: str) -> None:
    body = f"{BULK}or.b32 %r4, %r2, {33 << 24};\nmbarrier.arrive.expect_tx.shared.b64 _, [%r3], 16;\n{copy}ret;"
    launch = Launch("k", ["out"], grid=(2, 1, 1), block=(1, 1, 1), cluster=(2, 1, 1))
    seen = run(load(kernel(body), ["k"]), launch, out=np.zeros(64, np.uint32))
    assert seen.fault is not None
    if copy is not TENSOR_LOAD:  # there the map is looked at first
        assert seen.fault.kind is FaultKind.ILLEGAL_ADDRESS
        assert "names CTA rank 33 of a cluster of 2" in seen.fault.message


@pytest.mark.parametrize("instruction", [
    "ld.global.u32 %r1, [%rd1+18446744073709551615];",
    "cp.async.wait_group 18446744073709551615;",
    "cp.async.ca.shared.global.L2::cache_hint [%r1], [%rd1], 4;",
    "createpolicy.fractional.L2::evict_last.b64;",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd2;",
    "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1};",
    "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1];",
])  # fmt: skip
def test_operands_that_ptxas_refuses_are_refused_by_name(instruction: str) -> None:
    with pytest.raises(UnsupportedError, match=instruction.partition(" ")[0].partition(".")[0]):
        load(kernel(f"{instruction}\nret;"), ["k"])
