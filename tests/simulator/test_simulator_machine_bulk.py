"""Bulk and tensor (TMA) copies against NumPy: ranks, swizzles, edges, reductions, delivery to other CTAs."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run, tiled
from simulator_text import kernel
from simulator_tiles import SPAN, swizzle

from ptxbench.core import FaultKind, RunOptions, Schedule, TensorMap, UnsupportedError
from ptxbench.simulator import load

LOAD = "cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes"
STORE_OP = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group"
SCHEDULES = [Schedule(), Schedule(copies="late")]
in_both_schedules = pytest.mark.parametrize("schedule", SCHEDULES, ids=["eager", "late"])

BARRIER = """
.shared .align 8 .b64 bar;
mov.u32 %r1, %tid.x;
mov.u32 %r6, bar;
mov.u32 %r7, 2048;
setp.ne.u32 %p2, %r1, 0;
@%p2 bra READY;
mbarrier.init.shared.b64 [%r6], 1;
fence.mbarrier_init.release.cluster;
{issue}
READY:
bar.sync 0;
{between}
"""
WAIT = """
WAIT:
mbarrier.try_wait.parity.shared.b64 %p5, [%r6], 0;
@!%p5 bra WAIT;
"""


def copy_out(size: int, pointer: str) -> str:
    """Shared bytes from 2048 on, as they lie, to global memory, by 32 threads."""
    return f"""
shl.b32 %r3, %r1, 2;
COPY:
add.u32 %r5, %r3, 2048;
ld.shared.u32 %r4, [%r5];
cvt.u64.u32 %rd23, %r3;
add.u64 %rd23, {pointer}, %rd23;
st.global.u32 [%rd23], %r4;
add.u32 %r3, %r3, 128;
setp.lt.u32 %p1, %r3, {size};
@%p1 bra COPY;
ret;"""


def tensor_kernel(body: str) -> str:
    """A kernel with a tensor map and a pointer: %rd1 is the map's address, %rd2 the pointer."""
    text = kernel(body, pointers=2)
    text = text.replace(".param .u64 p1", ".param .align 64 .b8 p1[128]")
    return text.replace("ld.param.u64 %rd1, [p1];", "mov.b64 %rd1, p1;\ncvta.param.u64 %rd1, %rd1;")


def load_box(map_: TensorMap, at: tuple[int, ...], source: np.ndarray, size: int, schedule: Schedule) -> np.ndarray:
    rank = len(at)
    coordinates = ", ".join(map(str, at))
    issue = f"""
mbarrier.arrive.expect_tx.shared.b64 _, [%r6], {size};
{LOAD.format(rank=rank)} [%r7], [%rd1, {{{coordinates}}}], [%r6];"""
    body = BARRIER.format(issue=issue, between="") + WAIT + copy_out(size, "%rd2")
    out = np.zeros(size, np.uint8)
    launch = Launch("k", [map_, "out"], shared=16 * 1024)
    seen = run(load(tensor_kernel(body), ["k"]), launch, RunOptions(schedule=schedule), in_tensor=source, out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    assert sum(site.bytes for site in seen.counts) == size
    return out


def box_of(source: np.ndarray, at: tuple[int, ...], box: tuple[int, ...], fill: float = 0) -> np.ndarray:
    """The box at coordinates (innermost first), with ``fill`` outside the tensor; row-major, innermost last."""
    out = np.full(box[::-1], fill, source.dtype)
    for index in np.ndindex(*box[::-1]):
        place = tuple(i + a for i, a in zip(index, at[::-1], strict=True))
        if all(0 <= p < extent for p, extent in zip(place, source.shape, strict=True)):
            out[index] = source[place]
    return out


@in_both_schedules
@pytest.mark.parametrize("dims, box, at", [
    ((200,), (64,), (8,)), ((40, 20), (16, 8), (16, 4)), ((16, 12, 10), (8, 4, 3), (8, 4, 5)),
    ((16, 6, 5, 4), (8, 3, 2, 2), (8, 2, 1, 1)), ((16, 5, 4, 3, 3), (8, 2, 2, 2, 2), (0, 1, 2, 0, 1)),
])  # fmt: skip
def test_boxes_of_every_rank(dims, box, at, schedule):
    source = np.random.default_rng(1).integers(0, 1 << 16, dims[::-1], np.uint16)
    map_ = tiled("in_tensor", dims, box, dtype="uint16")
    expected = box_of(source, at, box)
    assert np.array_equal(load_box(map_, at, source, expected.nbytes, schedule).view(np.uint16), expected.reshape(-1))


@pytest.mark.parametrize("at", [(-4, 0), (56, 0), (0, -3), (0, 28), (-60, -30), (64, 0), (1000, 1000), (60, 30)])
@pytest.mark.parametrize("oob_fill", ["none", "nan_request_zero_fma"])
def test_elements_outside_the_tensor(at, oob_fill):
    source = np.random.default_rng(2).standard_normal((32, 64)).astype(np.float32)
    map_ = tiled("in_tensor", (64, 32), (16, 8), dtype="float32", size=4, oob_fill=oob_fill)
    expected = box_of(source, at, (16, 8), 0 if oob_fill == "none" else np.nan)
    got = load_box(map_, at, source, expected.nbytes, Schedule()).view(np.float32)
    np.testing.assert_array_equal(got, expected.reshape(-1))


@in_both_schedules
def test_steps_between_elements(schedule):
    # A box of 10 by 7 with steps 3 and 2 along the outer dimensions holds every third of 10 and every second of 7.
    source = np.random.default_rng(1).integers(0, 1 << 16, (12, 20, 16), np.uint16)
    map_ = tiled("in_tensor", (16, 20, 12), (8, 10, 7), dtype="uint16").model_copy(
        update={"element_strides": (1, 3, 2)}
    )
    expected = box_of(source, (8, 12, 3), (8, 10, 7))[::2, ::3]
    got = load_box(map_, (8, 12, 3), source, expected.nbytes, schedule).view(np.uint16)
    assert np.array_equal(got, expected.reshape(-1))


def test_steps_between_elements_of_a_row_are_refused():
    map_ = tiled("in_tensor", (64, 8), (16, 8), dtype="uint16").model_copy(update={"element_strides": (2, 1)})
    with pytest.raises(UnsupportedError, match=r"element strides \(2, 1\)"):
        load_box(map_, (0, 0), np.zeros((8, 64), np.uint16), 256, Schedule())


@pytest.mark.parametrize("mode", ["32b", "64b", "128b"])
def test_swizzles(mode):
    width = SPAN[mode] // 2
    source = np.arange(32 * 64, dtype=np.uint16).reshape(32, 64)
    map_ = tiled("in_tensor", (64, 32), (width, 16), dtype="uint16", swizzle=mode)
    plain = box_of(source, (0, 8), (width, 16)).view(np.uint8).reshape(-1)
    got = load_box(map_, (0, 8), source, plain.size, Schedule())
    assert np.array_equal(got, swizzle(plain, SPAN[mode]))


STORE = """
mov.u32 %r1, %tid.x;
shl.b32 %r3, %r1, 2;
FILL:
cvt.u64.u32 %rd23, %r3;
add.u64 %rd23, %rd2, %rd23;
ld.global.u32 %r4, [%rd23];
add.u32 %r5, %r3, 2048;
st.shared.u32 [%r5], %r4;
add.u32 %r3, %r3, 128;
setp.lt.u32 %p1, %r3, {size};
@%p1 bra FILL;
fence.proxy.async.shared::cta;
bar.sync 0;
setp.ne.u32 %p2, %r1, 0;
@%p2 ret;
mov.u32 %r7, 2048;
{store}
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
ret;"""


def store_box(op: str, map_: TensorMap, at: tuple[int, int], image: np.ndarray, out: np.ndarray, schedule: Schedule):
    store = f"{op} [%rd1, {{{at[0]}, {at[1]}}}], [%r7];"
    text = tensor_kernel(STORE.format(size=image.nbytes, store=store))
    launch = Launch("k", [map_, "in_image"], shared=16 * 1024)
    seen = run(load(text, ["k"]), launch, RunOptions(schedule=schedule), in_image=image, tensor=out)
    assert (seen.fault, seen.hazards) == (None, ())


@in_both_schedules
@pytest.mark.parametrize("at", [(8, 4), (60, 30), (64, 0), (1000, 0)])
def test_stores_leave_out_what_is_outside(at, schedule):
    image = np.random.default_rng(3).standard_normal((8, 32)).astype(np.float32)
    out = np.zeros((32, 64), np.float32)
    store_box(STORE_OP, tiled("tensor", (64, 32), (32, 8), dtype="float32", size=4), at, image, out, schedule)
    expected = np.zeros_like(out)
    for (row, column), value in np.ndenumerate(image):
        if 0 <= row + at[1] < 32 and 0 <= column + at[0] < 64:
            expected[row + at[1], column + at[0]] = value
    assert np.array_equal(out, expected)


@in_both_schedules
def test_reducing_stores(schedule):
    image = np.random.default_rng(4).standard_normal((8, 32)).astype(np.float32)
    out = np.ones((8, 32), np.float32)
    op = "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group"
    store_box(op, tiled("tensor", (32, 8), (32, 8), dtype="float32", size=4), (0, 0), image, out, schedule)
    assert np.array_equal(out, image + 1)


@in_both_schedules
def test_bulk_loads_and_stores(schedule):
    issue = """
mbarrier.arrive.expect_tx.shared.b64 _, [%r6], 512;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r7], [%rd1], 512, [%r6];"""
    body = BARRIER.format(issue=issue, between="") + WAIT + """
@%p2 ret;
cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r7], 512;
cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2+512], [%r7], 512;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
ret;"""
    values, out = np.arange(128, dtype=np.uint32), np.full(256, 7, np.uint32)
    launch = Launch("k", ["in_values", "out"], shared=4096)
    options = RunOptions(schedule=schedule)
    seen = run(load(kernel(body, pointers=2), ["k"]), launch, options, in_values=values, out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    assert np.array_equal(out[:128], values)
    assert np.array_equal(out[128:], values + 7)


CLUSTER = """
.shared .align 8 .b64 bar;
mov.u32 %r1, %tid.x;
mov.u32 %r2, %cluster_ctarank;
mov.u32 %r6, bar;
mov.u32 %r8, %cluster_nctarank;
mov.u64 %rd30, bar;
shl.b32 %r9, %r2, 24;
add.u32 %r7, %r9, 2048;
setp.eq.u32 %p2, %r1, 0;
@%p2 mbarrier.init.shared.b64 [%r6], 1;
@%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r6], {bytes};
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
{issue}
WAIT:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p5, [%r6], 0;
@!%p5 bra WAIT;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mov.u32 %r10, %ctaid.x;
mul.wide.u32 %rd20, %r10, {bytes};
add.u64 %rd22, %rd2, %rd20;
shl.b32 %r3, %r1, 2;
COPY:
add.u32 %r5, %r3, %r7;
ld.shared.u32 %r4, [%r5];
cvt.u64.u32 %rd23, %r3;
add.u64 %rd23, %rd22, %rd23;
st.global.u32 [%rd23], %r4;
add.u32 %r3, %r3, 128;
setp.lt.u32 %p1, %r3, {bytes};
@%p1 bra COPY;
ret;"""
# Each rank delivers 128 bytes of its own to every rank, or to the next one.
DELIVERIES = {
    "multicast": (4 * 128, """
mul.wide.u32 %rd20, %r2, 128;
add.u64 %rd21, %rd1, %rd20;
mad.lo.u32 %r11, %r2, 128, %r7;
mov.b16 %h1, 15;
@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
 [%r11], [%rd21], 128, [%r6], %h1;"""),
    "shared to shared": (128, """
shl.b32 %r3, %r1, 2;
add.u32 %r12, %r7, 1024;
add.u32 %r13, %r12, %r3;
mul.wide.u32 %rd20, %r2, 128;
add.u64 %rd21, %rd1, %rd20;
cvt.u64.u32 %rd23, %r3;
add.u64 %rd21, %rd21, %rd23;
ld.global.u32 %r4, [%rd21];
st.shared.u32 [%r13], %r4;
fence.proxy.async.shared::cta;
bar.warp.sync 0xffffffff;
add.u32 %r14, %r2, 1;
and.b32 %r14, %r14, 3;
mapa.shared::cluster.u32 %r15, %r7, %r14;
mapa.shared::cluster.u32 %r16, %r6, %r14;
@%p2 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r15], [%r12], 128, [%r16];"""),
    "st.async": (128, """
shl.b32 %r3, %r1, 2;
mul.wide.u32 %rd20, %r2, 128;
add.u64 %rd21, %rd1, %rd20;
cvt.u64.u32 %rd23, %r3;
add.u64 %rd21, %rd21, %rd23;
ld.global.u32 %r4, [%rd21];
add.u32 %r14, %r2, 1;
and.b32 %r14, %r14, 3;
add.u32 %r13, %r7, %r3;
mapa.shared::cluster.u32 %r15, %r13, %r14;
mapa.shared::cluster.u32 %r16, %r6, %r14;
st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r15], %r4, [%r16];"""),
}  # fmt: skip


@in_both_schedules
@pytest.mark.parametrize("name", DELIVERIES)
def test_deliveries_within_a_cluster(name, schedule):
    size, issue = DELIVERIES[name]
    values = np.arange(4 * 32, dtype=np.uint32).reshape(4, 32)
    out = np.zeros((4, size // 4), np.uint32)
    text = kernel(CLUSTER.format(bytes=size, issue=issue), pointers=2)
    launch = Launch("k", ["in_values", "out"], grid=(4, 1, 1), cluster=(4, 1, 1), shared=8192)
    seen = run(load(text, ["k"]), launch, RunOptions(schedule=schedule), in_values=values, out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    if name == "multicast":
        assert all(np.array_equal(row, values.reshape(-1)) for row in out)
    else:
        assert np.array_equal(out, np.roll(values, 1, axis=0))


FAULTS = {
    "misaligned destination": ("add.u32 %r7, %r7, 16;", 2, "{0, 0}", FaultKind.MISALIGNED_ADDRESS, "multiple of 128"),
    "rank": ("", 3, "{0, 0, 0}", FaultKind.ILLEGAL_INSTRUCTION, "2 dimensions, the instruction 3"),
    "beyond shared memory": ("add.u32 %r7, %r7, 65536;", 2, "{0, 0}", FaultKind.ILLEGAL_ADDRESS, "shared address"),
    "no multiple of 16 bytes": (
        "", 2, "{4, 0}", FaultKind.ILLEGAL_INSTRUCTION, "coordinate 4 along dimension 0 is 8 bytes into a row"
    ),
    "no map": ("mov.u64 %rd1, %rd2;", 2, "{0, 0}", FaultKind.ILLEGAL_INSTRUCTION, "holds no tensor map"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_impossible_tensor_copies(name):
    change, rank, at, kind, message = FAULTS[name]
    copy = f"{LOAD.format(rank=rank)} [%r7], [%rd1, {at}], [%r6];"
    body = BARRIER.format(issue=f"{change}\n{copy}", between="") + "ret;"
    source = np.zeros((32, 64), np.uint16)
    map_ = tiled("in_tensor", (64, 32), (64, 8), dtype="uint16")
    launch = Launch("k", [map_, "out"], shared=8192)
    seen = run(load(tensor_kernel(body), ["k"]), launch, in_tensor=source, out=np.zeros(16))
    assert seen.fault is not None
    assert seen.fault.kind is kind
    assert message in seen.fault.message


def test_a_store_through_a_map_of_an_input_is_stray():
    image = np.zeros((8, 32), np.float32)
    text = tensor_kernel(STORE.format(size=1024, store=f"{STORE_OP} [%rd1, {{0, 0}}], [%r7];"))
    launch = Launch("k", [tiled("in_tensor", (32, 8), (32, 8), dtype="float32", size=4), "in_image"], shared=16 * 1024)
    seen = run(load(text, ["k"]), launch, in_image=image, in_tensor=image.copy())
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.STRAY_WRITE


FORGED = """
mov.u64 %rd9, 0;
st.global.u32 [%rd2], 1346456916;
st.global.u32 [%rd2+4], {shape};
st.global.u64 [%rd2+16], %rd2;
{fields}
mov.u64 %rd1, %rd2;"""


@pytest.mark.parametrize("shape, fields", [
    (0x00_00_04_06, ""), (0x00_00_03_02, ""), (0x00_09_04_02, ""), (0x00_00_04_02, ""),
    (0x00_00_08_05, "\n".join(f"st.global.u16 [%rd2+{96 + 2 * d}], 256;" for d in range(5))),
    (0x00_00_01_01, "st.global.u8 [%rd2+9], 1;\nst.global.u8 [%rd2+15], 1;\n"
                    "st.global.u64 [%rd2+24], 64;\nst.global.u16 [%rd2+96], 9;"),
], ids=["rank", "element size", "swizzle", "empty box", "huge box", "rounded bytes"])  # fmt: skip
def test_forged_tensor_maps_do_no_harm(shape, fields):
    # A program can write what it likes where a map is expected; the machine checks every field.
    rank = min(shape & 0xFF, 5)
    at = "{" + ", ".join(["0"] * rank) + "}"
    forge = FORGED.format(shape=shape, fields=fields)
    copy = f"{LOAD.format(rank=rank)} [%r7], [%rd1, {at}], [%r6];"
    text = kernel(BARRIER.format(issue=f"{forge}\n{copy}", between="") + "ret;", pointers=2)
    launch = Launch("k", ["in_values", "out"], shared=8192)
    seen = run(load(text, ["k"]), launch, in_values=np.zeros(32), out=np.zeros(64))
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.ILLEGAL_INSTRUCTION
