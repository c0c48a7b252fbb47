"""Swizzled boxes whose rows are narrower than the swizzle's span: one row a span, with gaps that stay as they are.

An H200 lays them out so (`tests/oracles`, the probe ``tensor_tiles``).
"""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, run, tiled
from simulator_tiles import SPAN, rows_of_bytes, swizzle

from ptxbench.core import FaultKind, Observation, RunOptions, Schedule, TensorMap
from ptxbench.simulator import load

Array = np.ndarray
ROWS, TILE, MARK = 16, 2048, 0xABCD
SHAPES = [
    (mode, width) for mode in ("32b", "64b", "128b") for width in (16, 32, 48, 64, 80, 112) if width < SPAN[mode]
]  # fmt: skip
each_shape = pytest.mark.parametrize(("mode", "width"), SHAPES)
in_both_schedules = pytest.mark.parametrize("copies", ["eager", "late"])

KERNEL = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 p)
{{
.reg .pred done, lead, %p<4>; .reg .b16 %h<4>; .reg .b32 thread, at, tile, object, %r<8>; .reg .b64 map_at, out, %rd<4>;
.shared .align 1024 .b8 window[{window}];
.shared .align 8 .b64 barrier;
mov.b64 map_at, map; cvta.param.u64 map_at, map_at; ld.param.u64 out, [p];
mov.u32 thread, %tid.x; mov.u32 tile, window; mov.u32 object, barrier;
setp.eq.u32 lead, thread, 0;
mad.lo.u32 at, thread, 16, tile; mad.wide.u32 out, thread, 16, out;
@lead mbarrier.init.shared.b64 [object], 1;
{body}
ret;
}}
"""
PREPARE = f"""
mov.u32 %r1, {MARK | MARK << 16}; st.shared.v4.b32 [at], {{%r1, %r1, %r1, %r1}};
fence.proxy.async; bar.sync 0;
"""
LOAD = """
@lead mbarrier.arrive.expect_tx.shared.b64 _, [object], {bytes};
@lead cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [tile], [map_at, {{8, 3}}], [object];
{meanwhile}
WAIT: mbarrier.try_wait.parity.shared.b64 done, [object], 0;
@!done bra WAIT;
{then}
"""
READ = "ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [at]; st.global.v4.b32 [out], {%r1, %r2, %r3, %r4};"
STORE = """
ld.global.v4.b32 {{%r1, %r2, %r3, %r4}}, [out]; st.shared.v4.b32 [at], {{%r1, %r2, %r3, %r4}};
fence.proxy.async; bar.sync 0;
@lead {opcode} [map_at, {{8, 3}}], [tile];
@lead cp.async.bulk.commit_group;
@lead cp.async.bulk.wait_group 0;
"""


def box(mode: str, width: int, buffer: str) -> TensorMap:
    return tiled(buffer, (80, 32), (width // 2, ROWS), dtype="float16", swizzle=mode)


def elements() -> Array:
    return (np.arange(80 * 32) % 2039 + 1).astype(np.float16).reshape(32, 80)


def image_of(rows: Array, mode: str, gaps: int) -> Array:
    """The window's 16-bit words: [rows, elements] with ``gaps`` behind each row."""
    image = np.full(TILE // 2, gaps, np.uint16).view(np.uint8)
    spans = image[: len(rows) * SPAN[mode]].reshape(len(rows), -1)
    spans[:, : 2 * rows.shape[1]] = rows_of_bytes(rows)
    return swizzle(image, SPAN[mode]).view(np.uint16)


def load_box(mode: str, width: int, options: RunOptions, *, prepare: str = PREPARE, meanwhile: str = "",
             then: str = READ, window: int = TILE) -> tuple[Observation, Array]:  # fmt: skip
    """128 threads; the words of the window, and what was seen."""
    body = prepare + LOAD.format(bytes=width * ROWS, meanwhile=meanwhile, then=then)
    out = np.zeros(TILE // 2, np.uint16)
    launch = Launch("k", [box(mode, width, "in_tensor"), "out"], block=(128, 1, 1))
    program = load(KERNEL.format(window=window, body=body), ["k"])
    return run(program, launch, options, in_tensor=elements(), out=out), out


@in_both_schedules
@each_shape
def test_a_row_is_loaded_into_each_span(mode: str, width: int, copies: str) -> None:
    seen, out = load_box(mode, width, RunOptions(schedule=Schedule(copies=copies)))
    assert (seen.fault, seen.hazards) == (None, ())
    rows = elements()[3 : 3 + ROWS, 8 : 8 + width // 2]
    np.testing.assert_array_equal(out, image_of(rows, mode, MARK))
    assert [site.bytes for site in seen.counts if site.bytes] == [width * ROWS]


@in_both_schedules
@each_shape
@pytest.mark.parametrize("reduce", [False, True], ids=["store", "add"])
def test_a_row_is_stored_from_each_span(mode: str, width: int, copies: str, reduce: bool) -> None:
    operation, middle = ("cp.reduce.async", "add.tile") if reduce else ("cp.async", "tile")
    opcode = f"{operation}.bulk.tensor.2d.global.shared::cta.{middle}.bulk_group"
    rows = (np.arange(ROWS * width // 2) % 61 + 1).astype(np.float16).reshape(ROWS, -1)
    tensor = np.ones((32, 80), np.float16)
    program = load(KERNEL.format(window=TILE, body=STORE.format(opcode=opcode)), ["k"])
    launch = Launch("k", [box(mode, width, "tensor"), "in_image"], block=(128, 1, 1))
    seen = run(program, launch, RunOptions(schedule=Schedule(copies=copies)), tensor=tensor,
               in_image=image_of(rows, mode, MARK))  # fmt: skip
    assert (seen.fault, seen.hazards) == (None, ())
    expected = np.ones_like(tensor)
    expected[3 : 3 + ROWS, 8 : 8 + width // 2] = rows + reduce
    np.testing.assert_array_equal(tensor, expected)


def test_the_spans_have_to_fit_into_shared_memory() -> None:
    seen, _ = load_box("128b", 16, RunOptions(), prepare="bar.sync 0;", then="", window=ROWS * 128 - 1024)
    assert seen.fault is not None
    assert seen.fault.kind == FaultKind.ILLEGAL_ADDRESS


# Row 1 of a box of 32-byte rows in spans of 128 bytes lies in the first 32 bytes of its span, in chunks 1 and 0.
IN_A_ROW, IN_A_GAP = 128, 160


@in_both_schedules
@pytest.mark.parametrize(("offset", "kinds"), [(IN_A_ROW, {"shared_memory_race"}), (IN_A_GAP, set[str]())])
def test_a_gap_may_be_written_while_the_copy_is_under_way(offset: int, kinds: set[str], copies: str) -> None:
    options = RunOptions(schedule=Schedule(copies=copies), races=True)
    store = f"setp.eq.u32 %p1, thread, 32; @%p1 st.shared.b32 [tile+{offset}], thread;"
    seen, _ = load_box("128b", 32, options, meanwhile=store, then="")
    assert seen.fault is None
    assert {hazard.kind for hazard in seen.hazards if "fence" not in hazard.kind} == kinds


@pytest.mark.parametrize(("offset", "kinds"), [(IN_A_ROW, set[str]()), (IN_A_GAP, {"uninitialised_shared_read"})])
def test_a_gap_is_not_initialised_by_the_copy(offset: int, kinds: set[str]) -> None:
    read = f"ld.shared.b32 %r1, [tile+{offset}]; @lead st.global.b32 [out], %r1;"
    seen, _ = load_box("128b", 32, RunOptions(), prepare="bar.sync 0;", then=read)
    assert {hazard.kind for hazard in seen.hazards} == kinds
