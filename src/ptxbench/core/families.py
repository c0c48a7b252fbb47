"""The instruction-family table: how PTX opcodes, SASS opcodes and shares of work belong together.

A family is a row. `role` says what the row is for:

- ``matrix``: the target's own matrix instruction; its FLOPs are the *lower* gate of "carried";
- ``bulk_copy``: asynchronous bulk copies; reports the share of input bytes they moved;
- ``matrix_memory``, ``sync``, ``registers``: shown, never gated;
- ``other_math``: arithmetic that could have made the result another way; its FLOPs are the *upper* gate.

SASS spellings were read off `nvdisasm` for every row (PTX ISA 9.0, CUDA 13.0).
"""

from __future__ import annotations

import re
from typing import Literal

from ptxbench.core.record import Record
from ptxbench.core.targets import Target

Role = Literal["matrix", "bulk_copy", "matrix_memory", "sync", "registers", "other_math"]
Unit = Literal["warp", "cta", "thread"]

BOTH = (Target.SM_90A, Target.SM_100A)


class Family(Record):
    """One row. ``ptx`` and ``sass`` are regular expressions matched at the start of an opcode.

    ``unit`` says what one executed count stands for in hardware: a warp's issue (``wgmma`` counts are per warp,
    a quarter of a warpgroup's product), one issue per CTA or CTA pair (``tcgen05.mma``), or one per active thread.
    ``flops_per_thread`` is the arithmetic of one active lane, for ``other_math`` rows whose SASS shows no shape.
    """

    name: str
    role: Role
    targets: tuple[Target, ...]
    ptx: str
    sass: str
    unit: Unit
    flops_per_thread: float = 0.0

    def matches_ptx(self, opcode: str) -> bool:
        """Whether a full PTX opcode such as ``wgmma.mma_async.sync.aligned.m64n128k16...`` belongs here."""
        return re.match(self.ptx, opcode) is not None

    def matches_sass(self, opcode: str) -> bool:
        """Whether a full SASS opcode such as ``HGMMA.64x128x16.F32.BF16`` belongs here."""
        return re.match(self.sass, opcode) is not None


def _row(
    name: str,
    role: Role,
    ptx: str,
    sass: str,
    unit: Unit = "warp",
    *,
    targets: tuple[Target, ...] = BOTH,
    flops: float = 0.0,
) -> Family:
    return Family(name=name, role=role, targets=targets, ptx=ptx, sass=sass, unit=unit, flops_per_thread=flops)


def _atomic_add(name: str, ptx_types: str, sass_types: str, flops: float) -> Family:
    """Additions by an atomic, of one vector of a type. To shared memory SASS has loops with FADD, HADD2 or DADD."""
    ptx, sass = rf"(atom|red)\.(\S+\.)?add\.(\S+\.)?({ptx_types})$", rf"(ATOM|RED)G?\.E\.ADD\.({sass_types})\b"
    return _row(name, "other_math", ptx, sass, "thread", flops=flops)


_HOPPER = (Target.SM_90A,)
_BLACKWELL = (Target.SM_100A,)

# First match wins, so narrow rows stand before wide ones. ``flops`` on scalar rows counts multiply and add separately.
FAMILIES: tuple[Family, ...] = (
    _row("wgmma", "matrix", r"wgmma\.mma_async\.", r"[HQIB]GMMA\.", targets=_HOPPER),
    _row("tcgen05", "matrix", r"tcgen05\.mma\.", r"UTC[HQIO]MMA\b", "cta", targets=_BLACKWELL),
    _row(
        "tma_load",
        "bulk_copy",
        r"cp\.async\.bulk\.tensor\.\dd\.shared|cp\.async\.bulk\.shared(::\w+)?\.global",
        r"UTMALDG|UBLKCP\.S\.G",
        "thread",
    ),
    _row(
        "tma_store",
        "bulk_copy",
        r"cp\.(reduce\.)?async\.bulk\.(tensor\.\dd\.)?global",
        r"UTMASTG|UTMAREDG|UBLKCP\.G\.S|UBLKRED",
        "thread",
    ),
    _row("stmatrix", "matrix_memory", r"stmatrix\.", r"STSM"),
    _row("ldmatrix", "matrix_memory", r"ldmatrix\.", r"LDSM"),
    _row("tcgen05_ld", "matrix_memory", r"tcgen05\.ld\.", r"LDTM", targets=_BLACKWELL),
    _row("tcgen05_st", "matrix_memory", r"tcgen05\.st\.", r"STTM", targets=_BLACKWELL),
    _row("tcgen05_cp", "matrix_memory", r"tcgen05\.cp\.", r"UTCCP", "cta", targets=_BLACKWELL),
    _row("tcgen05_commit", "sync", r"tcgen05\.commit\.", r"UTCBAR", "cta", targets=_BLACKWELL),
    _row("mbarrier", "sync", r"mbarrier\.(arrive|try_wait|test_wait|expect_tx|init)", r"SYNCS\.", "thread"),
    _row("cluster_barrier", "sync", r"barrier\.cluster\.", r"UCGABAR_"),
    _row("setmaxnreg", "registers", r"setmaxnreg\.", r"USETMAXREG"),
    _row("mma_sync", "other_math", r"mma\.(sp(::\w+)?\.)?sync\.|wmma\.mma", r"[HID]MMA\."),
    _row("packed_f32_fma", "other_math", r"fma\.\w+(\.\w+)*\.f32x2", r"FFMA2", "thread", flops=4),
    _row("packed_f32", "other_math", r"(add|sub|mul)\.\w+(\.\w+)*\.f32x2", r"F(ADD|MUL)2", "thread", flops=2),
    _row("f32_fma", "other_math", r"(fma|mad)\.(\w+\.)*f32\b", r"FFMA\b", "thread", flops=2),
    _row("f32", "other_math", r"(add|sub|mul)\.(\w+\.)*f32\b", r"F(ADD|MUL)\b", "thread", flops=1),
    _row("half2_fma", "other_math", r"fma\.(\w+\.)*(bf16x2|f16x2)", r"H(FMA|FMA2)\b", "thread", flops=4),
    _row("half2", "other_math", r"(add|sub|mul)\.(\w+\.)*(bf16x2|f16x2)", r"H(ADD|MUL)2\b", "thread", flops=2),
    _row("half_fma", "other_math", r"fma\.(\w+\.)*(bf16|f16)\b", r"HFMA2\b", "thread", flops=2),
    _row("half", "other_math", r"(add|sub|mul)\.(\w+\.)*(bf16|f16)\b", r"H(ADD|MUL)2\b", "thread", flops=1),
    _row("f64_fma", "other_math", r"(fma|mad)\.(\w+\.)*f64\b", r"DFMA\b", "thread", flops=2),
    _row("f64", "other_math", r"(add|sub|mul)\.(\w+\.)*f64\b", r"D(ADD|MUL)\b", "thread", flops=1),
    _atomic_add("atomic_add_x8", r"v8\.b?f16|v4\.b?f16x2", r"B?F16x8", 8),
    _atomic_add("atomic_add_x4", r"v4\.(f32|b?f16)|v2\.b?f16x2", r"F32x4|B?F16x4", 4),
    _atomic_add("atomic_add_x2", r"v2\.(f32|b?f16)|b?f16x2", r"F32x2|B?F16x2", 2),
    _atomic_add("atomic_add", r"f32|f64|b?f16", r"F32|F64", 1),
    _row("dot_product", "other_math", r"dp[24]a\.", r"IDP\.", "thread", flops=8),
    # SASS also moves, shifts and adds with the multiply-add unit; those spellings are no products.
    _row(
        "integer_fma",
        "other_math",
        r"(mad|mul)(24)?\.(lo|hi|wide)\.|vmad\.",
        r"U?IMAD(?!\.(MOV|IADD|SHL|X|U32)\b)",
        "thread",
        flops=2,
    ),
)


def families_of(target: Target) -> tuple[Family, ...]:
    """The rows that exist on a target, in table order."""
    return tuple(family for family in FAMILIES if target in family.targets)


def matrix_family(target: Target) -> Family:
    """The row that should carry a task's work on a target."""
    name = target.sheet.matrix_family
    return next(family for family in FAMILIES if family.name == name)
