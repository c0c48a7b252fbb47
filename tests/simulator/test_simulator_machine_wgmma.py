"""wgmma.mma_async against NumPy: layouts, types, transposition, signs, operands in registers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import kernel
from simulator_tiles import k_major, mn_major, random_matrix

from ptxbench.core import RunOptions, Schedule
from ptxbench.simulator import load

MODES = {"none": 0, "128b": 1, "64b": 2, "32b": 3}
DEPTH = {"bf16": 16, "f16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
BASE = 2048  # shared address of A: the window starts at 1024, and swizzled tiles need 1024-byte alignment


def descriptor(address: int, leading: int, stride: int, mode: str) -> int:
    return address >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | MODES[mode] << 62


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def fragment_of(matrix: np.ndarray) -> np.ndarray:
    """A [64, k] as the 4 registers of 128 threads: 32-bit words [4, 128]."""
    words = np.ascontiguousarray(matrix).view(np.uint32)
    thread, q = np.arange(128), np.arange(4)[:, None]
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (q % 2)
    return words[row, thread % 4 + q // 2 * 4]


def accumulators_of(out: np.ndarray, n: int) -> np.ndarray:
    """D [64, n] from registers [n/2, 128]."""
    d = np.empty((64, n), np.float32)
    thread, i = np.arange(128), np.arange(n // 2)[:, None]
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (i // 2 % 2)
    d[row, i // 4 * 8 + thread % 4 * 2 + i % 2] = out
    return d


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray, types: tuple[str, str], *, a_mode: str = "128b",
            b_mode: str = "128b", a_mn: bool = False, b_mn: bool = False, registers: bool = False, signs: str = "1, 1",
            accumulate: bool = True, schedule: Schedule | None = None, suffix: str = "f32") -> np.ndarray:
    """c + a b^T through one wgmma; the operands reach shared memory as images made by `simulator_tiles`.

    ``suffix`` is what the opcode has between shape and operand types; integers are passed as bit patterns in ``c``.
    """
    n = b.shape[0]
    a_image, a_leading, a_stride = (mn_major if a_mn else k_major)(a, a_mode)
    b_image, b_leading, b_stride = (mn_major if b_mn else k_major)(b, b_mode)
    b_base = BASE + -(-a_image.size // 1024) * 1024
    image = np.zeros(b_base - BASE + b_image.size, np.uint8)
    image[: a_image.size] = a_image
    image[b_base - BASE :] = b_image
    d = [f"%f{i}" for i in range(n // 2)]
    left = "{%r20, %r21, %r22, %r23}" if registers else "%rd10"
    flags = "" if types[0] in ("s8", "u8") else f", {signs}"
    if types[0] in ("bf16", "f16"):
        flags += f", {int(b_mn)}" if registers else f", {int(a_mn)}, {int(b_mn)}"
    opcode = f"wgmma.mma_async.sync.aligned.m64n{n}k{DEPTH[types[0]]}.{suffix}.{types[0]}.{types[1]}"
    body = f"""
mov.u32 %r1, %tid.x;
shl.b32 %r2, %r1, 2;
cvt.u64.u32 %rd20, %r2;
add.u64 %rd21, %rd2, %rd20;
add.u64 %rd22, %rd3, %rd20;
mov.u32 %r3, %r2;
COPY:
cvt.u64.u32 %rd23, %r3;
add.u64 %rd23, %rd1, %rd23;
ld.global.u32 %r4, [%rd23];
add.u32 %r5, %r3, {BASE};
st.shared.u32 [%r5], %r4;
add.u32 %r3, %r3, 512;
setp.lt.u32 %p1, %r3, {image.size};
@%p1 bra COPY;
""" + "\n".join(f"ld.global.f32 {name}, [%rd21+{512 * i}];" for i, name in enumerate(d)) + "\n" + "\n".join(
        f"ld.global.u32 %r{20 + q}, [%rd22+{512 * q}];" for q in range(4)) + f"""
fence.proxy.async;
bar.sync 0;
mov.u64 %rd10, {signed(descriptor(BASE, a_leading, a_stride, a_mode))};
mov.u64 %rd11, {signed(descriptor(b_base, b_leading, b_stride, b_mode))};
wgmma.fence.sync.aligned;
{opcode} {{{", ".join(d)}}}, {left}, %rd11, {int(accumulate)}{flags};
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
""" + "\n".join(f"st.global.f32 [%rd21+{512 * i}], {name};" for i, name in enumerate(d)) + "\nret;"
    thread, i = np.arange(128), np.arange(n // 2)[:, None]
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (i // 2 % 2)
    out = np.ascontiguousarray(c[row, i // 4 * 8 + thread % 4 * 2 + i % 2]).astype(np.float32)
    launch = Launch("k", ["in_image", "out", "in_fragment"], block=(128, 1, 1), shared=64 * 1024)
    fragment = fragment_of(a)
    seen = run(load(kernel(body, pointers=3), ["k"]), launch, RunOptions(schedule=schedule or Schedule()),
               in_image=image, out=out, in_fragment=fragment)  # fmt: skip
    assert (seen.fault, seen.hazards) == (None, ())
    return accumulators_of(out, n)


def check(a_type: str, b_type: str, n: int, **options) -> None:
    a, b = random_matrix(a_type, 64, DEPTH[a_type], 1), random_matrix(b_type, n, DEPTH[b_type], 2)
    c = np.random.default_rng(3).standard_normal((64, n)).astype(np.float32)
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    sign = -1 if options.get("signs", "1, 1").count("-") == 1 else 1
    expected = sign * expected + (c if options.get("accumulate", True) else 0)
    np.testing.assert_allclose(product(a, b, c, (a_type, b_type), **options), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("n", [8, 24, 64, 128, 256])
def test_widths(n):
    check("bf16", "bf16", n)


@pytest.mark.parametrize("a_mode, b_mode", list(itertools.product(MODES, MODES)))
def test_k_major_layouts(a_mode, b_mode):
    check("bf16", "bf16", 64, a_mode=a_mode, b_mode=b_mode)


@pytest.mark.parametrize("a_mode, b_mode", list(itertools.product(MODES, MODES)))
def test_mn_major_layouts(a_mode, b_mode):
    check("bf16", "bf16", 128, a_mode=a_mode, b_mode=b_mode, a_mn=True, b_mn=True)


@pytest.mark.parametrize("types", ["f16 f16", "tf32 tf32", "e4m3 e4m3", "e5m2 e4m3"])
@pytest.mark.parametrize("registers", [False, True], ids=["shared", "registers"])
def test_operand_types(types, registers):
    check(*types.split(), 32, registers=registers)


@pytest.mark.parametrize("b_mn", [False, True])
def test_a_in_registers(b_mn):
    check("bf16", "bf16", 64, registers=True, b_mn=b_mn)


@pytest.mark.parametrize("signs", ["-1, 1", "1, -1", "-1, -1"])
def test_signs(signs):
    check("bf16", "bf16", 16, signs=signs)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(products="late")], ids=["eager", "late"])
def test_scale_d_zero_ignores_the_accumulators(schedule):
    check("bf16", "bf16", 32, accumulate=False, schedule=schedule)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(products="late")], ids=["eager", "late"])
@pytest.mark.parametrize("registers", [False, True], ids=["shared", "registers"])
@pytest.mark.parametrize("types", ["s8 s8", "u8 s8", "u8 u8"])
def test_integers(types, registers, schedule):
    a_type, b_type = types.split()
    a, b = random_matrix(a_type, 64, 32, 1), random_matrix(b_type, 48, 32, 2)
    c = np.random.default_rng(3).integers(-(2**31), 2**31, (64, 48), np.int32)
    got = product(a, b, c.view(np.float32), (a_type, b_type), registers=registers, suffix="s32", schedule=schedule)
    assert np.array_equal(got.view(np.int32), c + a.astype(np.int32) @ b.astype(np.int32).T)  # wraps around


def test_integers_saturate():
    a, b = np.full((64, 32), 127, np.int8), np.full((16, 32), 127, np.int8)
    c = np.full((64, 16), 2**31 - 10, np.int32)
    got = product(a, b, c.view(np.float32), ("s8", "s8"), suffix="satfinite.s32")
    assert (got.view(np.int32) == 2**31 - 1).all()
