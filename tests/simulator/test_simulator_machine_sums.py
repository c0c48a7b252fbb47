"""Arithmetic in memory and conversions of copies, as an H200 does them (tests/oracles holds its golden vectors)."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run, tiled
from simulator_text import THREAD_ADDRESS, kernel
from test_simulator_machine_bulk import STORE, STORE_OP, load_box, store_box, tensor_kernel

from ptxbench.core import Fault, FaultKind, Schedule
from ptxbench.simulator import load

Array = np.ndarray
SMALL, NORMAL, NAN = 0x00012345, 0x00800001, 0x7FC00000
CANONICAL = 0x7FFFFFFF


def words(*values: int) -> Array:
    return np.array(values, np.uint32)


def atomic(instruction: str, memory: Array, values: Array) -> Array:
    """The words at ``%rd21``, in shared memory at ``%r5``, behind ``instruction``, which may read the words ``%r4``."""
    body = THREAD_ADDRESS + f"""
.shared .align 4 .b8 cells[128];
mul.wide.u32 %rd23, %r1, 4;
add.u64 %rd23, %rd2, %rd23;
ld.global.u32 %r4, [%rd23];
mov.u32 %r5, cells;
mad.lo.u32 %r5, %r1, 4, %r5;
ld.global.u32 %r6, [%rd21];
st.shared.u32 [%r5], %r6;
{instruction}
ld.shared.u32 %r6, [%r5];
st.global.u32 [%rd21+128], %r6;
ret;"""
    out = np.zeros(64, np.uint32)
    out[: len(memory)] = memory
    given = np.zeros(32, np.uint32)
    given[: len(values)] = values
    seen = run(load(kernel(body, pointers=2), ["k"]), Launch("k", ["out", "in_values"]), in_values=given, out=out)
    assert seen.fault is None
    return out.reshape(2, 32)[:, : len(memory)]


@pytest.mark.parametrize("instruction", [
    "mov.b32 %f1, %r4; red.global.add.f32 [%rd21], %f1;", "mov.b32 %f1, %r4; atom.global.add.f32 %f2, [%rd21], %f1;",
    "mov.b32 %f1, %r4; atom.add.f32 %f2, [%rd21], %f1;",
])  # fmt: skip
def test_sums_in_global_memory_flush_subnormals(instruction: str) -> None:
    memory = words(SMALL, 0, NORMAL, NORMAL | 1 << 31, SMALL | 1 << 31)
    found, _ = atomic(instruction, memory, words(0, SMALL, SMALL, NORMAL + 7, 0x80000000))
    assert found.tolist() == [0, 0, NORMAL, 0, 0x80000000]


def test_sums_in_shared_memory_do_not() -> None:
    memory = words(SMALL, 0, NORMAL, NORMAL | 1 << 31)
    instruction = "mov.b32 %f1, %r4; atom.shared.add.f32 %f2, [%r5], %f1;"
    _, found = atomic(instruction, memory, words(0, SMALL, SMALL, NORMAL + 7))
    assert found.tolist() == [SMALL, SMALL, NORMAL + SMALL, 7]


def test_a_sum_that_is_no_number_is_the_canonical_nan() -> None:
    memory = words(NAN, 0x3F800000, 0x7F800000)
    found, _ = atomic("mov.b32 %f1, %r4; red.global.add.f32 [%rd21], %f1;", memory, words(0, 0xFFC12345, 0xFF800000))
    assert found.tolist() == [CANONICAL] * 3


@pytest.mark.parametrize("op, zero", [("min", 0x8000), ("max", 0)])
def test_extremes_of_halves_order_zeros_and_leave_nan_out(op: str, zero: int) -> None:
    one, quiet, signalling = 0x3C00, 0x7E00, 0x7C01
    image, out = np.zeros((8, 64), np.float16), np.zeros((8, 64), np.float16)
    image.view(np.uint16)[0, :6] = [0x8000, 0, one, signalling, quiet, one]
    out.view(np.uint16)[0, :6] = [0, 0x8000, signalling, one, signalling, quiet]
    map_ = tiled("tensor", (64, 8), (64, 8), dtype="float16")
    reduce = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.bulk_group"
    store_box(reduce, map_, (0, 0), image, out, Schedule())
    assert out.view(np.uint16)[0, :6].tolist() == [zero, zero, one, one, 0x7FFF, one]


def bits(out: Array) -> list[int]:
    return out.view(np.uint32).reshape(-1)[:8].tolist()


@pytest.mark.parametrize("dtype, expected", [
    ("float32_ftz", [SMALL, 0x3F801000, 0x3F803000, 0x3F801001, NAN]),
    ("tfloat32", [0x00012000, 0x3F800000, 0x3F804000, 0x3F802000, 0x7FFFE000]),
    ("tfloat32_ftz", [0x00012000, 0x3F800000, 0x3F804000, 0x3F802000, 0x7FFFE000]),
])  # fmt: skip
def test_loads_round_to_tf32_and_flush_nothing(dtype: str, expected: list[int]) -> None:
    source = np.zeros((8, 32), np.float32)
    source.view(np.uint32)[0, :5] = [SMALL, 0x3F801000, 0x3F803000, 0x3F801001, NAN]
    map_ = tiled("in_tensor", (32, 8), (32, 8), dtype=dtype, size=4)
    assert bits(load_box(map_, (0, 0), source, 1024, Schedule()))[:5] == expected


@pytest.mark.parametrize("dtype, expected", [
    ("float32", [SMALL, 0x3F801000, CANONICAL]), ("tfloat32", [SMALL, 0x3F801000, CANONICAL]),
    ("float32_ftz", [0, 0x3F801000, CANONICAL]), ("tfloat32_ftz", [0, 0x3F801000, CANONICAL]),
])  # fmt: skip
def test_sums_through_maps_flush_what_their_type_says(dtype: str, expected: list[int]) -> None:
    image, out = np.zeros((8, 32), np.float32), np.zeros((8, 32), np.float32)
    image.view(np.uint32)[0, :3] = [SMALL, 0x3F801000, NAN]
    map_ = tiled("tensor", (32, 8), (32, 8), dtype=dtype, size=4)
    store_box("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group", map_, (0, 0), image, out, Schedule())
    assert bits(out)[:3] == expected
    stored = np.zeros((8, 32), np.float32)
    store_box(STORE_OP, map_, (0, 0), image, stored, Schedule())
    assert bits(stored)[:3] == [SMALL, 0x3F801000, NAN]


def fault_of(op: str, dtype: str, at: tuple[int, int]) -> Fault | None:
    size = 8 if "64" in dtype else 4
    map_ = tiled("tensor", (128 // size, 8), (128 // size, 8), dtype=dtype, size=size)
    text = tensor_kernel(STORE.format(size=1024, store=f"{op} [%rd1, {{{at[0]}, {at[1]}}}], [%r7];"))
    launch = Launch("k", [map_, "in_image"], shared=16 * 1024)
    return run(load(text, ["k"]), launch, in_image=np.zeros(256, np.float32), tensor=np.zeros(512, np.float32)).fault


@pytest.mark.parametrize("op, dtype, at, message", [
    ("store", "float32", (2, 0), "coordinate 2 along dimension 0 is 8 bytes into a row, which is no multiple of 16"),
    ("store", "float32", (-4, 0), "coordinate -4 along dimension 0: stores begin in the tensor or behind it"),
    ("add", "float32", (0, -1), "coordinate -1 along dimension 1: stores begin in the tensor or behind it"),
    ("add", "int64", (0, 0), "there is no such reduction of elements of the tensor map's type"),
    ("max", "float32", (0, 0), "there is no such reduction"), ("inc", "int32", (0, 0), "there is no such reduction"),
])  # fmt: skip
def test_stores_that_do_not_exist(op: str, dtype: str, at: tuple[int, int], message: str) -> None:
    reduce = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.bulk_group"
    fault = fault_of(STORE_OP if op == "store" else reduce, dtype, at)
    assert fault is not None
    assert fault.kind is FaultKind.ILLEGAL_INSTRUCTION
    assert message in fault.message


@pytest.mark.parametrize("op, dtype", [("min", "int64"), ("xor", "uint64"), ("dec", "uint32"), ("add", "float64")])
def test_stores_that_do(op: str, dtype: str) -> None:
    reduce = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.bulk_group"
    assert fault_of(reduce, dtype, (128 // (8 if "64" in dtype else 4), 0)) is None


ALONE = {
    "store": "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r7], %r1, [%r6];",
    "sum": "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r7], %r1, [%r6];",
    "copy": "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r7], [%r7+16], 16, [%r6];",
}
EXPLICIT = """
mov.pred %p3, %is_explicit_cluster;
selp.u32 %r9, 1, 0, %p3;
st.global.u32 [%rd1], %r9;
"""


@pytest.mark.parametrize("name", ALONE)
def test_copies_within_a_cluster_need_one(name: str) -> None:
    body = f""".shared .align 16 .b8 data[32]; .shared .align 8 .b64 bar;
mov.u32 %r1, %tid.x; mov.u32 %r6, bar; mov.u32 %r7, data; setp.ne.u32 %p1, %r1, 0; @%p1 ret; {EXPLICIT}
st.shared.v4.u32 [%r7], {{0, 0, 0, 0}}; st.shared.v4.u32 [%r7+16], {{0, 0, 0, 0}}; mbarrier.init.shared.b64 [%r6], 1;
mbarrier.arrive.expect_tx.shared.b64 _, [%r6], {16 if name == "copy" else 4}; fence.proxy.async.shared::cta;
{ALONE[name]}
W: mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0; @!%p2 bra W; ret;"""
    found: dict[str, tuple[Fault | None, int]] = {}
    one = ".explicitcluster .reqnctapercluster 1"
    for clusters, launch, directives in (
        ("none", Launch("k", ["out"]), ""), ("asked for", Launch("k", ["out"], explicit_cluster=True), ""),
        ("compiled in", Launch("k", ["out"]), one),
    ):  # fmt: skip
        out = np.full(1, 9, np.uint32)
        seen = run(load(kernel(body, directives=directives), ["k"]), launch, out=out)
        found[clusters] = seen.fault, int(out[0])
    fault, explicit = found.pop("none")
    assert fault is not None
    assert (fault.kind, explicit) == (FaultKind.ILLEGAL_INSTRUCTION, 0)
    assert "the launch has no clusters" in fault.message
    assert list(found.values()) == [(None, 1)] * 2
