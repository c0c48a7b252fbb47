"""tcgen05 beyond the plain product: copies, accumulator formats, masks of lanes, A of 64 rows, order of work."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_tensor import BASE, COLUMNS, FINISH, SETUP, copy_in, descriptor, move_rows, row_address
from simulator_text import kernel
from simulator_tiles import k_major, random_matrix

from ptxbench.core import Observation, RunOptions, Schedule, UnsupportedError
from ptxbench.simulator import load

LATE = Schedule(products="late")
in_both_schedules = pytest.mark.parametrize("schedule", [Schedule(), LATE], ids=["eager", "late"])
COMMIT = "@!%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];\n"
READ = 64  # columns that come back


def waited(parity: int) -> str:
    return f"""
WAIT{parity}:
mbarrier.try_wait.parity.shared.b64 %p5, [%r6], {parity};
@!%p5 bra WAIT{parity};
tcgen05.fence::after_thread_sync;
"""


def run_tensor(issue: str, image: np.ndarray, cells: np.ndarray, schedule: Schedule) -> Observation:
    """Runs ``issue`` (by thread 0: guard ``@!%p2``) on tensor memory that holds ``cells`` [128, COLUMNS] of 32 bits.

    The image lies at shared address `BASE`. The first columns of tensor memory are written back to ``cells``.
    """
    body = SETUP + copy_in(image.size) + move_rows(COLUMNS, "%rd2", store=True) + f"""
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
setp.eq.u32 %p4, 0, 0;
{issue}{COMMIT}{waited(issue.count(COMMIT) % 2)}
""" + move_rows(READ, "%rd2", store=False) + FINISH
    launch = Launch("k", ["in_image", "cells"], block=(128, 1, 1), shared=64 * 1024)
    seen = run(load(kernel(body, pointers=2, target="sm_100a"), ["k"]), launch, RunOptions(schedule=schedule),
               in_image=image, cells=cells)  # fmt: skip
    assert seen.fault is None
    return seen


def shape_bits(m: int, n: int, *, d: int = 1, a: int = 1, b: int = 1, saturate: bool = False) -> int:
    return saturate << 3 | d << 4 | a << 7 | b << 10 | n // 8 << 17 | m // 16 << 24


def tiles(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, str]:
    """The image of both operands, and instructions that put their descriptors into %rd10 and %rd11."""
    (a_image, a_leading, a_stride), (b_image, b_leading, b_stride) = k_major(a, "128b"), k_major(b, "128b")
    b_base = BASE + -(-a_image.size // 1024) * 1024
    image = np.zeros(b_base - BASE + b_image.size, np.uint8)
    image[: a_image.size] = a_image
    image[b_base - BASE :] = b_image
    return image, (
        f"mov.u64 %rd10, {descriptor(BASE, a_leading, a_stride, '128b')};\n"
        f"mov.u64 %rd11, {descriptor(b_base, b_leading, b_stride, '128b')};\n"
    )


def mma(
    d: str, a: str, bits: int, kind: str = "f16", masks: str = "", *, thread: int = 0, anew: bool = False
) -> str:
    return (
        f"setp.eq.u32 %p7, %r1, {thread};\n"
        f"@%p7 tcgen05.mma.cta_group::1.kind::{kind} [{d}], {a}, %rd11, {bits}, {masks}{'!' if anew else ''}%p4;\n"
    )


# Rows, words of a row, and for row r the lanes it goes to (PTX ISA, tcgen05.cp).
COPIES = {
    "128x256b": (128, 8, lambda r: [r]),
    "4x256b": (4, 8, lambda r: [32 * r]),
    "128x128b": (128, 4, lambda r: [r]),
    "64x128b.warpx2::02_13": (64, 4, lambda r: [r, r + 64]),
    "64x128b.warpx2::01_23": (64, 4, lambda r: [r % 32 + r // 32 * 64, r % 32 + r // 32 * 64 + 32]),
    "32x128b.warpx4": (32, 4, lambda r: [r, r + 32, r + 64, r + 96]),
}


@in_both_schedules
@pytest.mark.parametrize("shape", COPIES)
def test_copies(shape, schedule):
    rows, words, lanes = COPIES[shape]
    data = np.random.default_rng(1).integers(0, 1 << 32, (rows, words), np.uint32)
    leading, stride = 2048, 128
    image = np.zeros(2 * leading, np.uint8)
    for row in range(rows):
        for chunk in range(words // 4):
            at = chunk * leading + row // 8 * stride + row % 8 * 16
            image[at : at + 16] = data[row, 4 * chunk : 4 * chunk + 4].view(np.uint8)
    cells = np.zeros((128, COLUMNS), np.uint32)
    issue = f"""
mov.u64 %rd10, {descriptor(BASE, leading, stride, "none")};
@!%p2 tcgen05.cp.cta_group::1.{shape} [%r8+16], %rd10;
"""
    seen = run_tensor(issue, image, cells, schedule)
    expected = np.zeros((128, READ), np.uint32)
    for row in range(rows):
        for lane in lanes(row):
            expected[lane, 16 : 16 + words] = data[row]
    assert np.array_equal(cells[:, :READ], expected)
    assert seen.hazards == ()
    assert sum(site.bytes for site in seen.counts) == rows * words * 4


def test_copies_that_decompress_are_refused_by_name():
    body = SETUP + "mov.u64 %rd10, 0;\ntcgen05.cp.cta_group::1.128x256b.b8x16.b4x16_p64 [%r8], %rd10;" + FINISH
    with pytest.raises(UnsupportedError, match=r"tcgen05\.cp\.cta_group::1\.128x256b\.b8x16\.b4x16_p64 .*decompress"):
        load(kernel(body, target="sm_100a"), ["k"])


@pytest.mark.parametrize("dtype", ["f16", "e4m3"])
def test_f16_accumulators_are_the_lower_halves_of_cells(dtype):
    depth, code, kind = (16, 0, "f16") if dtype == "f16" else (32, 0, "f8f6f4")
    a, b = random_matrix(dtype, 128, depth, 1), random_matrix(dtype, 32, depth, 2)
    image, operands = tiles(a, b)
    cells = np.full((128, COLUMNS), 0xABCD3C00, np.uint32)  # f16 ones
    run_tensor(operands + mma("%r8", "%rd10", shape_bits(128, 32, d=0, a=code, b=code), kind), image, cells, LATE)
    got = cells[:, :32].astype(np.uint16).view(np.float16)
    exact = 1 + a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(got, exact, rtol=2**-10, atol=2**-10)


@pytest.mark.parametrize("types", ["s8 s8", "u8 s8", "u8 u8"])
def test_products_of_integers(types):
    a_type, b_type = types.split()
    a, b = random_matrix(a_type, 128, 32, 1), random_matrix(b_type, 32, 32, 2)
    image, operands = tiles(a, b)
    cells = np.full((128, COLUMNS), 1 << 20, np.uint32)
    bits = shape_bits(128, 32, d=2, a=a_type == "s8", b=b_type == "s8")
    run_tensor(operands + mma("%r8", "%rd10", bits, "i8"), image, cells, Schedule())
    assert np.array_equal(cells[:, :32].view(np.int32), (1 << 20) + a.astype(np.int32) @ b.astype(np.int32).T)


def test_integers_saturate():
    a, b = np.full((128, 32), 127, np.int8), np.full((32, 32), 127, np.int8)
    image, operands = tiles(a, b)
    cells = np.full((128, COLUMNS), 2**31 - 10, np.uint32)
    bits = shape_bits(128, 32, d=2, a=1, b=1, saturate=True)
    run_tensor(operands + mma("%r8", "%rd10", bits, "i8"), image, cells, Schedule())
    assert (cells[:, :32] == 2**31 - 1).all()


def test_lanes_that_are_masked_stay_as_they_are():
    a, b = random_matrix("bf16", 128, 16, 1), random_matrix("bf16", 32, 16, 2)
    image, operands = tiles(a, b)
    cells = np.ones((128, COLUMNS), np.float32)
    masks = "{%r20, %r21, %r22, %r23}, "
    words = [0x0000FFFF, 0, 0xFFFFFFFF, 0x80000001]
    setup = "".join(f"mov.u32 %r{20 + i}, {word};\n" for i, word in enumerate(words))
    run_tensor(operands + setup + mma("%r8", "%rd10", shape_bits(128, 32), masks=masks), image, cells, LATE)
    masked = np.array([words[lane // 32] >> lane % 32 & 1 for lane in range(128)], bool)
    exact = 1 + a.astype(np.float64) @ b.astype(np.float64).T
    assert (cells[masked, :32] == 1).all()
    np.testing.assert_allclose(cells[~masked, :32], exact[~masked], rtol=1e-5, atol=1e-5)


@in_both_schedules
@pytest.mark.parametrize("half", [0, 16])
def test_64_rows_of_a_in_tensor_memory(half, schedule):
    a, b = random_matrix("bf16", 64, 16, 1), random_matrix("bf16", 32, 16, 2)
    image, operands = tiles(a, b)
    cells = np.ones((128, COLUMNS), np.float32)
    lanes = np.arange(64) // 16 * 32 + np.arange(64) % 16 + half
    cells[lanes, 128:136] = np.ascontiguousarray(a).view(np.float32)
    at = half << 16
    issue = operands + mma(f"%r8+{at}", f"[%r8+{at + 128}]", shape_bits(64, 32))
    seen = run_tensor(issue, image, cells, schedule)
    exact = 1 + a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(cells[lanes, :32], exact, rtol=1e-5, atol=1e-5)
    others = np.setdiff1d(np.arange(128), lanes)
    assert (cells[others, :32] == 1).all()
    assert seen.hazards == ()


FIRST = mma("%r8", "[%r8+128]", shape_bits(128, 32))  # D in columns 0 to 31, A in 128 to 135
BETWEEN = COMMIT + waited(0) + "bar.sync 0;\n"
ORDERS = {
    "overwrites A of the first": (FIRST + mma("%r8+128", "%rd10", shape_bits(128, 32)), False),
    "the same in another thread": (FIRST + mma("%r8+128", "%rd10", shape_bits(128, 32), thread=1), True),
    "the same after a wait": (FIRST + BETWEEN + mma("%r8+128", "%rd10", shape_bits(128, 32), thread=1), False),
    "same accumulator": (FIRST + mma("%r8", "%rd10", shape_bits(128, 32)), False),
    "adds to the same columns, other shape": (FIRST + mma("%r8", "%rd10", shape_bits(128, 16)), True),
    "overwrites the same columns, other shape": (FIRST + mma("%r8", "%rd10", shape_bits(128, 16), anew=True), False),
    "reads D of the first as A": (FIRST + mma("%r8+64", "[%r8+16]", shape_bits(128, 32)), True),
    "elsewhere": (FIRST + mma("%r8+64", "%rd10", shape_bits(128, 32)), False),
    "copy, then product": ("@!%p2 tcgen05.cp.cta_group::1.128x256b [%r8+128], %rd10;\n" + FIRST, False),
    "product, then copy": (FIRST + "@!%p2 tcgen05.cp.cta_group::1.128x256b [%r8+128], %rd10;\n", True),
}


@in_both_schedules
@pytest.mark.parametrize("name", ORDERS)
def test_work_that_the_isa_does_not_order(name, schedule):
    issue, unordered = ORDERS[name]
    image, operands = tiles(random_matrix("bf16", 128, 16, 1), random_matrix("bf16", 32, 16, 2))
    seen = run_tensor(operands + issue, image, np.ones((128, COLUMNS), np.float32), schedule)
    expected = [("unordered_tensor_work", "rule")] if unordered else []
    assert [(hazard.kind, hazard.severity) for hazard in seen.hazards] == expected


@pytest.mark.parametrize("schedule, seen_value", [(Schedule(), 1), (LATE, 2)], ids=["eager", "late"])
def test_a_load_may_read_as_late_as_its_wait(schedule, seen_value):
    body = SETUP + """
mov.u32 %r20, 1;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r9], {%r20};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r21}, [%r9];
mov.u32 %r20, 2;
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r9], {%r20};
tcgen05.wait::st.sync.aligned;
tcgen05.wait::ld.sync.aligned;
""" + row_address("%rd1") + "st.global.u32 [%rd21], %r21;" + FINISH
    out = np.zeros((128, COLUMNS), np.uint32)
    launch = Launch("k", ["out"], block=(128, 1, 1))
    run(load(kernel(body, target="sm_100a"), ["k"]), launch, RunOptions(schedule=schedule), out=out)
    assert (out[:, 0] == seen_value).all()
