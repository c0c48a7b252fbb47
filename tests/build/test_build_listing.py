"""Readers of what the tools write: diagnostics, positions in PTX, parameters, disassembly."""

from __future__ import annotations

import time
from pathlib import PurePath

from ptxbench.build.parameters import entry_parameters
from ptxbench.build.positions import PtxPositions
from ptxbench.build.remarks import MAX_REMARKS, diagnostics, to_remarks
from ptxbench.build.sass import parse_sass
from ptxbench.core import ParameterSlot, SassInstruction

PTX = """\
.version 9.0
.visible .entry _Z1kPi(
\t.param .u64 .ptr .align 1 _Z1kPi_param_0
)
{
\t.loc\t1 4 0
\tmov.u32 %r1, 0;
\t.loc\t2 30 5, function_name $L__info_string0, inlined_at 1 7 2
\tbad.instruction;
\t.loc\t2 31 5
\tbad.instruction;
}
\t.file\t1 "/box/kernel.cu"
\t.file\t2 "/cuda/include/cuda_bf16.hpp"
"""


def name_of(path: str) -> str:
    return PurePath(path).name


POSITIONS = PtxPositions(PTX, name_of, "kernel.cu")


def found(text: str) -> list[tuple[str, int, str, str]]:
    return [(d.file, d.line, d.severity, d.text) for d in diagnostics(text, name_of, POSITIONS, "kernel.cu")]


def test_ptx_positions() -> None:
    assert [POSITIONS.of_line(line) for line in (3, 7, 9, 11, 99)] == [0, 4, 7, 7, 0]
    assert POSITIONS.of_function("_Z1kPi") == 4
    assert POSITIONS.of_function("other") == 0


def test_front_end_messages_lose_quotations_and_keep_explanations() -> None:
    text = """\
kernel.cu(8): error: no instance of function "f" matches the argument list
            argument types are: (int)
          f(secret);
            ^
/cuda/include/x.h(9): note #3326-D: candidate function
          detected during instantiation of "f" at line 3 of /cuda/include/y.h

kernel.cu(2): warning #177-D: variable "q" was declared but never referenced
      int q;
          ^

Remark: The warnings can be suppressed
At end of source: error: expected a "}"
"""
    assert found(text) == [
        ("kernel.cu", 8, "error", 'no instance of function "f" matches the argument list argument types are: (int)'),
        ("kernel.cu", 2, "warning", 'variable "q" was declared but never referenced'),
        ("kernel.cu", 0, "error", 'at the end of the source: expected a "}"'),
    ]


def test_an_error_in_a_header_is_placed_where_the_candidate_led_there() -> None:
    text = """\
/usr/include/c++/12/bits/ops.h(45): error: no operator "<"
        { return *a < *b; }
                    ^
          detected during:
            instantiation of "g" at line 233 of /usr/include/c++/12/bits/heap.h
            instantiation of "sort" at line 12 of kernel.cu
"""
    assert found(text) == [("kernel.cu", 12, "error", 'no operator "<"')]


def test_host_and_assembler_messages() -> None:
    text = """\
In file included from unit.cu:1:
kernel.cu:1:10: fatal error: cuda/ptx2: No such file or directory
    1 | #include <cuda/ptx2>
      |          ^~~~~~~~~~~
./ccXU1cnK.s:77: Error: no such instruction: `foo bar'
/usr/bin/ld: /box/unit.o: multiple definition of `f'; /box/x.o: first defined here
collect2: error: ld returned 1 exit status
"""
    assert found(text) == [
        ("kernel.cu", 1, "error", "cuda/ptx2: No such file or directory"),
        ("", 0, "error", "no such instruction: `foo bar'"),
        ("", 0, "error", "multiple definition of `f'; x.o: first defined here"),
    ]


def test_ptxas_messages_are_placed_through_the_ptx() -> None:
    text = """\
ptxas unit.ptx, line 9; error   : Unknown modifier '.foo'
ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.
ptxas info    : (C7519) warpgroup.arrive is injected in around line 7 by compiler in function '_Z1kPi'
ptxas info    : (C7511) wgmma.mma_async instructions are serialized in the function '_Z1kPi'
ptxas info    : 0 bytes gmem
ptxas info    : Function properties for _Z1kPi
    0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 30 registers, used 0 barriers
ptxas fatal   : Ptx assembly aborted due to errors
"""
    assert [(line, severity) for _, line, severity, _ in found(text)] == [
        (7, "error"), (0, "remark"), (4, "remark"), (4, "remark"), (4, "remark"),
    ]
    texts = [text for *_, text in found(text)]
    assert texts[2] == "(C7519) warpgroup.arrive is injected in line 4 by compiler in function '_Z1kPi'"
    assert texts[4] == "_Z1kPi spills registers: 8 bytes stored, 12 bytes loaded"


def test_remarks_are_the_candidates_own_errors_first_and_bounded() -> None:
    lines = [f"kernel.cu({n}): warning #1-D: w{n}\n" for n in range(1, 80)]
    errors = ["other.h(3): error: elsewhere\n", "kernel.cu(5): error: wrong\n", "kernel.cu(5): error: wrong\n"]
    text = "\n".join([*lines, *errors])
    made = to_remarks(diagnostics(text, name_of, POSITIONS, "kernel.cu"), "kernel.cu")
    assert len(made) == MAX_REMARKS
    assert (made[0].severity, made[0].line, made[0].message) == ("error", 5, "wrong")
    assert {remark.severity for remark in made[1:]} == {"warning"}


def test_printed_words_are_no_diagnostics() -> None:
    assert found("PASSED\nerror: nothing\ncorrect: true\nptxas is fine\n") == []


def test_parameters_follow_their_alignment() -> None:
    ptx = """\
.visible .entry k(
\t.param .u32 k_param_0,
\t.param .align 64 .b8 k_param_1[128],
\t.param .u8 k_param_2,
\t.param .u64 .ptr .global .align 1 k_param_3
)
.entry none()
{
"""
    assert entry_parameters(ptx) == {
        "k": (
            ParameterSlot(offset=0, size=4), ParameterSlot(offset=64, size=128), ParameterSlot(offset=192, size=1),
            ParameterSlot(offset=200, size=8),
        ),
        "none": (),
    }


def test_disassembly_frames_predicates_and_called_functions() -> None:
    listing = """\
\t.section\t.text._Z1k,"ax",@progbits
_Z1k:
\t//## File "/box/kernel.cu", line 6
        /*0000*/                   LDC R1, c[0x0][0x28] ;
\t//## File "/include/ptxbench/ptx/wgmma.cuh", line 82 inlined at "/box/kernel.cu", line 59
\t//## File "/box/kernel.cu", line 59
        /*0010*/              @!P0 BRA `(.L_x_2) ;
        /*0020*/               @UP1 HGMMA.64x128x16.F32.BF16 R24, gdesc[UR16], R24, gsb0 ;
\t//## File "/box/kernel.cu", line 7
\t//## File "/box/kernel.cu", line 8
        /*10000*/                   EXIT ;
\t.section\t.text._Z2f,"ax",@progbits
        /*0000*/                   NOP;
"""
    kernel, function = parse_sass(listing, name_of)
    assert kernel.kernel == "_Z1k"
    assert kernel.instructions == (
        SassInstruction(offset=0, opcode="LDC", operands="R1, c[0x0][0x28]", frames=(("kernel.cu", 6),)),
        SassInstruction(
            offset=16, opcode="BRA", operands="`(.L_x_2)", predicate="!P0",
            frames=(("wgmma.cuh", 82), ("kernel.cu", 59)),
        ),
        SassInstruction(
            offset=32, opcode="HGMMA.64x128x16.F32.BF16", operands="R24, gdesc[UR16], R24, gsb0", predicate="UP1",
            frames=(("wgmma.cuh", 82), ("kernel.cu", 59)),
        ),
        SassInstruction(offset=0x10000, opcode="EXIT", operands="", frames=(("kernel.cu", 8),)),
    )
    assert function.kernel == "_Z2f"
    assert function.instructions == (SassInstruction(offset=0, opcode="NOP", operands=""),)


def test_hostile_output_takes_no_long_time() -> None:
    begin = time.monotonic()
    found("kernel.cu:1:2: error: #error " + "/a" * 130_000)
    found("kernel.cu(1): error: x\n" * 11_000)
    found("kernel.cu(1): error: x\n" + "          y\n" * 20_000)
    entry_parameters(".entry k (" * 100_000)
    assert time.monotonic() - begin < 5
