"""What a kernel becomes: rows, constants, labels, variables, frames, calls."""

from __future__ import annotations

import pytest

from ptxbench.core import UnsupportedError
from ptxbench.simulator import ptx
from ptxbench.simulator.lower import LoweredInstruction, LoweredKernel, lower
from ptxbench.simulator.lower.image import Constant, ConstantKind, OperandKind, Slot

HEADER = ".version 9.0\n.target sm_90a\n.address_size 64\n"


def lower_text(text: str, name: str = "k") -> LoweredKernel:
    return lower(ptx.parse(HEADER + text), [name]).kernels[0]


def lower_body(body: str) -> LoweredKernel:
    return lower_text(f".visible .entry k(.param .u32 n, .param .align 64 .b8 map[128])\n{{\n{body}\n}}\n")


def constant_at(kernel: LoweredKernel, slot: int) -> Constant:
    (found,) = [constant for constant in kernel.constants if constant.slot == slot]
    return found


def code(kernel: LoweredKernel) -> list[tuple[str, ...]]:
    return [(instruction.op, *(str(slot.slot) for slot in instruction.operands)) for instruction in kernel.code]


def test_registers_get_rows_on_first_use_and_64_bits_take_two() -> None:
    kernel = lower_body(".reg .b32 %r<1000>; .reg .b64 %rd<9>; add.s64 %rd1, %rd2, %rd1; add.s32 %r7, %r7, %r999;")
    assert code(kernel) == [("add.b64", "0", "2", "0"), ("add.b32", "4", "4", "5")]
    assert kernel.rows == 6
    assert kernel.code[0].operands[0].kind is OperandKind.ROW64


def test_equal_constants_share_a_row() -> None:
    kernel = lower_body(".reg .b32 a; .reg .b16 h; add.s32 a, a, -1; xor.b32 a, a, 0xffffffff; add.s16 h, h, -1;")
    first, second, third = (instruction.operands[2].slot for instruction in kernel.code)
    assert first == second != third
    assert constant_at(kernel, first) == Constant(first, 32, ConstantKind.IMMEDIATE, 0xFFFFFFFF)
    assert constant_at(kernel, third).value == 0xFFFF


def test_float_constants_take_the_width_of_the_type() -> None:
    kernel = lower_body(".reg .f32 f; .reg .f64 d; add.f32 f, f, 1.5; add.f64 d, d, 1.5; add.f32 f, f, 0f3FC00000;")
    single, double, bits = (instruction.operands[2].slot for instruction in kernel.code)
    assert single == bits
    assert (constant_at(kernel, single).value, constant_at(kernel, double).value) == (0x3FC00000, 0x3FF8000000000000)


def test_special_registers_and_clocks() -> None:
    kernel = lower_body(".reg .b32 a; .reg .b64 w; mov.u32 a, %ctaid.y; mov.u64 w, %clock64; mov.u32 a, WARP_SZ;")
    assert [instruction.op for instruction in kernel.code] == ["mov.b32", "clock.b64", "mov.b32"]
    assert constant_at(kernel, kernel.code[0].operands[1].slot).kind is ConstantKind.SPECIAL
    assert constant_at(kernel, kernel.code[2].operands[1].slot).value == 32


def test_inner_scopes_hide_outer_names() -> None:
    kernel = lower_body(
        """.reg .b32 x; L: add.s32 x, x, x;
        { .reg .b64 x; L: add.s64 x, x, x; bra L; }
        bra L;"""
    )
    assert [instruction.op for instruction in kernel.code] == ["add.b32", "add.b64", "bra", "bra"]
    assert [kernel.code[at].operands[0].imm for at in (2, 3)] == [1, 0]


def test_ranges_and_names_that_look_alike() -> None:
    kernel = lower_body(".reg .b32 %r<3>, %r1<2>; add.s32 %r2, %r10, %r11; add.s32 %r2, %r2, %r1;")
    assert len({slot for row in code(kernel) for slot in row[1:]}) == 4
    with pytest.raises(UnsupportedError, match="%r3"):
        lower_body(".reg .b32 %r<3>; add.s32 %r1, %r3, %r1;")
    with pytest.raises(UnsupportedError, match="%r01"):
        lower_body(".reg .b32 %r<3>; add.s32 %r1, %r01, %r1;")


def test_guards() -> None:
    kernel = lower_body(".reg .pred p; .reg .b32 a; @!p add.s32 a, a, a; @p bra E; E: ret;")  # row 0 is a
    assert [(i.guard, i.guard_negated) for i in kernel.code] == [(1, True), (1, False), (-1, False)]
    assert kernel.code[1].operands == (Slot(OperandKind.LABEL, imm=2),)


def test_parameters_and_sizes() -> None:
    kernel = lower_body(".reg .b64 a; mov.b64 a, map;")
    assert kernel.param_bytes == 192
    assert constant_at(kernel, kernel.code[0].operands[1].slot).kind is ConstantKind.PARAM_ADDRESS
    assert constant_at(kernel, kernel.code[0].operands[1].slot).value == 64


def test_kernel_directives() -> None:
    kernel = lower_text(
        """.entry k() .reqntid 64, 2, 1 .maxnreg 168 .reqnctapercluster 2, 1, 1
        { .shared .align 8 .b8 a[12]; .shared .b64 b; .local .align 16 .b8 c[20]; .extern .shared .align 1024 .b8 d[];
          .reg .b32 x; .reg .b64 y; mov.u32 x, b; mov.u32 x, d; mov.u64 y, c; }"""
    )
    assert (kernel.static_shared, kernel.dynamic_align, kernel.local_bytes) == (24, 1024, 20)
    assert (kernel.required_cluster, kernel.max_threads, kernel.max_registers) == ((2, 1, 1), 128, 168)
    kinds = [constant_at(kernel, instruction.operands[1].slot).kind for instruction in kernel.code]
    assert kinds == [ConstantKind.SHARED, ConstantKind.DYNAMIC_SHARED, ConstantKind.LOCAL]


def test_module_variables_with_relocations() -> None:
    text = """.global .align 4 .b32 numbers[3] = {1, -2};
.const .align 8 .u64 table[2] = {generic(numbers), numbers+8};
.shared .align 4 .b32 unused[100];
.entry k() { .reg .b64 a; mov.u64 a, table; ret; }"""
    image = lower(ptx.parse(HEADER + text), ["k"])
    numbers, table = image.globals
    assert numbers.data == b"\x01\0\0\0\xfe\xff\xff\xff\0\0\0\0"
    assert table.constant
    assert table.relocations == ((0, 0, 0), (8, 0, 8))
    assert image.kernels[0].static_shared == 0
    assert image.target == "sm_90a"


def test_frames_follow_the_inlining_chain() -> None:
    kernel = lower_text(
        """.entry k() {
        .loc 1 50 1
        .loc 1 20 3, function_name f, inlined_at 1 50 1
        .loc 2 7 9, function_name g, inlined_at 1 20 3
        nop;
        .loc 1 51 1
        nop;
        }
        .file 1 "a.cu"
        .file 2 "b.cuh"
        """
    )
    assert kernel.code[0].frames == (("b.cuh", 7), ("a.cu", 20), ("a.cu", 50))
    assert kernel.code[1].frames == (("a.cu", 51),)


CALLS = """.func (.param .b32 result) inner(.param .b32 x)
{ .reg .pred p; .loc 1 5 1
 @p ret; nop; ret; }
.entry k()
{ .reg .pred q; .param .b32 argument; .param .b32 value;
  .loc 1 9 1
  call.uni (value), inner, (argument);
  @q call (value), inner, (argument);
  nop;
}
.file 1 "a.cu"
"""


def test_calls_are_inlined() -> None:
    kernel = lower_text(CALLS)
    ops = [(i.op, i.guard >= 0, i.guard_negated, i.operands[0].imm if i.operands else None) for i in kernel.code]
    assert ops == [
        ("nop", False, False, None), ("bra", True, False, 4), ("nop", False, False, None), ("bra", False, False, 4),
        ("bra", True, True, 8), ("bra", True, False, 8), ("nop", False, False, None), ("bra", False, False, 8),
        ("nop", False, False, None),
    ]  # fmt: skip
    assert kernel.code[2].frames == (("a.cu", 5), ("a.cu", 9))
    assert kernel.code[8].frames == (("a.cu", 9),)
    assert kernel.local_bytes == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".func f() { call f; }\n.entry k() { call f; }", "recursive"),
        (".entry k() { .reg .b64 r; call r, (x), p; }", "indirect"),
        (".extern .func f();\n.entry k() { call f; }", "not defined"),
        (".entry k() { call malloc; }", "indirect calls are not supported .malloc is not a function"),
    ],
)
def test_calls_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        lower_text(text)


def test_exponential_inlining_is_refused() -> None:
    functions = "\n".join(f".func f{i + 1}() {{ call f{i}; call f{i}; }}" for i in range(40))
    with pytest.raises(UnsupportedError, match="too long"):
        lower_text(f".func f0() {{ nop; }}\n{functions}\n.entry k() {{ call f40; }}")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("frobnicate.u32 a, b;", r"frobnicate.u32 at PTX line 6: the simulator does not implement"),
        ("add.u32 a, a;", "takes 3 operands, not 2"),
        ("add.u32 a, a, nowhere;", "nowhere is not a register"),
        ("add.u32 1, a, a;", "1 is not a destination"),
        ("add.u64 a, a, a;", "a has 32 bits where .u64 is expected"),
        ("add.u32 a, a, %pm0;", "%pm0 is not a register"),
        ("bra nowhere;", "nowhere is not a label"),
        ("@a bra X; X: ret;", "guard a is not a predicate"),
        ("add.f32 a, a, 1;", "does not fit .f32"),
        ("mov.u16 h, map;", "needs 64 bits"),
        (".reg .v4 .f32 v;", "not supported"),
    ],
)
def test_refusals_name_the_instruction(body: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        lower_body(f".reg .b32 a; .reg .b16 h;\n{body}" if not body.startswith("frob") else body)


def test_only_the_named_kernels_must_be_supported() -> None:
    text = ".entry bad() { frobnicate; }\n.entry k() { ret; }"
    assert lower_text(text).code == (LoweredInstruction("exit", "ret", (), ptx_line=5),)
    with pytest.raises(UnsupportedError, match="frobnicate at PTX line 4"):
        lower_text(text, "bad")
    with pytest.raises(UnsupportedError, match="no kernel other"):
        lower_text(text, "other")


def test_directives_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="maxntid at PTX line 4"):
        lower_text(".entry k() .maxntid many { ret; }")


GAPS = {
    "tcgen05.mma.ws.sp.cta_group::1.kind::f16 [%r1], %rd1, %rd2, [%r3], %r2, %p4;": "sparse products",
    "tcgen05.mma.sp.cta_group::1.kind::f16 [%r1], %rd1, %rd2, [%r3], %r2, %p4;": "sparse products",
    "tcgen05.mma.cta_group::1.kind::f16.ashift [%r1], [%r2], %rd2, %r2, %p4;": "shifted rows of A",
    "tcgen05.shift.cta_group::1.down [%r1];": "moves of rows in tensor memory",
    "mma.sp.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f0, %f1, %f2, %f3}, {%r1, %r2}, {%r1, %r2}, "
    "{%f0, %f1, %f2, %f3}, %r3, 0;": "sparse products",
}


@pytest.mark.parametrize("text", GAPS)
def test_what_the_simulator_lacks_is_refused_by_name(text):
    registers = ".reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %rd<4>;"
    with pytest.raises(UnsupportedError) as refusal:
        lower_body(f"{registers}\n{text}\nret;")
    assert str(refusal.value).startswith(f"{text.split()[0]} at PTX line ")
    assert GAPS[text] in str(refusal.value)
