"""What the machine cannot do and meets only at run time is refused by name, like an instruction that it lacks; what the
target itself cannot do stays a fault of the kernel.
"""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_tensor import BASE, FINISH, SETUP, descriptor
from simulator_text import kernel

from ptxbench.core import FaultKind, Observation, Schedule, UnsupportedError
from ptxbench.core import RunOptions as Options
from ptxbench.simulator import load

PLAIN = descriptor(BASE, 16, 1024, "128b")
BITS = 1 << 4 | 1 << 7 | 1 << 10 | 8 << 17 | 8 << 24  # fp32 accumulators, bf16, N=64, M=128
BASE_OFFSET = 1 << 49


def signed(bits: int) -> int:
    bits &= (1 << 64) - 1
    return bits - (1 << 64) if bits >> 63 else bits


def run_tensor(
    *, a: int = PLAIN, b: int = PLAIN, bits: int = BITS, kind: str = "f16", left: str = "%rd10", group: int = 1
) -> Observation:
    """One tcgen05.mma with these descriptors."""
    body = f"""{SETUP}
mov.u64 %rd10, {signed(a)};
mov.u64 %rd11, {signed(b)};
setp.ne.u32 %p4, 0, 0;
@!%p2 tcgen05.mma.cta_group::{group}.kind::{kind} [%r8], {left}, %rd11, {bits}, %p4;
{FINISH}"""
    launch = Launch("k", ["out"], block=(128, 1, 1), shared=64 * 1024, grid=(group, 1, 1), cluster=(group, 1, 1))
    return run(load(kernel(body, target="sm_100a"), ["k"]), launch, out=np.zeros(4, np.uint32))


TENSOR_REFUSALS = {
    "matrix descriptors with a base offset": {"a": PLAIN | BASE_OFFSET},
    "an absolute leading dimension": {"b": PLAIN | 1 << 52},
    "128-byte swizzle of 32-byte chunks": {"a": PLAIN & (1 << 61) - 1 | 1 << 61},
    "sparse products": {"bits": BITS | 1 << 2},
    "MN-major tf32": {"bits": BITS & ~(9 << 7) | 2 << 7 | 2 << 10 | 1 << 15, "kind": "tf32"},
    "A in tensor memory of a CTA pair is not supported with M=128": {"left": "[%r8]", "group": 2},
}


@pytest.mark.parametrize("what", TENSOR_REFUSALS)
def test_tensor_products_are_refused_by_name(what):
    with pytest.raises(UnsupportedError, match=rf"^tcgen05\.mma\S* at PTX line \d+: {what}"):
        run_tensor(**TENSOR_REFUSALS[what])


TENSOR_FAULTS = {
    "the swizzle mode does not exist": {"a": PLAIN | 7 << 61},
    "bits 46 to 48 must be 1": {"a": PLAIN & ~(1 << 46)},
    "does not exist for this kind": {"bits": BITS | 5 << 7},
    "N is not valid": {"bits": BITS & ~(63 << 17)},
}


@pytest.mark.parametrize("what", TENSOR_FAULTS)
def test_what_no_target_executes_stays_a_fault(what):
    fault = run_tensor(**TENSOR_FAULTS[what]).fault
    assert fault is not None
    assert fault.kind is FaultKind.ILLEGAL_INSTRUCTION
    assert what in fault.message


@pytest.mark.parametrize("products", ["eager", "late"])
def test_wgmma_descriptors_are_refused_by_name(products):
    registers = ", ".join(f"%f{i}" for i in range(4))
    body = f"""
mov.u64 %rd10, {signed(2 << 62 | 64 << 32 | BASE >> 4 | BASE_OFFSET)};
setp.ne.u32 %p4, 0, 0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{registers}}}, %rd10, %rd10, %p4, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
ret;"""
    options = Options(schedule=Schedule(products=products))
    launch = Launch("k", ["out"], block=(128, 1, 1), shared=64 * 1024)
    with pytest.raises(UnsupportedError, match=r"^wgmma\.\S* at PTX line \d+: matrix descriptors with a base offset"):
        run(load(kernel(body), ["k"]), launch, options, out=np.zeros(4, np.uint32))


def test_a_cluster_that_exceeds_the_hosts_memory_is_refused():
    body = ".local .align 4 .b8 much[400000];\nmov.u32 %r1, 0;\nst.local.u32 [much], %r1;\nret;"
    launch = Launch("k", ["out"], block=(1024, 1, 1), grid=(8, 1, 1), cluster=(8, 1, 1))
    with pytest.raises(UnsupportedError, match=r"^kernel k: one cluster needs \d+ MiB of host memory"):
        run(load(kernel(body), ["k"]), launch, out=np.zeros(4, np.uint32))
