"""How runs end badly: each fault kind with its place, limits, interrupts and impossible launches."""

from __future__ import annotations

import _thread
import threading
import time

import numpy as np
import pytest
from simulator_launch import Launch, run
from simulator_text import THREAD_ADDRESS, kernel

from ptxbench.core import FaultKind, Observation, RunOptions
from ptxbench.simulator import load


def words(count: int = 64) -> np.ndarray:
    return np.zeros(count, np.uint32)


def run_text(text: str, options: RunOptions | None = None, *, launch: Launch | None = None, **buffers) -> Observation:
    names = list(buffers)
    return run(load(text, ["k"]), launch or Launch("k", names), options, **buffers)


def line_of(text: str, opcode: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.strip().startswith(opcode))


ADDRESS_FAULTS = {
    "write far outside": ("st.global.u32 [%rd1+100000000], 1;", FaultKind.ILLEGAL_ADDRESS),
    "read far outside": ("ld.global.u32 %r9, [%rd1+100000000];", FaultKind.ILLEGAL_ADDRESS),
    "read just outside": ("ld.global.u32 %r9, [%rd1+256];", FaultKind.ILLEGAL_ADDRESS),
    "write behind": ("st.global.u32 [%rd1+256], 1;", FaultKind.STRAY_WRITE),
    "write before": ("st.global.u32 [%rd1+-4], 1;", FaultKind.STRAY_WRITE),
    "write across the end": ("st.global.v2.b64 [%rd1+248], {%rd1, %rd1};", FaultKind.MISALIGNED_ADDRESS),
    "write into an input": ("st.global.u32 [%rd2], 1;", FaultKind.STRAY_WRITE),
    "atomic on an input": ("red.global.add.u32 [%rd2], 1;", FaultKind.STRAY_WRITE),
    "null": ("mov.u64 %rd9, 0; \nld.global.u32 %r9, [%rd9];", FaultKind.ILLEGAL_ADDRESS),
    "misaligned": ("ld.global.u32 %r9, [%rd1+2];", FaultKind.MISALIGNED_ADDRESS),
    "misaligned vector": ("ld.global.v4.u32 {%r9, %r10, %r11, %r12}, [%rd1+8];", FaultKind.MISALIGNED_ADDRESS),
    "shared outside": ("mov.u32 %r9, 1024; \nst.shared.u32 [%r9], 1;", FaultKind.ILLEGAL_ADDRESS),
    "shared below": ("mov.u32 %r9, 0; \nst.shared.u32 [%r9], 1;", FaultKind.ILLEGAL_ADDRESS),
    "another rank": ("mov.u32 %r9, 16778240; \nst.shared::cluster.u32 [%r9], 1;", FaultKind.ILLEGAL_ADDRESS),
    "local outside": ("mov.u64 %rd9, 0; \nst.local.u32 [%rd9], 1;", FaultKind.ILLEGAL_ADDRESS),
    "parameter block": ("mov.b64 %rd9, p1; \nld.param.u32 %r9, [%rd9+4096];", FaultKind.ILLEGAL_ADDRESS),
    "no tensor map": (
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {0, 0}], [%r1];", FaultKind.ILLEGAL_INSTRUCTION
    ),
    "trap": ("trap;", FaultKind.TRAP),
    "barrier number": ("bar.sync 16;", FaultKind.ILLEGAL_INSTRUCTION),
    "barrier threads": ("bar.sync 1, 48;", FaultKind.ILLEGAL_INSTRUCTION),
    "bulk size": (
        "mov.u32 %r9, 8; \ncp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r9;",
        FaultKind.ILLEGAL_INSTRUCTION,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ADDRESS_FAULTS)
def test_faults_have_their_kind_and_place(name):
    body, kind = ADDRESS_FAULTS[name]
    text = kernel(f"mov.u32 %r1, 1024;\n{body}\nret;", pointers=2)
    seen = run_text(text, out=words(), in_a=words())
    assert seen.fault is not None
    assert seen.fault.kind is kind, seen.fault
    assert seen.fault.kernel == "k"
    assert seen.fault.ptx_line == line_of(text, body.splitlines()[-1].split()[0])
    assert seen.fault.message
    assert seen.fault.advice or kind is FaultKind.ILLEGAL_INSTRUCTION


def test_the_message_names_buffer_lane_and_distance():
    text = kernel(THREAD_ADDRESS + "st.global.u32 [%rd21], %r1;\nret;")
    seen = run_text(text, launch=Launch("k", ["out"], block=(32, 1, 1)), out=words(20))
    assert seen.fault is not None
    assert "at byte 80 of out, which has 80 bytes" in seen.fault.message
    assert "CTA (0,0,0) warp 0, lane 20" in seen.fault.message


def test_a_step_limit_ends_an_endless_loop():
    text = kernel("LOOP:\nadd.u64 %rd5, %rd5, 1;\nst.global.u64 [%rd1], %rd5;\nbra LOOP;")
    seen = run_text(text, RunOptions(step_limit=100_000), out=words())
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.TIME_LIMIT
    assert 99_900 < seen.warp_instructions <= 100_000 < seen.work < 100_100  # setting up the CTA is work too


def test_a_time_limit_ends_an_endless_loop():
    text = kernel("LOOP:\nadd.u64 %rd5, %rd5, 1;\nst.global.u64 [%rd1], %rd5;\nbra LOOP;")
    started = time.monotonic()
    seen = run_text(text, RunOptions(time_limit_s=0.2), out=words())
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.TIME_LIMIT
    assert time.monotonic() - started < 2


def test_an_interrupt_ends_a_run_at_once():
    text = kernel("LOOP:\nadd.u64 %rd5, %rd5, 1;\nst.global.u64 [%rd1], %rd5;\nbra LOOP;")
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_text(text, out=words())
    assert time.monotonic() - started < 1.5


IMPOSSIBLE = {
    "threads": Launch("k", ["out"], block=(1025, 1, 1)),
    "no blocks": Launch("k", ["out"], grid=(0, 1, 1)),
    "tall block": Launch("k", ["out"], block=(1, 1, 65)),
    "shared memory": Launch("k", ["out"], shared=300 * 1024),
    "cluster": Launch("k", ["out"], grid=(16, 1, 1), cluster=(16, 1, 1)),
    "ragged cluster": Launch("k", ["out"], grid=(3, 1, 1), cluster=(2, 1, 1)),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_launches(name):
    seen = run_text(kernel("ret;"), launch=IMPOSSIBLE[name], out=words())
    assert seen.fault is not None
    assert seen.fault.kind is FaultKind.IMPOSSIBLE_LAUNCH
    assert seen.warp_instructions == 0


def test_shared_memory_up_to_the_limit_is_possible():
    seen = run_text(kernel("ret;"), launch=Launch("k", ["out"], shared=227 * 1024), out=words())
    assert seen.fault is None


def test_uninitialised_shared_memory_is_a_race():
    text = kernel(
        ".shared .align 4 .b8 s[64];\nmov.u32 %r2, s;\nld.shared.u32 %r3, [%r2+8];\nst.global.u32 [%rd1], %r3;\nret;"
    )
    seen = run_text(text, out=words())
    assert [(hazard.kind, hazard.severity) for hazard in seen.hazards] == [("uninitialised_shared_read", "race")]
    assert seen.hazards[0].ptx_line == line_of(text, "ld.shared")
    assert "shared byte 8" in seen.hazards[0].message


def test_an_mbarrier_that_gets_too_many_arrivals():
    body = """
.shared .align 8 .b64 bar;
mov.u32 %r2, bar;
mbarrier.init.shared.b64 [%r2], 2;
mbarrier.arrive.shared.b64 _, [%r2], 3;
ret;"""
    seen = run_text(kernel(body), launch=Launch("k", ["out"], block=(1, 1, 1)), out=words())
    assert seen.fault is not None
    assert "gets 3 arrivals but only 2 of 2 are pending" in seen.fault.message


def test_an_mbarrier_that_was_overwritten():
    body = """
.shared .align 8 .b64 bar;
mov.u32 %r2, bar;
mbarrier.init.shared.b64 [%r2], 2;
st.shared.u32 [%r2+4], 7;
mbarrier.arrive.shared.b64 _, [%r2];
ret;"""
    seen = run_text(kernel(body), launch=Launch("k", ["out"], block=(1, 1, 1)), out=words())
    assert seen.fault is not None
    assert "overwritten" in seen.fault.message


def test_memory_after_a_fault_holds_what_was_written_before_it():
    out = words()
    run_text(kernel("st.global.u32 [%rd1], 5;\ntrap;"), out=out)
    assert out[0] == 5
