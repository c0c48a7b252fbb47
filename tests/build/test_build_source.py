"""Refusals before any compiler runs, and honest text that must pass."""

from __future__ import annotations

import time

import pytest

from ptxbench.build import check_source
from ptxbench.core import Outcome


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("", 0, "empty"),
        (" \n\t\n", 0, "empty"),
        ("int a;\nint b\0;", 2, "NUL"),
        ("int a; // \ud800", 1, "UTF-8"),
        ("x" * (1 << 20) + "y", 0, "1048576"),
        ('#include "/dev/random"', 1, "leaves the offered headers"),
        ("int a;\n#include </etc/passwd>", 2, "leaves the offered headers"),
        ('#include "../../etc/passwd"', 1, "leaves the offered headers"),
        ("#include <cuda/../../../x>", 1, "leaves the offered headers"),
        ("#include <cutlass/gemm/gemm.h>", 1, "not offered"),
        ("#include <cublas_v2.h>", 1, "not offered"),
        ("#include <sys/mman.h>", 1, "not offered"),
        ('#include "kernel.cu"', 1, "not offered"),
        ("#/**/include/**/</dev/random>", 1, "leaves the offered headers"),
        ("/* a\n b */ # include </dev/random>", 2, "leaves the offered headers"),
        ("%:include </dev/random>", 1, "leaves the offered headers"),
        ("#inc\\\nlude </dev/random>", 1, "leaves the offered headers"),
        ("#define H </dev/random>\n#include H", 2, "written out"),
        ("\f#include </dev/random>", 1, "leaves the offered headers"),
        ("\ufeff#include </dev/random>", 1, "leaves the offered headers"),
        ("#inc\\\f\nlude </dev/random>", 1, "leaves the offered headers"),
        ("int a = 'x/*';\n#include </dev/random>\nint b = '*/';", 2, "leaves the offered headers"),
        ("#define A 1'/*'\n#include </dev/random>\n#define B '*/'", 2, "leaves the offered headers"),
        ("#include_next <vector>", 1, "include_next"),
        ("#embed </dev/random>", 1, "embed"),
        ('#line 7 "/etc/passwd"', 1, "line"),
        ('# 7 "/etc/passwd" 3', 1, "line"),
        ('asm(".incbin \\"/etc/passwd\\"");', 1, "incbin"),
        ('asm(".include \\"/etc/passwd\\"");', 1, ".include"),
        ('asm(".inc" \n"bin \\"/etc/passwd\\"");', 1, "The assembler directive .incbin is"),
        ("#pragma GCC optimize(\"O0\")", 1, "pragma GCC"),
        ("#pragma  GCC system_header", 1, "pragma GCC"),
        ('_Pragma("GCC optimize(0)")', 1, "pragma GCC"),
    ],
)
def test_refused(source: str, line: int, says: str) -> None:
    rejection = check_source(source)
    assert rejection is not None
    assert rejection.outcome is Outcome.COMPILE_ERROR
    assert says in rejection.reason
    assert rejection.reason.endswith(".")
    assert rejection.source_line == line


@pytest.mark.parametrize(
    "source",
    [
        "#include <cuda_bf16.h>\n#include <cuda.h>\n#include <cudaTypedefs.h>\n#include <cuda_runtime.h>",
        "#include <cuda/barrier>\n#include <cuda/std/cstdint>\n#include <cooperative_groups/reduce.h>",
        "#include <mma.h>",
        "#include <ptxbench/ptx/wgmma.cuh>\n#include <ptxbench/ptx/tma.cuh>  // wrappers",
        "#include <stdint.h>\n#include <cstdint>\n#include <algorithm>\n#include <cub/block/block_reduce.cuh>",
        "// #include </dev/random>\n/* #include </dev/random>\n*/ int a;",
        'const char* a = "// not a comment"; const char* b = "/*";\nint c; // "',
        'const char* raw = R"x(text " // /* )x";\nint a;',
        "#pragma once\n#pragma unroll 4\n#pragma nv_diag_suppress 177\n#pragma GCC diagnostic ignored \"-Wall\"",
        "#define A 1 \\\n  + 2\nint a = A; char c = '\"';",
        "int a = 1'000; // #include </dev/random>\n"
        "int b = 0x1'ff'00; /* one\n#include </dev/random> */ char c = L'\\'';",
        "// don't\n/* won't\n#include </dev/random>\n*/",
    ],
)
def test_accepted(source: str) -> None:
    assert check_source(source) is None


def test_lines_count_across_splices_and_comments() -> None:
    source = "#define A 1 \\\n  + 2\n/* one\n two */\n// three \\\n four\n#include <nope.h>\n"
    rejection = check_source(source)
    assert rejection is not None
    assert rejection.source_line == 7


@pytest.mark.parametrize(
    "unit",
    ['R"(', '\\"', '"', "'", "/*", "//", "#", "_Pragma(", "%:", " ", "\\\n", 'R"x(\n', '"\n', "#include <", "/a"],
)
def test_no_text_takes_long(unit: str) -> None:
    begin = time.monotonic()
    check_source(unit * (1_000_000 // len(unit)))
    assert time.monotonic() - begin < 5
