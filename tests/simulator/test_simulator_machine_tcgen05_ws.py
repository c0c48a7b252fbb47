"""Weight-stationary tcgen05.mma (.ws), zero-column masks, and D scaled before it is added to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_tensor import BASE, COLUMNS, FINISH, SETUP, copy_in, descriptor, move_rows
from simulator_text import kernel
from simulator_tiles import k_major, mn_major, random_matrix

from ptxbench.core import Observation, RunOptions, Schedule, UnsupportedError
from ptxbench.simulator import load

Array = np.ndarray
_KINDS = {"f16": ("f16", 16, 0, 1), "tf32": ("tf32", 8, 2, 1), "e4m3": ("f8f6f4", 32, 0, 1), "s8": ("i8", 32, 1, 2)}


def instruction_bits(m: int, n: int, code: int, d: int, *, b_major: int = 0, most_shift: int = 0) -> int:
    bits = d << 4 | code << 7 | code << 10 | b_major << 16 | n // 8 << 17 | m // 16 << 24 | most_shift << 30
    return bits - (1 << 32) if bits >> 31 else bits


@dataclass(frozen=True)
class Operands:
    """The image of A and B in shared memory, and instructions that put their descriptors into %rd10 and %rd11."""

    image: Array
    text: str


def operands(a: Array, b: Array, *, b_mn_major: bool = False) -> Operands:
    lay_b = mn_major if b_mn_major else k_major
    (a_image, a_leading, a_stride), (b_image, b_leading, b_stride) = k_major(a, "none"), lay_b(b, "none")
    b_base = BASE + -(-a_image.size // 1024) * 1024
    image = np.zeros(b_base - BASE + b_image.size, np.uint8)
    image[: a_image.size], image[b_base - BASE :] = a_image, b_image
    return Operands(image, (
        f"mov.u64 %rd10, {descriptor(BASE, a_leading, a_stride, 'none')};\n"
        f"mov.u64 %rd11, {descriptor(b_base, b_leading, b_stride, 'none')};\n"
    ))  # fmt: skip


def run_product(instruction: str, given: Operands, cells: Array, options: RunOptions | None = None) -> Observation:
    """Runs ``instruction`` by thread 0 on tensor memory that holds ``cells`` [128, COLUMNS], and reads them back."""
    body = SETUP + copy_in(given.image.size) + move_rows(COLUMNS, "%rd2", store=True) + f"""
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
setp.eq.u32 %p4, 0, 0;
{given.text}
@!%p2 {instruction}
@!%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];
WAIT:
mbarrier.try_wait.parity.shared.b64 %p5, [%r6], 0;
@!%p5 bra WAIT;
tcgen05.fence::after_thread_sync;
""" + move_rows(COLUMNS, "%rd2", store=False) + FINISH
    launch = Launch("k", ["in_image", "cells"], block=(128, 1, 1), shared=96 * 1024)
    return run(load(kernel(body, pointers=2, target="sm_100a"), ["k"]), launch, options, in_image=given.image,
               cells=cells)  # fmt: skip


def unfolded(cells: Array, m: int, n: int) -> Array:
    """[m, n] of D: the columns are folded over groups of m lanes (PTX ISA, layouts D, E and G)."""
    width = n // (128 // m)
    return np.concatenate([cells[first : first + m, :width] for first in range(0, 128, m)], axis=1)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(products="late")], ids=["eager", "late"])
@pytest.mark.parametrize("dtype", _KINDS)
@pytest.mark.parametrize(("m", "n"), [(32, 64), (32, 256), (64, 128), (64, 256), (128, 64), (128, 256)])
def test_rows_and_columns_lie_in_the_layout_of_m(dtype: str, m: int, n: int, schedule: Schedule) -> None:
    kind, depth, code, d = _KINDS[dtype]
    a, b = random_matrix(dtype, m, depth, 1), random_matrix(dtype, n, depth, 2)
    before = np.random.default_rng(3).integers(-50, 50, (128, COLUMNS))
    cells = before.astype(np.int32 if d == 2 else np.float32)
    given = operands(a, b)
    text = f"tcgen05.mma.ws.cta_group::1.kind::{kind} [%r8], %rd10, %rd11, {instruction_bits(m, n, code, d)}, %p4;"
    seen = run_product(text, given, cells, RunOptions(schedule=schedule))
    assert (seen.fault, seen.hazards) == (None, ())
    exact = unfolded(before, m, n) + a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(unfolded(cells, m, n), exact, rtol=1e-5, atol=1e-4)
    touched = n // (128 // m)
    np.testing.assert_array_equal(cells[:, touched:], before[:, touched:])
    (site,) = [site for site in seen.counts if site.flops]
    assert (site.flops, site.operand_dtype, site.executed) == (2 * m * n * depth, dtype, 1)


def mask_bits(starts: tuple[int, ...] = (), firsts: tuple[int, ...] = (), *, skip: int = 0, use: int = 0,
              shift: int = 0, on: bool = True) -> int:
    bits = on << 39 | skip << 40 | use << 48 | shift << 56
    for number, (start, first) in enumerate(zip(starts, firsts, strict=True)):
        bits |= start << 8 * number | first << (32 + number)
    return bits - (1 << 64) if bits >> 63 else bits


def repeated(text: str, count: int) -> list[bool]:
    """A mask of the ISA's examples, its lowest bits written last; the part after the dots is where it begins."""
    period = "1110000"
    written = [digit == "1" for digit in reversed(text.replace(" ", ""))]
    while len(written) < count:
        following = "".join("1" if bit else "0" for bit in reversed(written[-7:]))
        written.append((period * 3)[(period * 3).index(following) - 1] == "1")
    return written[:count]


# The examples 1 to 4 of the PTX ISA: M, the descriptor, and the masks of its parts.
MASKS = {
    "off": (128, mask_bits((0,), (0,), skip=4, use=3, on=False), []),
    "one mask": (128, mask_bits((0,), (0,), skip=2, use=3), ["111 0000 111 0000"]),
    "two masks": (64, mask_bits((0, 0), (1, 0), skip=2, use=3), ["111 0000 111 0000 111", "0000 111 0000 111 0000"]),
    "four masks": (
        32, mask_bits((0, 1, 2, 1), (1, 1, 0, 0), skip=2, use=3, shift=2),
        ["0000 111 0000 111", "0000 111 0000 11", "111 0000 111 00", "111 0000 111 000"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_columns_of_the_mask_count_as_zeros(name: str) -> None:
    m, bits, parts = MASKS[name]
    n, shift = 128, bits >> 56 & 63
    a, b = random_matrix("f16", m, 16, 1), random_matrix("f16", n + 32, 16, 2)
    given, cells = operands(a, b), np.zeros((128, COLUMNS), np.float32)
    seen = run_product(
        f"tcgen05.mma.ws.cta_group::1.kind::f16 [%r8], %rd10, %rd11, {instruction_bits(m, n, 0, 1, most_shift=1)}, "
        f"%p4, {bits};", given, cells,
    )  # fmt: skip
    assert (seen.fault, seen.hazards) == (None, ())
    used = b[shift : n + shift].astype(np.float64)
    zero = [bit for part in parts for bit in repeated(part, n // len(parts))] or [False] * n
    used[zero] = 0
    np.testing.assert_allclose(unfolded(cells, m, n), a.astype(np.float64) @ used.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shift", [8, 16])
def test_an_mn_major_operand_is_shifted_by_whole_chunks(shift: int) -> None:
    a, b = random_matrix("f16", 64, 16, 1), random_matrix("f16", 96, 16, 2)
    given, cells = operands(a, b, b_mn_major=True), np.zeros((128, COLUMNS), np.float32)
    bits = instruction_bits(64, 64, 0, 1, b_major=1, most_shift=2)
    seen = run_product(
        f"tcgen05.mma.ws.cta_group::1.kind::f16 [%r8], %rd10, %rd11, {bits}, !%p4, {mask_bits(shift=shift, on=False)};",
        given, cells,
    )  # fmt: skip
    assert (seen.fault, seen.hazards) == (None, ())
    exact = a.astype(np.float64) @ b[shift : shift + 64].astype(np.float64).T
    np.testing.assert_allclose(unfolded(cells, 64, 64), exact, rtol=1e-5, atol=1e-5)


def failure_of(instruction: str) -> str:
    given = operands(random_matrix("f16", 64, 16, 1), random_matrix("f16", 128, 16, 2))
    seen = run_product(instruction, given, np.zeros((128, COLUMNS), np.float32))
    assert seen.fault is not None
    return seen.fault.message


@pytest.mark.parametrize(("bits", "mask", "what"), [
    (instruction_bits(64, 96, 0, 1), 0, "N is not valid"),
    (instruction_bits(96, 64, 0, 1), 0, "M is not valid"),
    (instruction_bits(64, 64, 0, 1), mask_bits(shift=8, on=False), "the shift exceeds its maximum"),
    (instruction_bits(32, 64, 0, 1, most_shift=3), mask_bits(shift=17, on=False), "the shift exceeds its maximum"),
    (instruction_bits(64, 64, 0, 1), 1 << 36, "reserved bits are set"),
])  # fmt: skip
def test_what_no_target_executes(bits: int, mask: int, what: str) -> None:
    message = failure_of(f"tcgen05.mma.ws.cta_group::1.kind::f16 [%r8], %rd10, %rd11, {bits}, %p4, {mask};")
    assert what in message


@pytest.mark.parametrize(("instruction", "what"), [
    (f"tcgen05.mma.ws.cta_group::1.kind::f16 [%r8], [%r8], %rd11, {instruction_bits(64, 64, 0, 1)}, %p4;",
     "with M=128 only"),
    (f"tcgen05.mma.ws.cta_group::1.kind::f16 [%r8], %rd10, %rd11, {instruction_bits(64, 64, 0, 1)}, %p4, "
     f"{mask_bits((9, 9), (0, 0), skip=2, use=3)};", "a start count beyond its span"),
])  # fmt: skip
def test_what_is_open_is_refused_by_name(instruction: str, what: str) -> None:
    with pytest.raises(UnsupportedError, match=what):
        failure_of(instruction)


@pytest.mark.parametrize("usage", ["", ".collector::b0::fill", ".collector::b3::lastuse", ".collector::b1::discard"])
def test_collector_buffers_change_no_result(usage: str) -> None:
    a, b = random_matrix("f16", 64, 16, 1), random_matrix("f16", 64, 16, 2)
    cells = np.zeros((128, COLUMNS), np.float32)
    bits = instruction_bits(64, 64, 0, 1)
    run_product(
        f"tcgen05.mma.ws.cta_group::1.kind::f16{usage} [%r8], %rd10, %rd11, {bits}, %p4;", operands(a, b), cells
    )
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(unfolded(cells, 64, 64), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("d", [0, 1])
@pytest.mark.parametrize("power", [0, 3, 15])
def test_d_is_divided_before_the_products_are_added(power: int, d: int) -> None:
    a, b = random_matrix("f16", 128, 16, 1), random_matrix("f16", 64, 16, 2)
    before = np.random.default_rng(4).integers(-1000, 1000, (128, COLUMNS)).astype(np.float16)
    cells = before.view(np.uint16).astype(np.uint32) if d == 0 else before.astype(np.float32)
    run_product(
        f"tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd10, %rd11, {instruction_bits(128, 64, 0, d)}, %p4, {power};",
        operands(a, b), cells,
    )  # fmt: skip
    got = cells[:, :64].astype(np.uint16).view(np.float16) if d == 0 else cells[:, :64]
    exact = before[:, :64].astype(np.float64) / 2.0**power + a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=2**-10 if d == 0 else 1e-6, atol=1e-4)


@pytest.mark.parametrize(("text", "reason"), [
    ("tcgen05.mma.cta_group::1.kind::f8f6f4 [%r8], %rd10, %rd11, %r9, %p4, 3;", "for .kind::f16 and .kind::tf32 only"),
    ("tcgen05.mma.cta_group::1.kind::f16 [%r8], %rd10, %rd11, %r9, %p4, 16;", "0 to 15"),
    ("tcgen05.mma.ws.cta_group::2.kind::f16 [%r8], %rd10, %rd11, %r9, %p4;", "needs .cta_group::1"),
    ("tcgen05.mma.ws.sp.cta_group::1.kind::f16 [%r8], %rd10, %rd11, [%r8], %r9, %p4;", "sparse products"),
])  # fmt: skip
def test_forms_that_are_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        load(kernel(text, target="sm_100a"), ["k"])
