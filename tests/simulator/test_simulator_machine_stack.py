"""alloca and its kin, st.bulk, atomics of 128 bits, mmio accesses, and what has no effect."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, load, run
from simulator_text import kernel

from ptxbench.core import Observation, RunOptions, UnsupportedError

Array = np.ndarray


def run_text(body: str, *, target: str = "sm_90a", races: bool = False, **buffers: Array) -> Observation:
    program = load(kernel(body, pointers=len(buffers), target=target), ["k"])
    return run(program, Launch("k", list(buffers)), RunOptions(races=races), **buffers)


@pytest.mark.parametrize("bits", [32, 64])
def test_every_thread_has_a_stack(bits: int) -> None:
    register, width = ("%r", "u32") if bits == 32 else ("%rd", "u64")
    size = "%r2" if bits == 32 else "%rd30"
    body = f"""
.local .align 4 .b32 own;
mov.u32 %r1, %tid.x; mul.wide.u32 %rd20, %r1, 16; add.u64 %rd21, %rd1, %rd20;
st.local.u32 [own], %r1;
and.b32 %r2, %r1, 7; add.u32 %r2, %r2, 1; shl.b32 %r2, %r2, 2; cvt.u64.u32 %rd30, %r2;
stacksave.{width} {register}10;
alloca.{width} {register}11, {size};
st.local.u32 [{register}11], %r1;
alloca.{width} {register}12, {size}, 64;
st.local.u32 [{register}12], %r2;
ld.local.u32 %r3, [{register}11];
ld.local.u32 %r4, [{register}12];
stackrestore.{width} {register}10;
alloca.{width} {register}13, {size};
sub.{width} {register}14, {register}13, {register}11;
ld.local.u32 %r5, [own];
{"mov.u32 %r6, %r14;" if bits == 32 else "cvt.u32.u64 %r6, %rd14;"}
st.global.v4.u32 [%rd21], {{%r3, %r4, %r5, %r6}};
ret;"""
    out = np.full((32, 4), 99, np.uint32)
    seen = run_text(body, out=out)
    assert seen.fault is None
    lanes = np.arange(32)
    np.testing.assert_array_equal(out, np.stack([lanes, (lanes % 8 + 1) * 4, lanes, 0 * lanes], axis=1))


def test_a_stack_has_an_end() -> None:
    with pytest.raises(UnsupportedError, match=r"alloca.u64 .*more than 16384 bytes of a thread's stack"):
        run_text("mov.u64 %rd5, 16392; alloca.u64 %rd6, %rd5; ret;")


@pytest.mark.parametrize("size", [1 << 63, 2**64 - 8])
def test_sizes_do_not_wrap(size: int) -> None:
    with pytest.raises(UnsupportedError, match="stack"):
        run_text(f"mov.u64 %rd5, {size - 2**64}; alloca.u64 %rd6, %rd5; ret;")


def test_only_a_saved_pointer_is_restored() -> None:
    seen = run_text("mov.u64 %rd5, 64; stackrestore.u64 %rd5; ret;")
    assert seen.fault is not None
    assert "0x40 is not a stack pointer that stacksave returned" in seen.fault.message


def test_an_alignment_is_a_power_of_two() -> None:
    with pytest.raises(UnsupportedError, match="alignment 24"):
        load(kernel("alloca.u64 %rd1, %rd1, 24;"), ["k"])


@pytest.mark.parametrize(("space", "pointer"), [(".shared::cta", "%rd5"), ("", "%rd6")])
def test_shared_memory_is_filled_with_zeros(space: str, pointer: str) -> None:
    body = f"""
.shared .align 16 .b8 tile[512];
mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mad.lo.u32 %r3, %r1, 4, %r2; cvt.u64.u32 %rd5, %r2; cvta.shared.u64 %rd6, %rd5;
st.shared.u32 [%r3], %r1; st.shared.u32 [%r3+128], %r1;
bar.sync 0;
setp.eq.u32 %p1, %r1, 0; mov.u64 %rd7, 200;
@%p1 st.bulk{space} [{pointer}+8], %rd7, 0;
bar.sync 0;
mul.wide.u32 %rd20, %r1, 4; add.u64 %rd21, %rd1, %rd20;
ld.shared.u32 %r4, [%r3]; ld.shared.u32 %r5, [%r3+128];
st.global.u32 [%rd21], %r4; st.global.u32 [%rd21+128], %r5;
ret;"""
    out = np.full(64, 99, np.uint32)
    seen = run_text(body, target="sm_100a", races=True, out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    expected = np.concatenate([np.arange(32)] * 2).astype(np.uint32)
    expected[2:52] = 0
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("size", "what"), [
    (12, "not a multiple of 8"), (1 << 25, "up to 2^24"), (1024, "Out of bounds"),
])  # fmt: skip
def test_sizes_of_a_fill_are_checked(size: int, what: str) -> None:
    body = f"""
.shared .align 16 .b8 tile[512];
mov.u32 %r2, tile; cvt.u64.u32 %rd5, %r2; mov.u64 %rd7, {size};
st.bulk.weak.shared::cta [%rd5], %rd7, 0;
ret;"""
    seen = run_text(body, target="sm_100a")
    assert seen.fault is not None
    assert what in seen.fault.message


@pytest.mark.parametrize("space", ["global", "shared"])
def test_atomics_of_128_bits(space: str) -> None:
    """Every lane exchanges its number with memory, then the value 7 of memory is swapped for 9 once."""
    address = "%rd1" if space == "global" else "%r2"
    body = f"""
.reg .b128 %x<8>;
.shared .align 16 .b8 cell[16];
mov.u32 %r1, %tid.x; mov.u32 %r2, cell; cvt.u64.u32 %rd5, %r1; not.b64 %rd6, %rd5;
mov.b64 %rd8, 0; setp.eq.u32 %p1, %r1, 0;
@%p1 st.shared.v2.b64 [%r2], {{%rd8, %rd8}};
bar.sync 0;
add.u64 %rd5, %rd5, 100;
mov.b128 %x0, {{%rd5, %rd6}};
atom.{space}.exch.b128 %x1, [{address}], %x0;
mov.b128 {{%rd10, %rd11}}, %x1;
mul.wide.u32 %rd20, %r1, 32; add.u64 %rd21, %rd2, %rd20;
st.global.v2.b64 [%rd21], {{%rd10, %rd11}};
bar.sync 0;
mov.u64 %rd12, 7; mov.b128 %x2, {{%rd12, %rd8}};
@%p1 atom.{space}.exch.b128 _, [{address}], %x2;
bar.sync 0;
mov.u64 %rd13, 9; mov.b128 %x3, {{%rd13, %rd13}};
atom.{space}.cas.b128 %x4, [{address}], %x2, %x3;
mov.b128 {{%rd10, %rd11}}, %x4;
st.global.v2.b64 [%rd21+16], {{%rd10, %rd11}};
ret;"""
    cell, out = np.zeros(2, np.uint64), np.zeros((32, 4), np.uint64)
    seen = run_text(body, cell=cell, out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    mask = 2**64 - 1
    found = {(int(low), int(high)) for low, high in out[:, :2]}
    written = {(lane + 100, lane ^ mask) for lane in range(32)}
    assert len(found) == 32
    assert found <= written | {(0, 0)}
    swapped = [tuple(row) for row in out[:, 2:].tolist()]
    assert sorted(swapped) == [(7, 0), *[(9, 9)] * 31]
    if space == "global":
        assert cell.tolist() == [9, 9]


def test_wide_atomics_are_aligned_and_in_bounds() -> None:
    for offset, what in ((8, "isaligned"), (16, "out")):
        body = f"""
.reg .b128 %x<2>;
mov.b64 %rd8, 0; mov.b128 %x0, {{%rd8, %rd8}};
atom.global.exch.b128 %x1, [%rd1+{offset}], %x0;
ret;"""
        seen = run_text(body, out=np.zeros(2, np.uint64))
        assert seen.fault is not None
        assert what in seen.fault.message


def test_mmio_accesses_and_events_of_a_profiler() -> None:
    body = """
mov.u32 %r1, %tid.x; mul.wide.u32 %rd20, %r1, 4; add.u64 %rd21, %rd1, %rd20;
st.mmio.relaxed.sys.global.b32 [%rd21], %r1;
membar.proxy.alias;
pmevent 3; pmevent.mask 5;
ld.mmio.relaxed.sys.global.b32 %r2, [%rd21];
add.u32 %r2, %r2, 1;
st.async.mmio.release.sys.global.b32 [%rd21+128], %r2;
red.async.mmio.release.sys.global.add.u32 [%rd21+128], %r1;
ret;"""
    out = np.zeros(64, np.uint32)
    seen = run_text(body, target="sm_100a", out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    lanes = np.arange(32)
    np.testing.assert_array_equal(out, np.concatenate([lanes, 2 * lanes + 1]))


@pytest.mark.parametrize("text", [
    "ld.mmio.global.b32 %r1, [%rd1];", "st.mmio.relaxed.gpu.global.b32 [%rd1], %r1;",
])  # fmt: skip
def test_mmio_is_of_the_system(text: str) -> None:
    with pytest.raises(UnsupportedError, match=r"needs \.relaxed\.sys"):
        load(kernel(text), ["k"])
