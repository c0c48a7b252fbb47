"""Which parameter bytes count as read, for PTX as the compiler writes it."""

from __future__ import annotations

import pytest

from ptxbench.core import KernelFacts, ParameterSlot
from ptxbench.record.parameters import parameter_reads

KERNEL = KernelFacts(
    name="k", parameters=(ParameterSlot(offset=0, size=24), ParameterSlot(offset=64, size=256)),
    registers=1, static_shared=0, local=0,
)
HEAD = """.visible .entry k(
\t.param .align 8 .b8 k_param_0[24],
\t.param .align 64 .b8 k_param_1[256]
)
.maxntid 128
{
"""


def _reads(body: str) -> set[int]:
    block = parameter_reads(f"{HEAD}{body}\nret;\n}}\n", [KERNEL])["k"]
    return {offset for offset, mark in enumerate(block) if mark}


def test_declarations_alone_read_nothing() -> None:
    assert _reads("\t.reg .b64 %rd<4>;\n\t// k_param_0 in a comment") == set()


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ("ld.param.u8 %rs1, [k_param_0+12];", {12}),
        ("ld.param.u32 %r1, [k_param_0+8];", set(range(8, 12))),
        ("ld.param.f64 %fd1, [k_param_0];", set(range(8))),
        ("ld.param.v2.b32 {%r1, %r2}, [k_param_0+16];", set(range(16, 24))),
        ("ld.param.v4.u32 {%r1, %r2, %r3, %r4}, [k_param_1+16];", set(range(80, 96))),
        ("@%p1 ld.param.u16 %rs1, [k_param_1];", {64, 65}),
    ],
)
def test_loads(load: str, expected: set[int]) -> None:
    assert _reads(load) == expected


def test_addresses_are_followed_to_tensor_maps() -> None:
    body = """
    .loc 1 30 5
    mov.b64 %rd3, k_param_1;
    add.s64 %rd7, %rd3, 128;
    cvta.param.u64 %rd1, %rd7;
    { prefetch.tensormap [%rd1]; }
    ld.param.u32 %r1, [%rd3+4];
    """
    assert _reads(body) == {*range(68, 72), *range(192, 320)}


def test_an_address_in_a_bulk_copy_is_a_tensor_map() -> None:
    opcode = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
    copy = f"{opcode} [%r1], [%rd1, {{%r2, %r3}}], [%r4];"
    assert _reads(f"mov.b64 %rd2, k_param_1;\ncvta.param.u64 %rd1, %rd2;\n{copy}") == set(range(64, 192))


@pytest.mark.parametrize(
    "use",
    [
        "add.s64 %rd2, %rd1, %rd9; ld.param.u32 %r1, [%rd2];",
        "st.local.u64 [%rd8], %rd1;",
        "call (retval0), f, (%rd1);",
        "selp.b64 %rd2, %rd1, %rd3, %p1;",
        "atom.add.u32 %r1, [%rd1], 1;",
    ],
)
def test_an_address_that_escapes_reads_the_whole_parameter(use: str) -> None:
    assert _reads(f"mov.b64 %rd1, k_param_0;\n{use}") == set(range(24))


def test_an_address_that_grows_in_a_loop_reads_the_whole_parameter() -> None:
    assert _reads("mov.b64 %rd1, k_param_0;\n$L1:\nld.param.u8 %rs1, [%rd1];\nadd.s64 %rd1, %rd1, 1;") == set(range(24))


def test_a_kernel_without_ptx_reads_everything() -> None:
    assert parameter_reads(".version 9.0\n", [KERNEL])["k"] == bytearray(b"\xff" * 320)
