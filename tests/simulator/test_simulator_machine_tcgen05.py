"""tcgen05 against NumPy: layouts, types, shapes of D, A in tensor memory, and every shape of tcgen05.ld and st."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_tensor import BASE, COLUMNS, FINISH, MODES, SETUP, copy_in, descriptor, move_rows, row_address
from simulator_text import kernel
from simulator_tiles import k_major, mn_major, random_matrix

from ptxbench.core import RunOptions, Schedule
from ptxbench.simulator import load

KINDS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4"}
CODES = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1}
DEPTH = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32}


def product(a, b, types, *, a_mode="128b", b_mode="128b", a_mn=False, b_mn=False, in_tensor_memory=False,
            negate=False, schedule=None):
    """The first N columns of tensor memory after D = a b^T + D, D initialised with ones."""
    (m, depth), n = a.shape, b.shape[0]
    a_image, a_leading, a_stride = (mn_major if a_mn else k_major)(a, a_mode)
    b_image, b_leading, b_stride = (mn_major if b_mn else k_major)(b, b_mode)
    b_base = BASE + -(-a_image.size // 1024) * 1024
    image = np.zeros(b_base - BASE + b_image.size, np.uint8)
    image[: a_image.size] = a_image
    image[b_base - BASE :] = b_image
    shape = (1 << 4 | CODES[types[0]] << 7 | CODES[types[1]] << 10 | int(negate) << 13 | int(a_mn) << 15
             | int(b_mn) << 16 | n // 8 << 17 | m // 16 << 24)  # fmt: skip
    left = "[%r12]" if in_tensor_memory else "%rd10"
    body = SETUP + copy_in(image.size) + move_rows(COLUMNS, "%rd2", store=True) + f"""
tcgen05.fence::before_thread_sync;
bar.sync 0;
mov.u64 %rd10, {descriptor(BASE, a_leading, a_stride, a_mode)};
mov.u64 %rd11, {descriptor(b_base, b_leading, b_stride, b_mode)};
mov.u32 %r11, {shape};
add.u32 %r12, %r8, 128;
setp.eq.u32 %p4, 0, 0;
tcgen05.fence::after_thread_sync;
@!%p2 tcgen05.mma.cta_group::1.kind::{KINDS[types[0]]} [%r8], {left}, %rd11, %r11, %p4;
@!%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];
WAIT:
mbarrier.try_wait.parity.shared.b64 %p5, [%r6], 0;
@!%p5 bra WAIT;
tcgen05.fence::after_thread_sync;
""" + move_rows(n, "%rd2", store=False) + FINISH
    cells = np.ones((128, COLUMNS), np.float32)
    if in_tensor_memory:
        words = np.ascontiguousarray(a).view(np.float32)
        cells[:, 128 : 128 + words.shape[1]] = words
    launch = Launch("k", ["in_image", "out"], block=(128, 1, 1), shared=64 * 1024)
    seen = run(load(kernel(body, pointers=2, target="sm_100a"), ["k"]), launch,
               RunOptions(schedule=schedule or Schedule()), in_image=image, out=cells)  # fmt: skip
    assert (seen.fault, seen.hazards) == (None, ())
    flops = sum(site.flops for site in seen.counts)
    assert flops == 2 * m * n * depth
    return cells[:, :n]


def check(a_type, b_type, m, n, **options):
    a, b = random_matrix(a_type, m, DEPTH[a_type], 1), random_matrix(b_type, n, DEPTH[b_type], 2)
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    expected = 1 + (-expected if options.get("negate") else expected)
    cells = product(a, b, (a_type, b_type), **options)
    if m == 64:  # 16 rows in the lower half of each warp's lanes
        untouched = np.arange(128) % 32 >= 16
        assert (cells[untouched] == 1).all()
        cells = cells[~untouched]
    np.testing.assert_allclose(cells, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("m, n", [(128, 16), (128, 112), (128, 256), (64, 8), (64, 72), (64, 256)])
def test_shapes(m, n):
    check("bf16", "bf16", m, n)


@pytest.mark.parametrize("a_mode, b_mode", list(itertools.product(MODES, MODES)))
def test_k_major_layouts(a_mode, b_mode):
    check("bf16", "bf16", 128, 64, a_mode=a_mode, b_mode=b_mode)


@pytest.mark.parametrize("mode", MODES)
def test_mn_major_layouts(mode):
    check("bf16", "bf16", 128, 128, a_mode=mode, b_mode=mode, a_mn=True, b_mn=True)


@pytest.mark.parametrize("types", ["f16 f16", "tf32 tf32", "e4m3 e4m3", "e5m2 e4m3"])
def test_operand_types(types):
    check(*types.split(), 128, 32)


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(products="late")], ids=["eager", "late"])
@pytest.mark.parametrize("dtype", ["bf16", "tf32"])
def test_a_in_tensor_memory(dtype, schedule):
    check(dtype, dtype, 128, 64, in_tensor_memory=True, schedule=schedule)


def test_negated_a():
    check("bf16", "bf16", 128, 16, negate=True)


# (row, column) that register i of a lane holds, from the data movement figures of the PTX ISA.
FRAGMENTS = {
    "32x32b": (1, lambda lane, i: (lane, i)),
    "16x64b": (1, lambda lane, i: (lane // 4 + 8 * (lane // 2 % 2), 2 * i + lane % 2)),
    "16x128b": (2, lambda lane, i: (lane // 4 + 8 * (i % 2), 4 * (i // 2) + lane % 4)),
    "16x256b": (4, lambda lane, i: (lane // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (lane % 4) + i % 2)),
    "16x32bx2": (1, lambda lane, i: (lane % 16, i + 64 * (lane // 16))),
}


def run_cells(body: str, cells: np.ndarray, out: np.ndarray) -> None:
    launch = Launch("k", ["in_cells", "out"], block=(128, 1, 1))
    seen = run(load(kernel(body, pointers=2, target="sm_100a"), ["k"]), launch, in_cells=cells, out=out)
    assert (seen.fault, seen.hazards) == (None, ())


HALVES = [(shape, half) for shape in FRAGMENTS for half in (0, 16) if (shape, half) != ("32x32b", 16)]


@pytest.mark.parametrize("shape, half", HALVES)
@pytest.mark.parametrize("repeat", [1, 4])
def test_fragments_of_loads(shape, half, repeat):
    per_repeat, place = FRAGMENTS[shape]
    count = per_repeat * repeat
    registers = [f"%r{30 + i}" for i in range(count)]
    extra = ", 64" if shape == "16x32bx2" else ""
    body = SETUP + move_rows(COLUMNS, "%rd1", store=True) + f"""
tcgen05.ld.sync.aligned.{shape}.x{repeat}.b32 {{{", ".join(registers)}}}, [%r9+{half << 16}]{extra};
tcgen05.wait::ld.sync.aligned;
""" + row_address("%rd2") + "\n".join(f"st.global.u32 [%rd21+{4 * i}], {r};" for i, r in enumerate(registers)) + FINISH
    cells = np.arange(128 * COLUMNS, dtype=np.uint32).reshape(128, COLUMNS)
    out = np.zeros_like(cells)
    run_cells(body, cells, out)
    for thread in range(128):
        for i in range(count):
            row, column = place(thread % 32, i)
            assert out[thread, i] == cells[thread // 32 * 32 + half + row, column]


def test_stores_are_the_inverse_of_loads():
    body = SETUP + row_address("%rd1") + """
ld.global.v4.u32 {%r30, %r31, %r32, %r33}, [%rd21];
tcgen05.st.sync.aligned.16x256b.x1.b32 [%r9], {%r30, %r31, %r32, %r33};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r40, %r41, %r42, %r43}, [%r9];
tcgen05.wait::ld.sync.aligned;
""" + row_address("%rd2") + "st.global.v4.u32 [%rd21], {%r40, %r41, %r42, %r43};" + FINISH
    cells = np.arange(128 * COLUMNS, dtype=np.uint32).reshape(128, COLUMNS)
    out = np.zeros_like(cells)
    run_cells(body, cells, out)
    assert np.array_equal(out[:, :4], cells[:, :4])


@pytest.mark.parametrize("products", ["eager", "late"])
def test_a_register_used_before_its_wait_has_its_value_all_the_same(products):
    body = SETUP + move_rows(COLUMNS, "%rd1", store=True) + row_address("%rd2") + """
tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r40, %r41}, [%r9];
add.u32 %r42, %r40, %r41;
tcgen05.wait::ld.sync.aligned;
st.global.u32 [%rd21], %r42;""" + FINISH
    cells = np.arange(128 * COLUMNS, dtype=np.uint32).reshape(128, COLUMNS)
    out = np.zeros_like(cells)
    launch = Launch("k", ["in_cells", "out"], block=(128, 1, 1))
    options = RunOptions(schedule=Schedule(products=products))
    seen = run(load(kernel(body, pointers=2, target="sm_100a"), ["k"]), launch, options, in_cells=cells, out=out)
    assert [(hazard.severity, hazard.kind) for hazard in seen.hazards] == [("rule", "unwaited_tensor_load")]
    assert np.array_equal(out[:, 0], cells[:, 0] + cells[:, 1])


def test_packed_moves_put_two_columns_into_a_register():
    body = SETUP + move_rows(16, "%rd1", store=True) + """
tcgen05.ld.sync.aligned.32x32b.x2.pack::16b.b32 {%r40, %r41}, [%r9];
tcgen05.wait::ld.sync.aligned;
""" + row_address("%rd2") + "st.global.v2.u32 [%rd21], {%r40, %r41};" + FINISH
    cells = np.arange(128 * COLUMNS, dtype=np.uint32).reshape(128, COLUMNS)
    out = np.zeros_like(cells)
    run_cells(body, cells, out)
    low = cells & 0xFFFF
    assert np.array_equal(out[:, 0], low[:, 0] | low[:, 1] << 16)
    assert np.array_equal(out[:, 1], low[:, 2] | low[:, 3] << 16)


ALLOCATIONS = {
    "count": ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7], 48;", "power of two"),
    "after relinquishing": (
        "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7], 32;",
        "given up its permit",
    ),
    "foreign columns": ("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32;", "are not one allocation"),
    "no columns left": (
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7], 512;",
        "waits for 512 free columns of tensor memory",
    ),
}


@pytest.mark.parametrize("name", ALLOCATIONS)
def test_allocation_rules(name):
    text, message = ALLOCATIONS[name]
    program = load(kernel(SETUP + text + FINISH, target="sm_100a"), ["k"])
    seen = run(program, Launch("k", ["out"]), out=np.zeros(4, np.uint32))
    assert seen.fault is not None
    assert message in seen.fault.message + " ".join(seen.fault.detail)


def test_stores_handed_over_without_a_wait():
    body = SETUP + """
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r9], {%r1};
tcgen05.fence::before_thread_sync;""" + FINISH
    program = load(kernel(body, target="sm_100a"), ["k"])
    seen = run(program, Launch("k", ["out"], block=(128, 1, 1)), out=np.zeros(4, np.uint32))
    assert [(hazard.kind, hazard.severity, hazard.occurrences) for hazard in seen.hazards] == [
        ("unwaited_tensor_store", "rule", 4)
    ]
