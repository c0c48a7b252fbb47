"""tcgen05.mma of 6- and 4-bit elements, with and without block scales, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from simulator_launch import Launch, load, run
from simulator_tensor import BASE, COLUMNS, FINISH, SETUP, copy_in, descriptor, move_rows
from simulator_text import kernel
from simulator_tiles import k_major

N = 64
# Bits of an element, its code in the instruction descriptor, its type.
FORMATS = {
    "e4m3": (8, 0, ml_dtypes.float8_e4m3fn), "e5m2": (8, 1, ml_dtypes.float8_e5m2),
    "e2m3": (6, 3, ml_dtypes.float6_e2m3fn), "e3m2": (6, 4, ml_dtypes.float6_e3m2fn),
    "e2m1": (4, 5, ml_dtypes.float4_e2m1fn),
}  # fmt: skip


def values_of(codes: np.ndarray, name: str) -> np.ndarray:
    return codes.astype(np.uint8).view(FORMATS[name][2]).astype(np.float64)


def padded(codes: np.ndarray, bits: int) -> np.ndarray:
    """16 elements to 16 bytes, packed at their front."""
    groups = codes.reshape(*codes.shape[:-1], -1, 16).astype(np.uint8)
    spread = np.unpackbits(groups[..., None], axis=-1, bitorder="little")[..., :bits]
    packed = np.packbits(spread.reshape(*groups.shape[:-1], 16 * bits), axis=-1, bitorder="little")
    out = np.zeros((*groups.shape[:-1], 16), np.uint8)
    out[..., : packed.shape[-1]] = packed
    return out.reshape(codes.shape)


def codes_of(name: str, rows: int, depth: int, seed: int) -> np.ndarray:
    bits = FORMATS[name][0]
    if bits == 8:
        values = np.random.default_rng(seed).standard_normal((rows, depth)).astype(FORMATS[name][2])
        return values.view(np.uint8)
    return np.random.default_rng(seed).integers(0, 2**bits, (rows, depth), dtype=np.uint8)


def scale_cells(scales: np.ndarray) -> np.ndarray:
    """[rows, 4] bytes as cells [128, rows / 32]: row r in lane r % 32, column r / 32, in each quarter of the lanes."""
    cells = np.ascontiguousarray(scales).view(np.uint32).reshape(-1, 32).T
    return np.tile(cells, (4, 1))


def product(a: np.ndarray, b: np.ndarray, instruction: str, shape: int, scales: dict[int, np.ndarray]) -> np.ndarray:
    """The first N columns of D = A·Bᵀ; ``a`` and ``b`` are rows of bytes, ``scales`` cells by column."""
    (a_image, a_leading, a_stride), (b_image, b_leading, b_stride) = k_major(a, "none"), k_major(b, "none")
    b_base = BASE + -(-a_image.size // 1024) * 1024
    image = np.zeros(b_base - BASE + b_image.size, np.uint8)
    image[: a_image.size] = a_image
    image[b_base - BASE :] = b_image
    body = SETUP + copy_in(image.size) + move_rows(COLUMNS, "%rd2", store=True) + f"""
tcgen05.fence::before_thread_sync;
bar.sync 0;
mov.u64 %rd10, {descriptor(BASE, a_leading, a_stride, "none")};
mov.u64 %rd11, {descriptor(b_base, b_leading, b_stride, "none")};
mov.u32 %r11, {shape};
add.u32 %r12, %r8, 128;
add.u32 %r13, %r8, 144;
setp.ne.u32 %p4, 0, 0;
tcgen05.fence::after_thread_sync;
@!%p2 {instruction};
@!%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];
WAIT:
mbarrier.try_wait.parity.shared.b64 %p5, [%r6], 0;
@!%p5 bra WAIT;
tcgen05.fence::after_thread_sync;
""" + move_rows(N, "%rd2", store=False) + FINISH
    cells = np.zeros((128, COLUMNS), np.uint32)
    for column, content in scales.items():
        cells[:, column : column + content.shape[1]] = content
    launch = Launch("k", ["in_image", "out"], block=(128, 1, 1), shared=64 * 1024)
    seen = run(load(kernel(body, pointers=2, target="sm_100a"), ["k"]), launch, in_image=image, out=cells)
    assert (seen.fault, seen.hazards) == (None, ())
    return cells.view(np.float32)[:, :N]


@pytest.mark.parametrize(("left", "right"), [("e2m1", "e2m1"), ("e3m2", "e2m3"), ("e4m3", "e2m1"), ("e2m3", "e5m2")])
def test_narrow_elements(left: str, right: str) -> None:
    a, b = codes_of(left, 128, 32, 1), codes_of(right, N, 32, 2)
    shape = 1 << 4 | FORMATS[left][1] << 7 | FORMATS[right][1] << 10 | N // 8 << 17 | 8 << 24
    found = product(
        padded(a, FORMATS[left][0]), padded(b, FORMATS[right][0]),
        "tcgen05.mma.cta_group::1.kind::f8f6f4 [%r8], %rd10, %rd11, %r11, %p4", shape, {},
    )  # fmt: skip
    np.testing.assert_allclose(found, values_of(a, left) @ values_of(b, right).T, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("number", [0, 2])
def test_scales_of_a_block_of_32(number: int) -> None:
    a, b = codes_of("e3m2", 128, 32, 3), codes_of("e4m3", N, 32, 4)
    rng = np.random.default_rng(5)
    a_scales, b_scales = (rng.integers(120, 134, (rows, 4), dtype=np.uint8) for rows in (128, N))
    shape = number << 4 | 4 << 7 | 0 << 10 | N // 8 << 17 | 1 << 23 | 1 << 27 | number << 29
    found = product(
        padded(a, 6), padded(b, 8),
        "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%r8], %rd10, %rd11, %r11, [%r12], [%r13], %p4", shape,
        {128: scale_cells(a_scales), 144: scale_cells(b_scales)},
    )  # fmt: skip
    factors = 2.0 ** (a_scales[:, number].astype(float)[:, None] + b_scales[:, number].astype(float)[None, :] - 254)
    expected = values_of(a, "e3m2") @ values_of(b, "e4m3").T * factors
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4 * float(np.abs(expected).max()))


@pytest.mark.parametrize("vector", [2, 4])
def test_scales_of_packed_elements(vector: int) -> None:
    a, b = codes_of("e2m1", 128, 64, 6), codes_of("e2m1", N, 64, 7)
    rng = np.random.default_rng(8)
    scale_type = ml_dtypes.float8_e4m3fn
    a_scales, b_scales = (rng.uniform(0.25, 4, (rows, 4)).astype(scale_type) for rows in (128, N))
    packed = [(codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8) for codes in (a, b)]
    shape = 1 << 7 | 1 << 10 | N // 8 << 17 | 1 << 27
    found = product(
        *packed, f"tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.scale_vec::{vector}X "
        "[%r8], %rd10, %rd11, %r11, [%r12], [%r13], %p4", shape,
        {128: scale_cells(a_scales.view(np.uint8)), 144: scale_cells(b_scales.view(np.uint8))},
    )  # fmt: skip
    left, right = (
        values_of(codes, "e2m1") * np.repeat(scales[:, :vector].astype(np.float64), 64 // vector, axis=1)
        for codes, scales in ((a, a_scales), (b, b_scales))
    )
    np.testing.assert_allclose(found, left @ right.T, rtol=1e-5, atol=1e-3)
