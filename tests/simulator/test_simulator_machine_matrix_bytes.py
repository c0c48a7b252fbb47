"""ldmatrix and stmatrix of elements of 8 bits and less, and bulk copies of chosen bytes."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, load, run
from simulator_text import kernel

from ptxbench.core import Observation, RunOptions, Schedule, UnsupportedError

Array = np.ndarray
_BITS = {"b8": 8, "b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}
_FILL = """
.shared .align 128 .b8 tile[{bytes}];
mov.u32 %r1, %tid.x; mov.u32 %r2, tile;
mul.wide.u32 %rd20, %r1, 16; add.u64 %rd21, %rd1, %rd20; add.u64 %rd22, %rd2, %rd20;
mad.lo.u32 %r3, %r1, 16, %r2;
"""


def rows_of(values: Array, bits: int) -> Array:
    """[rows, 16] elements packed into rows of 16 bytes, with 0xAA behind them."""
    image = np.full((len(values), 16), 0xAA, np.uint8)
    ordered = (values[:, :, None] >> np.arange(bits)) & 1
    image[:, : 2 * bits] = np.packbits(ordered.reshape(len(values), -1).astype(np.uint8), axis=1, bitorder="little")
    return image


@pytest.mark.parametrize(("shape", "count", "kind"), [
    *(("m16n16", count, kind) for count in (1, 2) for kind in _BITS),
    *(("m8n16", count, kind) for count in (1, 2, 4) for kind in list(_BITS)[1:]),
])  # fmt: skip
def test_matrices_are_loaded(shape: str, count: int, kind: str) -> None:
    rows = 16 if shape == "m16n16" else 8
    values = np.random.default_rng(count).integers(0, 1 << _BITS[kind], (count, rows, 16))
    image = np.zeros((32, 16), np.uint8)
    image[: count * rows] = rows_of(values.reshape(-1, 16), _BITS[kind])
    registers = count * rows // 8
    names = "{" + ", ".join(f"%r{10 + i}" for i in range(registers)) + "}"
    stores = "\n".join(f"st.global.b32 [%rd22+{4 * i}], %r{10 + i};" for i in range(registers))
    trans = ".trans" if rows == 16 else ""
    body = _FILL.format(bytes=512) + f"""
ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd21];
st.shared.v4.b32 [%r3], {{%r4, %r5, %r6, %r7}};
bar.sync 0;
ldmatrix.sync.aligned.{shape}.x{count}{trans}.shared.{kind} {names}, [%r3];
{stores}
ret;"""
    out = np.zeros((32, 16), np.uint8)
    text = kernel(body, pointers=2, target="sm_100a")
    seen = run(load(text, ["k"]), Launch("k", ["in_rows", "out"]), in_rows=image, out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    for lane in range(32):
        for register in range(registers):
            got = list(out[lane, 4 * register : 4 * register + 4])
            if rows == 8:
                expected = values[register, lane // 4, lane % 4 * 4 : lane % 4 * 4 + 4]
            else:  # transposed: rows of the matrix along the register
                expected = values[register // 2, lane % 4 * 4 : lane % 4 * 4 + 4, lane // 4 + register % 2 * 8]
            assert got == list(expected)


def test_padding_may_be_uninitialised() -> None:
    body = _FILL.format(bytes=512) + """
mov.b64 %rd4, 7; st.shared.b64 [%r3], %rd4;
bar.sync 0;
ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64 {%r10, %r11, %r12, %r13}, [%r3];
KIND
st.global.b32 [%rd22], %r10;
ret;"""
    out = np.zeros((32, 16), np.uint8)
    wider = "ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b6x16_p32 {%r10, %r11, %r12, %r13}, [%r3];"
    for extra, hazards in (("", 0), (wider, 1)):
        text = kernel(body.replace("KIND", extra), pointers=2, target="sm_100a")
        seen = run(load(text, ["k"]), Launch("k", ["in_rows", "out"]), in_rows=out.copy(), out=out)
        assert seen.fault is None
        assert len(seen.hazards) == hazards


@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_are_stored(count: int) -> None:
    values = np.random.default_rng(count).integers(0, 256, (32, 16), np.uint8)
    names = "{" + ", ".join(f"%r{4 + i}" for i in range(count)) + "}"
    body = _FILL.format(bytes=512) + f"""
ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd21];
mov.b64 %rd4, 0; st.shared.v2.b64 [%r3], {{%rd4, %rd4}};
bar.sync 0;
stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%r3], {names};
bar.sync 0;
ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r3];
st.global.v4.b32 [%rd22], {{%r4, %r5, %r6, %r7}};
ret;"""
    out = np.zeros((32, 16), np.uint8)
    text = kernel(body, pointers=2, target="sm_100a")
    seen = run(load(text, ["k"]), Launch("k", ["in_values", "out"]), in_values=values, out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    expected = np.zeros((32, 16), np.uint8)
    for matrix in range(count):
        for column in range(8):
            for row in range(16):
                lane, byte = row % 8 * 4 + column // 2, row // 8 * 2 + column % 2
                expected[8 * matrix + column, row] = values[lane, 4 * matrix + byte]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("text", "reason"), [
    ("ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8 {%r1}, [%r2];", "needs one of .x1, .x2"),
    ("ldmatrix.sync.aligned.m16n16.x1.shared.b8 {%r1, %r2}, [%r2];", "modifier .trans is missing"),
    ("ldmatrix.sync.aligned.m8n16.x1.shared.b8 {%r1}, [%r2];", "modifier .b8x16 is missing"),
    ("stmatrix.sync.aligned.m16n8.x1.shared.b8 [%r2], {%r1};", "modifier .trans is missing"),
])  # fmt: skip
def test_what_does_not_exist_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        load(kernel(text, target="sm_100a"), ["k"])


def copy_bytes(mask: int, size: int, schedule: Schedule) -> tuple[Array, Observation]:
    body = _FILL.format(bytes=512) + f"""
ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd21];
st.shared.v4.b32 [%r3], {{%r4, %r5, %r6, %r7}};
fence.proxy.async;
bar.sync 0;
setp.eq.u32 %p1, %r1, 0;
mov.u32 %r8, {size};
mov.u16 %h1, {mask};
@%p1 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd2], [%r2], %r8, %h1;
@%p1 cp.async.bulk.commit_group;
@%p1 cp.async.bulk.wait_group 0;
ret;"""
    out = np.full(512, 0x55, np.uint8)
    text = kernel(body, pointers=2, target="sm_100a")
    given = np.arange(512).astype(np.uint8)
    options = RunOptions(schedule=schedule)
    return out, run(load(text, ["k"]), Launch("k", ["in_bytes", "out"]), options, in_bytes=given, out=out)


@pytest.mark.parametrize("mask", [0, 1, 0x8001, 0x0FF0, 0xFFFF])
@pytest.mark.parametrize("schedule", [Schedule(), Schedule(copies="late")], ids=["eager", "late"])
def test_chosen_bytes_of_every_sixteen_are_copied(mask: int, schedule: Schedule) -> None:
    out, seen = copy_bytes(mask, 256, schedule)
    assert (seen.fault, seen.hazards) == (None, ())
    expected = np.full(512, 0x55, np.uint8)
    for at in range(256):
        if mask >> at % 16 & 1:
            expected[at] = at & 255
    np.testing.assert_array_equal(out, expected)
    assert sum(site.bytes for site in seen.counts) == 16 * mask.bit_count()


def test_bytes_that_are_not_chosen_have_to_exist() -> None:
    _, seen = copy_bytes(0, 1024, Schedule())
    assert seen.fault is not None
