"""Work: warp instructions, with products, copies and operands weighed by their size. Runs are limited in it."""

from __future__ import annotations

import numpy as np
import pytest
from simulator_launch import Launch, artifact_of, node_of, plan_of, run, views_of
from simulator_text import kernel

from ptxbench.core import Address, FaultKind, MemsetNode, Observation, RunOptions, Schedule
from ptxbench.simulator import execute, load

PRODUCT = (
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r10, %r11, %r12, %r13}, "
    "{%r14, %r15}, {%f0, %f1, %f2, %f3};\n"
)
COPY = """
mov.u32 %r5, tile;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r5], 4096;
"""
FILL_BYTES = 1 << 20
LARGEST_PRODUCT = f"""
.shared .align 1024 .b8 tile[10240];
mov.u32 %r2, tile;
shr.u32 %r3, %r2, 4;
cvt.u64.u32 %rd10, %r3;
or.b64 %rd10, %rd10, {128 >> 4 << 16 | 256 >> 4 << 32};
setp.eq.u32 %p2, %r2, %r2;
LOOP:
wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16
  {{{", ".join(f"%f{i}" for i in range(128))}}}, %rd10, %rd10, %p2, 1, 1, 0, 0;
bra LOOP;
"""
LARGEST_UNITS = 1 + (128 + 3) // 8 + 2 * 64 * 256 * 16 // 4 // 8192
"""Of one warp's share: the instruction, its operands, its FLOPs."""


def run_body(body: str, options: RunOptions | None = None) -> Observation:
    text = kernel(f".shared .align 16 .b8 tile[4096];\n{body}\nret;")
    return run(load(text, ["k"]), Launch("k", ["out"]), options, out=np.zeros(2048, np.uint32))


def loop(body: str, count: int) -> str:
    return f"mov.u32 %r100, 0;\nLOOP:\n{body}add.u32 %r100, %r100, 1;\nsetp.lt.u32 %p1, %r100, {count};\n@%p1 bra LOOP;"


def work_of_hundred(body: str) -> int:
    """The work of a hundred executions of ``body`` beyond the instructions."""
    few, many = run_body(loop(body, 100)), run_body(loop(body, 200))
    assert few.fault is None and many.fault is None
    return (many.work - many.warp_instructions) - (few.work - few.warp_instructions)


def test_scalar_instructions_count_as_they_are():
    assert work_of_hundred("add.u32 %r1, %r1, 1;\n") == 0


def test_products_count_by_their_size_and_operands():
    # 4096 FLOPs, of which 8192 are a unit, and 14 registers, of which 8 are one
    assert work_of_hundred(PRODUCT) == 50 + 100


def test_copies_count_by_their_bytes_and_as_long_as_they_may_be_pending():
    # for each lane 8 units of 512 bytes, and 8 for what the machine keeps of a copy
    assert work_of_hundred(COPY) == 100 * 32 * (8 + 8)


def test_a_loop_of_products_ends_at_the_limit():
    seen = run_body(loop(PRODUCT * 4, 1 << 30), RunOptions(step_limit=50_000))
    assert seen.fault is not None and seen.fault.kind is FaultKind.TIME_LIMIT
    assert "exceeded 50000 warp instructions, with products and copies weighed by their size" in seen.fault.message
    assert seen.warp_instructions < 30_000 and 50_000 < seen.work < 55_000


@pytest.mark.parametrize("schedule", [Schedule(), Schedule(products="late"), Schedule(seed=5)], ids=lambda it: it.label)
def test_the_largest_products_end_at_the_limit_too(schedule: Schedule):
    limit = 20_000  # fewer than a time slice of them is worth
    assert limit < 1024 * LARGEST_UNITS
    program = load(kernel(LARGEST_PRODUCT), ["k"])
    options = RunOptions(schedule=schedule, step_limit=limit)
    seen = run(program, Launch("k", ["out"], block=(128, 1, 1)), options, out=np.zeros(1, np.uint32))
    assert seen.fault is not None and seen.fault.kind is FaultKind.TIME_LIMIT
    assert limit < seen.work < 1.02 * limit


def test_fills_of_the_launcher_count_and_may_be_too_much():
    program = load(kernel("ret;"), ["k"])
    buffers = {"out": np.zeros(FILL_BYTES, np.uint8)}
    fill = MemsetNode(to=Address(buffer="out"), value=1, width=1, count=FILL_BYTES)
    plan = plan_of((fill,) * 8 + (node_of(Launch("k", ["out"])),), buffers)

    def execute_with(limit: int) -> Observation:
        return execute(program, artifact_of(program, 32), plan, views_of(buffers), RunOptions(step_limit=limit))

    seen = execute_with(100_000)
    assert seen.fault is None and seen.work >= 8 * FILL_BYTES // 512
    seen = execute_with(10_000)
    assert seen.fault is not None and seen.fault.kind is FaultKind.TIME_LIMIT
    assert "the launcher's copies and fills alone are worth over 10000 warp instructions" in seen.fault.message
