"""Loads, stores, atomics, address spaces and cp.async."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import THREAD_ADDRESS, kernel

from ptxbench.core import RunOptions, Schedule, UnsupportedError
from ptxbench.simulator import load


def run_text(text: str, *, threads: int = 32, options: RunOptions | None = None, shared: int = 0, **buffers):
    launch = Launch("k", list(buffers), block=(threads, 1, 1), shared=shared)
    seen = run(load(text, ["k"]), launch, options, **buffers)
    assert seen.fault is None, seen.fault
    return seen


@pytest.mark.parametrize("dtype, register", [
    ("u8", "%r2"), ("s8", "%r2"), ("u8", "%h2"), ("s8", "%h2"), ("u16", "%r2"), ("s16", "%r2"), ("s8", "%rd2"),
    ("s16", "%rd2"), ("s32", "%rd2"), ("u32", "%rd2"),
])  # fmt: skip
def test_narrow_loads_extend_to_the_register(dtype, register):
    size = int(dtype[1:]) // 8
    kind = np.dtype(f"{'i' if dtype[0] == 's' else 'u'}{size}")
    values = np.array([0, 1, 127, 128, 255, 2**15, 2**31, 2**32 - 1] * 4, np.uint64).astype(kind)
    widen = {"%h2": "cvt.s32.s16 %r3, %h2;\ncvt.s64.s32 %rd3, %r3;", "%rd2": "mov.u64 %rd3, %rd2;"}.get(
        register, "cvt.s64.s32 %rd3, %r2;"
    )
    body = f"""
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd20, %r1, {size};
add.u64 %rd21, %rd1, %rd20;
mul.wide.u32 %rd20, %r1, 8;
add.u64 %rd22, %rd9, %rd20;
ld.global.{dtype} {register}, [%rd21];
{widen}
st.global.u64 [%rd22], %rd3;
ret;"""
    out = np.zeros(32, np.int64)
    text = kernel("mov.u64 %rd9, %rd2;\n" + body, pointers=2)
    run_text(text, in_values=values, out=out)
    expected = values.astype(np.int64)
    if dtype == "u32" or register == "%rd2":
        assert np.array_equal(out, expected)
    else:
        assert np.array_equal(out.astype(kind), values)
        assert np.array_equal(out, expected)


def test_vectors_move_in_order_and_may_overwrite_their_address():
    body = """
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd20, %r1, 32;
add.u64 %rd21, %rd1, %rd20;
add.u64 %rd22, %rd2, %rd20;
ld.global.v2.u64 {%rd23, %rd24}, [%rd21+16];
ld.global.v2.u64 {%rd21, %rd25}, [%rd21];
st.global.v2.u64 [%rd22], {%rd23, %rd24};
st.global.v2.u64 [%rd22+16], {%rd21, %rd25};
ret;"""
    values, out = np.arange(128, dtype=np.uint64).reshape(32, 4), np.zeros((32, 4), np.uint64)
    run_text(kernel(body, pointers=2), in_values=values, out=out)
    assert np.array_equal(out, values[:, [2, 3, 0, 1]])


def test_a_parameter_is_read_through_its_address_in_a_register():
    body = """
mov.b64 %rd9, p1;
ld.param.u64 %rd10, [%rd9+8];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd20, %r1, 4;
add.u64 %rd11, %rd1, %rd20;
add.u64 %rd12, %rd10, %rd20;
ld.global.u32 %r2, [%rd11];
st.global.u32 [%rd12], %r2;
ret;"""
    values, out = np.arange(32, dtype=np.uint32) * 7, np.zeros(32, np.uint32)
    run_text(kernel(body, pointers=2), in_values=values, out=out)
    assert np.array_equal(out, values)


def test_generic_addresses_reach_every_space():
    body = """
.shared .align 8 .b8 s[256];
.local .align 8 .b8 l[8];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd20, %r1, 8;
mov.u64 %rd5, s;
cvta.shared.u64 %rd6, %rd5;
add.u64 %rd6, %rd6, %rd20;
mov.u64 %rd7, l;
cvta.local.u64 %rd8, %rd7;
add.u64 %rd9, %rd1, %rd20;
isspacep.shared %p1, %rd6;
isspacep.local %p2, %rd8;
isspacep.global %p3, %rd9;
isspacep.global %p4, %rd6;
selp.u32 %r2, 1, 0, %p1;
selp.u32 %r3, 2, 0, %p2;
selp.u32 %r4, 4, 0, %p3;
selp.u32 %r5, 8, 0, %p4;
add.u32 %r2, %r2, %r3;
add.u32 %r2, %r2, %r4;
add.u32 %r2, %r2, %r5;
st.u32 [%rd8], %r1;
st.u32 [%rd8+4], %r2;
ld.local.u64 %rd10, [%rd7];
st.u64 [%rd6], %rd10;
bar.warp.sync 0xffffffff;
cvta.to.shared.u64 %rd11, %rd6;
ld.shared.u64 %rd12, [%rd11];
st.u64 [%rd9], %rd12;
ret;"""
    out = np.zeros((32, 2), np.uint32)
    run_text(kernel(body), out=out)
    assert np.array_equal(out[:, 0], np.arange(32))
    assert (out[:, 1] == 7).all()


def test_module_variables_start_at_their_initial_values_in_every_run():
    module = ".global .align 4 .u32 counter = 40;\n.const .align 4 .u32 step = 2;\n.global .u64 pointer = counter;"
    body = """
ld.global.u64 %rd5, [pointer];
ld.const.u32 %r2, [step];
ld.u32 %r3, [%rd5];
add.u32 %r3, %r3, %r2;
st.global.u32 [counter], %r3;
ld.global.u32 %r4, [counter];
st.global.u32 [%rd1], %r4;
ret;"""
    program = load(kernel(body, module=module.replace("= counter", "= generic(counter)")), ["k"])
    for _ in range(2):
        out = np.zeros(1, np.uint32)
        seen = run(program, Launch("k", ["out"], block=(1, 1, 1)), out=out)
        assert seen.fault is None
        assert out[0] == 42


ATOMICS = {
    "add.u32": (np.uint32, np.add), "min.s32": (np.int32, np.minimum), "max.u32": (np.uint32, np.maximum),
    "and.b32": (np.uint32, np.bitwise_and), "or.b32": (np.uint32, np.bitwise_or),
    "xor.b32": (np.uint32, np.bitwise_xor), "add.u64": (np.uint64, np.add),
    "max.s64": (np.int64, np.maximum), "add.f32": (np.float32, np.add),
    "add.f64": (np.float64, np.add), "add.noftz.f16": (np.float16, np.add),
    "add.noftz.bf16": (ml_dtypes.bfloat16, np.add),
}  # fmt: skip


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("op", ATOMICS)
def test_reductions_of_a_warp(op, space):
    dtype, function = ATOMICS[op]
    size = np.dtype(dtype).itemsize
    values = (np.random.default_rng(1).integers(0, 7, 32) * 0.5 + 1).astype(dtype)
    kind = {2: "b16", 4: "b32", 8: "b64"}[size]
    register = {2: "%h", 4: "%r", 8: "%rd"}[size]
    body = f"""
.shared .align 8 .b8 s[8];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd20, %r1, {size};
add.u64 %rd21, %rd1, %rd20;
ld.global.{kind} {register}25, [%rd21];
mov.u64 %rd30, {"%rd2" if space == "global" else "s"};
ld.global.{kind} {register}26, [%rd2];
setp.eq.u32 %p1, %r1, 0;
@%p1 st.{space}.{kind} [%rd30], {register}26;
bar.warp.sync 0xffffffff;
red.{space}.{op} [%rd30], {register}25;
bar.warp.sync 0xffffffff;
ld.{space}.{kind} {register}26, [%rd30];
st.global.{kind} [%rd2], {register}26;
ret;"""
    out = np.array([3], dtype)
    expected = out[0]
    for value in values:
        expected = function(expected, value).astype(dtype)
    run_text(kernel(body, pointers=2), in_values=values, out=out)
    assert out[0] == expected


def test_atomics_return_the_old_value_and_take_lanes_in_turn():
    body = THREAD_ADDRESS + """
atom.global.add.u32 %r2, [%rd1+128], 3;
st.global.u32 [%rd21], %r2;
ret;"""
    out = np.zeros(33, np.uint32)
    run_text(kernel(body), out=out)
    assert np.array_equal(np.sort(out[:32]), np.arange(32) * 3)
    assert out[32] == 96


def test_compare_and_swap_exchange_and_wrapping():
    body = """
atom.global.cas.b32 %r2, [%rd1], 5, 9;
atom.global.exch.b64 %rd5, [%rd1+8], 77;
atom.global.inc.u32 %r3, [%rd1+16], 3;
atom.global.dec.u32 %r4, [%rd1+20], 3;
st.global.u32 [%rd1+24], %r2;
st.global.u64 [%rd1+32], %rd5;
ret;"""
    out = np.array([5, 0, 6, 0, 3, 0, 0, 0, 0, 0], np.uint32)
    run_text(kernel(body), threads=1, out=out)
    assert list(out) == [9, 0, 77, 0, 0, 3, 5, 0, 6, 0]


def test_vector_reductions():
    body = """
mov.f32 %f1, 0f3F800000;
mov.f32 %f2, 0f40000000;
red.global.add.v2.f32 [%rd1], {%f1, %f2};
ret;"""
    out = np.zeros(2, np.float32)
    run_text(kernel(body), out=out)
    assert list(out) == [32, 64]


def test_what_is_not_supported_is_refused_by_name():
    for text, part in (
        ("ld.global.frobnicate.u32 %r1, [%rd1];", "frobnicate"),
        ("multimem.red.global.add.f32 [%rd1], %f1;", "multimem"),
        ("ld.global.v8.b64 {%rd1, %rd2, %rd3, %rd4, %rd5, %rd6, %rd7, %rd8}, [%rd1];", "exceed 256 bits"),
        ("mapa.shared::cluster.u32 _, %r1, %r2;", "sink"),
    ):
        with pytest.raises(UnsupportedError, match=part):
            load(kernel(text + "\nret;"), ["k"])


COPY = """
.shared .align 16 .b8 s[1024];
.shared .align 8 .b64 bar;
mov.u32 %r1, %tid.x;
mov.u32 %r2, s;
mul.wide.u32 %rd20, %r1, 16;
add.u64 %rd21, %rd1, %rd20;
add.u64 %rd22, %rd2, %rd20;
mad.lo.u32 %r3, %r1, 16, %r2;
{copy}
ld.shared.v2.u64 {{%rd30, %rd31}}, [%r3];
st.global.v2.u64 [%rd22], {{%rd30, %rd31}};
ret;"""
WAITS = {
    "group": "cp.async.cg.shared.global [%r3], [%rd21], 16;\ncp.async.commit_group;\ncp.async.wait_group 0;",
    "all": "cp.async.ca.shared.global [%r3], [%rd21], 16;\ncp.async.wait_all;",
    "mbarrier": """
mov.u32 %r6, bar;
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared.b64 [%r6], 32;
bar.warp.sync 0xffffffff;
cp.async.cg.shared.global [%r3], [%rd21], 16;
cp.async.mbarrier.arrive.noinc.shared.b64 [%r6];
WAIT:
mbarrier.try_wait.parity.shared.b64 %p2, [%r6], 0;
@!%p2 bra WAIT;""",
}
LATE = [Schedule(), Schedule(copies="late")]


@pytest.mark.parametrize("schedule", LATE, ids=["eager", "late"])
@pytest.mark.parametrize("wait", WAITS)
def test_cp_async(wait, schedule):
    values = np.arange(64, dtype=np.uint64)
    out = np.zeros_like(values)
    seen = run_text(kernel(COPY.format(copy=WAITS[wait]), pointers=2), options=RunOptions(schedule=schedule),
                    in_values=values, out=out)  # fmt: skip
    assert seen.hazards == ()
    assert np.array_equal(out, values)


def test_cp_async_fills_with_zeros_and_ignores_sources():
    values = np.arange(1, 65, dtype=np.uint64)
    for operands, expected in (
        ("16, 8", np.where(np.arange(64) % 2 == 0, values, 0)), ("16, %p3", np.where(np.arange(64) < 32, 0, values)),
    ):  # fmt: skip
        copy = f"setp.lt.u32 %p3, %r1, 16;\ncp.async.cg.shared.global [%r3], [%rd21], {operands};\ncp.async.wait_all;"
        out = np.zeros_like(values)
        run_text(kernel(COPY.format(copy=copy), pointers=2), in_values=values, out=out)
        assert np.array_equal(out, expected)


def test_cp_async_that_was_not_waited_for():
    values, out = np.arange(64, dtype=np.uint64), np.zeros(64, np.uint64)
    text = kernel(COPY.format(copy="cp.async.cg.shared.global [%r3], [%rd21], 16;"), pointers=2)
    seen = run_text(text, options=RunOptions(schedule=Schedule(copies="late")), in_values=values, out=out)
    assert {hazard.kind for hazard in seen.hazards} == {"uninitialised_shared_read", "unwaited_async_copy"}


@pytest.mark.parametrize(
    "hint",
    [
        "griddepcontrol.launch_dependents;",
        "griddepcontrol.wait;",
        "cp.async.bulk.prefetch.L2.global [%rd1], 128;",
        "prefetch.global.L2 [%rd21];",
        "prefetchu.L1 [%rd21];",
        "applypriority.global.L2::evict_normal [%rd1], 128;",
        "discard.global.L2 [%rd2], 128;",
    ],
)
def test_hints_and_what_orders_launches_change_no_result(hint: str):
    """Launches of a plan run one after another, so that a dependent launch finds everything done."""
    body = f"""
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd20, %r1, 4;
add.u64 %rd21, %rd1, %rd20;
add.u64 %rd22, %rd2, %rd20;
{hint}
ld.global.u32 %r2, [%rd21];
st.global.u32 [%rd22], %r2;
ret;"""
    values, out = np.arange(32, dtype=np.uint32) * 3, np.zeros(32, np.uint32)
    run_text(kernel(body, pointers=2), in_values=values, out=out)
    assert np.array_equal(out, values)
