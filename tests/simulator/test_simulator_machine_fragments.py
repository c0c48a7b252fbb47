"""ldmatrix, stmatrix and mma.sync: whole 16x8 products, and matrices through shared memory and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import kernel
from simulator_tiles import random_matrix

from ptxbench.simulator import load

DEPTHS = {"bf16": (8, 16), "f16": (8, 16), "tf32": (4, 8), "e4m3": (32,), "e5m2": (32,)}
CASES = [(dtype, depth) for dtype, depths in DEPTHS.items() for depth in depths]


def run_lanes(body: str, **buffers):
    names = list(buffers)
    seen = run(load(kernel(body, pointers=len(names)), ["k"]), Launch("k", names), **buffers)
    assert (seen.fault, seen.hazards) == (None, ())
    return seen


def registers_of(matrix: np.ndarray, count: int, per_row: bool) -> np.ndarray:
    """A ([16, k], ``per_row``) or B ([8, k]) as words [count, 32], after the fragment figures of the PTX ISA."""
    words = np.ascontiguousarray(matrix).view(np.uint32)
    lane, q = np.arange(32), np.arange(count)[:, None]
    if per_row:
        return words[lane // 4 + 8 * (q % 2), lane % 4 + q // 2 * 4]
    return words[lane // 4, lane % 4 + q * 4]


def multiply(a: np.ndarray, b: np.ndarray, c: np.ndarray, form: str) -> np.ndarray:
    """c + a b^T by one mma.sync; the elements of c have 32 bits."""
    count = a.nbytes // 128
    left, right = registers_of(a, count, True), registers_of(b, count // 2, False)
    lane, i = np.arange(32), np.arange(4)[:, None]
    spot = (lane // 4 + 8 * (i // 2), lane % 4 * 2 + i % 2)
    out = np.ascontiguousarray(c[spot])
    body = """
mov.u32 %r1, %laneid;
mul.wide.u32 %rd20, %r1, 4;
add.u64 %rd21, %rd1, %rd20;
add.u64 %rd22, %rd2, %rd20;
add.u64 %rd23, %rd3, %rd20;
""" + "\n".join(
        [f"ld.global.u32 %r{10 + q}, [%rd21+{128 * q}];" for q in range(count)]
        + [f"ld.global.u32 %r{20 + q}, [%rd22+{128 * q}];" for q in range(count // 2)]
        + [f"ld.global.f32 %f{q}, [%rd23+{128 * q}];" for q in range(4)]
        + [
            f"mma.sync.aligned.{form} {{%f0, %f1, %f2, %f3}}, "
            f"{{{', '.join(f'%r{10 + q}' for q in range(count))}}}, "
            f"{{{', '.join(f'%r{20 + q}' for q in range(count // 2))}}}, {{%f0, %f1, %f2, %f3}};"
        ]
        + [f"st.global.f32 [%rd23+{128 * q}], %f{q};" for q in range(4)]
    ) + "\nret;"
    seen = run_lanes(body, in_a=left, in_b=right, out=out)
    assert sum(site.flops for site in seen.counts) == 2 * 16 * 8 * a.shape[1]
    d = np.empty((16, 8), c.dtype)
    d[spot] = out
    return d


@pytest.mark.parametrize("dtype, depth", CASES)
def test_mma_sync(dtype, depth):
    a, b = random_matrix(dtype, 16, depth, 1), random_matrix(dtype, 8, depth, 2)
    c = np.random.default_rng(3).standard_normal((16, 8)).astype(np.float32)
    d = multiply(a, b, c, f"m16n8k{depth}.row.col.f32.{dtype}.{dtype}.f32")
    np.testing.assert_allclose(d, c + a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("depth", [16, 32])
@pytest.mark.parametrize("types", ["s8 s8", "u8 s8"])
def test_mma_sync_of_integers(types, depth):
    a_type, b_type = types.split()
    a, b = random_matrix(a_type, 16, depth, 1), random_matrix(b_type, 8, depth, 2)
    c = np.random.default_rng(3).integers(-1000, 1000, (16, 8), np.int32)
    out = multiply(a, b, c, f"m16n8k{depth}.row.col.s32.{a_type}.{b_type}.s32")
    assert np.array_equal(out, c + a.astype(np.int32) @ b.astype(np.int32).T)


def multiply_halves(a: np.ndarray, b: np.ndarray, c: float, form: str) -> np.ndarray:
    """c + a b^T by one mma.sync with f16 accumulators."""
    left, right = registers_of(a, 4, True), registers_of(b, 2, False)
    out = np.zeros((2, 32), np.uint32)
    packed = int(np.full(2, c, np.float16).view(np.uint32)[0])
    body = """
mov.u32 %r1, %laneid;
mul.wide.u32 %rd20, %r1, 4;
add.u64 %rd21, %rd1, %rd20;
add.u64 %rd22, %rd2, %rd20;
add.u64 %rd23, %rd3, %rd20;
""" + "\n".join(
        [f"ld.global.u32 %r{10 + q}, [%rd21+{128 * q}];" for q in range(4)]
        + [f"ld.global.u32 %r{20 + q}, [%rd22+{128 * q}];" for q in range(2)]
    ) + f"""
mov.u32 %r30, {packed};
mma.sync.aligned.{form} {{%r31, %r32}}, {{%r10, %r11, %r12, %r13}}, {{%r20, %r21}}, {{%r30, %r30}};
st.global.u32 [%rd23], %r31;
st.global.u32 [%rd23+128], %r32;
ret;"""
    run_lanes(body, in_a=left, in_b=right, out=out)
    halves = out.view(np.float16).reshape(2, 8, 4, 2)
    return np.concatenate([halves[0].reshape(8, 8), halves[1].reshape(8, 8)])


def test_f16_accumulators_round_once():
    a, b = random_matrix("f16", 16, 16, 1), random_matrix("f16", 8, 16, 2)
    d = multiply_halves(a, b, 0.0, "m16n8k16.row.col.f16.f16.f16.f16")
    np.testing.assert_array_equal(d, (a.astype(np.float32) @ b.astype(np.float32).T).astype(np.float16))


def test_f16_accumulators_of_8_bit_floats_round_three_times():
    # Elements k with k % 4 < 2 come first, the others next, C last. Above 2048, f16 are even.
    a, b = np.zeros((16, 32), ml_dtypes.float8_e4m3fn), np.ones((8, 32), ml_dtypes.float8_e4m3fn)
    b[:, 0] = 32
    a[:4, 0] = 64
    a[1, [1, 4]] = 1
    a[2, [1, 2]] = 1
    a[3, [2, 3]] = 1
    d = multiply_halves(a, b, 0.5, "m16n8k32.row.col.f16.e4m3.e4m3.f16")
    expected = np.repeat(np.array([2048, 2050, 2048, 2050, *[0.5] * 12], np.float16)[:, None], 8, 1)
    np.testing.assert_array_equal(d, expected)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix(count, transposed):
    # Lane 8q+r gives the address of row r of matrix q; rows lie 32 bytes apart so that order matters.
    matrices = np.arange(count * 64, dtype=np.uint16).reshape(count, 8, 8)
    image = np.zeros((32, 16), np.uint16)
    image[: 8 * count, :8] = matrices.reshape(-1, 8)
    registers = ", ".join(f"%r{10 + q}" for q in range(count))
    trans = ".trans" if transposed else ""
    body = f"""
.shared .align 16 .b8 s[1024];
.shared .align 16 .b8 t[1024];
mov.u32 %r1, %laneid;
mul.wide.u32 %rd20, %r1, 32;
add.u64 %rd21, %rd1, %rd20;
ld.global.v2.b64 {{%rd30, %rd31}}, [%rd21];
mov.u32 %r2, s;
mad.lo.u32 %r3, %r1, 32, %r2;
st.shared.v2.b64 [%r3], {{%rd30, %rd31}};
bar.warp.sync 0xffffffff;
ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r3];
mul.wide.u32 %rd20, %r1, 4;
add.u64 %rd22, %rd2, %rd20;
""" + "\n".join(f"st.global.u32 [%rd22+{128 * q}], %r{10 + q};" for q in range(count)) + f"""
mov.u32 %r2, t;
mad.lo.u32 %r3, %r1, 16, %r2;
stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r3], {{{registers}}};
bar.warp.sync 0xffffffff;
setp.ge.u32 %p1, %r1, {8 * count};
@%p1 ret;
ld.shared.v2.b64 {{%rd30, %rd31}}, [%r3];
mul.wide.u32 %rd20, %r1, 16;
add.u64 %rd23, %rd3, %rd20;
st.global.v2.b64 [%rd23], {{%rd30, %rd31}};
ret;"""
    fragments, back = np.zeros((count, 32, 2), np.uint16), np.zeros((count, 8, 8), np.uint16)
    run_lanes(body, in_image=image, out=fragments, back=back)
    expected = matrices.transpose(0, 2, 1) if transposed else matrices
    assert np.array_equal(fragments.reshape(count, 8, 8), expected)
    assert np.array_equal(back, matrices)
