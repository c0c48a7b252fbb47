"""Tensor maps that a kernel writes itself, and addresses of kernel parameters in 32 bits."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, load, run, tiled
from simulator_text import THREAD_ADDRESS, kernel

from ptxbench.core import DeviceError, Hazard, UnsupportedError

# %r1 thread, %rd1 tensor, %rd2 global copy of the map, %rd3 output; 32 threads.
MAKE = """
.shared .align 128 .b8 map[128];
.shared .align 128 .b8 tile[512];
.shared .align 8 .b64 bar;
mov.u32 %r1, %tid.x;
mov.u32 %r2, map;
shl.b32 %r3, %r1, 2;
add.u32 %r3, %r3, %r2;
st.shared.u32 [%r3], 0;
bar.warp.sync -1;
setp.ne.u32 %p1, %r1, 0;
@%p1 bra MADE;
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r2], %rd1;
tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r2], 1;
tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r2], 0, 16;
tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r2], 1, 8;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r2], 0, 40;
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r2], 1, 20;
tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r2], 0, 160;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r2], 0, 1;
tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r2], 1, 1;
tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r2], 7;
tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r2], 0;
tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r2], 0;
tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r2], {fill};
MADE:
bar.warp.sync -1;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd2], [%r2], 128;
fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128;
mov.u32 %r4, tile;
mov.u32 %r5, bar;
@%p1 bra WAIT;
mbarrier.init.shared.b64 [%r5], 1;
mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 512;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd2, {{32, 4}}], [%r5];
WAIT:
bar.warp.sync -1;
RETRY:
mbarrier.try_wait.parity.shared.b64 %p2, [%r5], 0;
@!%p2 bra RETRY;
shl.b32 %r6, %r1, 4;
add.u32 %r7, %r6, %r4;
ld.shared.v4.u32 {{%r10, %r11, %r12, %r13}}, [%r7];
cvt.u64.u32 %rd10, %r6;
add.u64 %rd10, %rd10, %rd3;
st.global.v4.u32 [%rd10], {{%r10, %r11, %r12, %r13}};
ret;"""


@pytest.mark.parametrize("fill", [0, 1])
def test_a_map_made_field_by_field(fill: int) -> None:
    tensor = np.arange(20 * 40, dtype=np.float32).reshape(20, 40)
    out = np.zeros((8, 16), np.float32)
    place = np.zeros(128, np.uint8)
    program = load(kernel(MAKE.format(fill=fill), pointers=3), ["k"])
    seen = run(program, Launch("k", ["in_tensor", "map", "out"]), in_tensor=tensor, map=place, out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    np.testing.assert_array_equal(out[:, :8], tensor[4:12, 32:])
    outside = out[:, 8:]
    assert np.isnan(outside).all() if fill else (outside == 0).all()


ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128;\n"
STORE = "mov.u32 %r30, 0;\n@!%p1 st.global.u32 [%rd2+124], %r30;\n"


def hazards_of(body: str) -> tuple[Hazard, ...]:
    buffers = {"in_tensor": np.zeros((20, 40), np.float32), "map": np.zeros(128, np.uint8)}
    program = load(kernel(body, pointers=3), ["k"])
    return run(program, Launch("k", ["in_tensor", "map", "out"]), **buffers, out=np.zeros((8, 16), np.float32)).hazards


@pytest.mark.parametrize(("old", "new"), [
    (ACQUIRE, ""),
    (ACQUIRE, ACQUIRE.replace("[%rd2]", "[%rd1]")),
    (ACQUIRE, f"{ACQUIRE}{STORE}"),
], ids=["no fence", "of another address", "before a store"])  # fmt: skip
def test_a_map_that_was_not_acquired_since_it_was_written_is_reported(old: str, new: str) -> None:
    (hazard,) = hazards_of(MAKE.format(fill=0).replace(old, new))
    assert (hazard.severity, hazard.kind) == ("rule", "missing_tensormap_fence")
    assert hazard.message.startswith("cp.async.bulk.tensor.2d")
    assert "uses the tensor map at byte 0 of map, which this kernel wrote" in hazard.message


def test_a_map_that_was_acquired_after_the_store_is_silent() -> None:
    assert hazards_of(MAKE.format(fill=0).replace(ACQUIRE, f"{STORE}bar.warp.sync -1;\n{ACQUIRE}")) == ()


@pytest.mark.parametrize(("text", "reason"), [
    ("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r1], 1;", "interleave_layout 1"),
    ("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r1], 13;", "element type 13"),
    ("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r1], 4;", "swizzle mode 4"),
    ("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r1], 5, 8;", "no dimension 5"),
])  # fmt: skip
def test_fields_the_simulator_lacks(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        load(kernel(text), ["k"])


def fault_of(body: str) -> str:
    seen = run(
        load(kernel(body, pointers=3), ["k"]), Launch("k", ["in_tensor", "map", "out"]),
        in_tensor=np.zeros((20, 40), np.float32), map=np.zeros(128, np.uint8), out=np.zeros((8, 16), np.float32),
    )  # fmt: skip
    assert seen.fault is not None
    return seen.fault.message


def test_a_map_without_its_fields_is_refused() -> None:
    body = MAKE.format(fill=0).replace("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r2], 1, 8;\n", "")
    assert "holds no tensor map" in fault_of(body)


def test_rows_wider_than_the_span_of_their_swizzle_are_refused() -> None:
    mode = "swizzle_mode.shared::cta.b1024.b32 [%r2], "
    body = MAKE.format(fill=0).replace(f"{mode}0;", f"{mode}1;")
    assert "rows of the box have 64 bytes, and its swizzle allows 32" in fault_of(body)


@pytest.mark.parametrize(("change", "reason"), [
    ({"box": (16, 257, 1)}, "box extent 1 is 257, and must be 1 to 256"),
    ({"mode": "im2col", "box": (16, 1025)}, "box extent 1 is 1025, and must be 1 to 1024"),
    ({"mode": "im2col", "lower_corner": (33,)}, "the bounding box from 33 to 31 has no pixels"),
])  # fmt: skip
def test_a_box_that_the_driver_refuses(change: dict[str, object], reason: str) -> None:
    corners = {"lower_corner": (0,), "upper_corner": (0,)} if "mode" in change else {}
    map_ = tiled("in_tensor", (64, 32, 4), (16, 8)).model_copy(update=corners | change)
    text = kernel("ret;", pointers=0).replace("k()", "k(.param .align 64 .b8 map[128])")
    with pytest.raises(DeviceError, match=f"a tensor map that the driver refuses: {reason}"):
        run(load(text, ["k"]), Launch("k", [map_]), in_tensor=np.zeros((4, 32, 64), np.float16))


def test_the_address_of_a_parameter_in_32_bits() -> None:
    body = THREAD_ADDRESS + """
mov.b32 %r2, p2;
cvt.u64.u32 %rd3, %r2;
cvta.param.u64 %rd3, %rd3;
ld.u64 %rd4, [%rd3];
ld.global.u32 %r3, [%rd4];
mov.u64 %rd5, p2;
cvta.param.u64 %rd5, %rd5;
ld.u64 %rd6, [%rd5];
ld.global.u32 %r4, [%rd6];
add.u32 %r3, %r3, %r4;
st.global.b32 [%rd21], {%r3};
ret;"""
    out = np.zeros(32, np.uint32)
    seen = run(load(kernel(body, pointers=2), ["k"]), Launch("k", ["out", "in_value"]), out=out,
               in_value=np.array([21], np.uint32))  # fmt: skip
    assert seen.fault is None
    assert (out == 42).all()
