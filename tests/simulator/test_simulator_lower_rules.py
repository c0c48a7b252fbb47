"""The scalar rules: which machine op an opcode becomes, and that no modifier is ever ignored."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.core import UnsupportedError
from ptxbench.simulator import load, ptx
from ptxbench.simulator.lower import LoweredInstruction, lower

REGISTERS = """.reg .pred p, q, s; .reg .b16 h, i, j; .reg .b32 a, b, c, d; .reg .b64 w, x, y, z; .reg .b128 big;
.reg .f32 f, g; .reg .f64 e;"""


def lower_instruction(text: str) -> LoweredInstruction:
    source = f".version 9.0\n.target sm_100a\n.address_size 64\n.entry k() {{\n{REGISTERS}\n{text}\n}}"
    return lower(ptx.parse(source), ["k"]).kernels[0].code[0]


ROWS = [
    ("add.s32 a, b, c;", "add.b32", ()),
    ("add.sat.s32 a, b, c;", "add.sat.s32", ()),
    ("add.cc.u32 a, b, c;", "addc.b32", ()),
    ("subc.cc.u64 w, x, y;", "subc.b64", ()),
    ("mad.lo.s32 a, b, c, d;", "mad.lo.b32", ()),
    ("mad.wide.s32 w, a, b, x;", "mad.wide.s32", ()),
    ("madc.hi.cc.u32 a, b, c, d;", "madc.hi.u32", ()),
    ("min.relu.s32 a, b, c;", "min.s32", (1,)),
    ("shr.s32 a, b, c;", "shr.s32", ()),
    ("shr.b64 w, x, c;", "shr.b64", ()),
    ("shf.r.wrap.b32 a, b, c, d;", "shf.r.wrap", ()),
    ("lop3.b32 a, b, c, d, 0x96;", "lop3", (0x96, 0)),
    ("lop3.or.b32 a|p, b, c, d, 0x96, q;", "lop3", (0x96, 2)),
    ("prmt.b32.rc16 a, b, c, d;", "prmt.rc16", ()),
    ("and.pred p, q, !s;", "and.pred", ()),
    ("setp.lo.u32 p, a, b;", "setp.lt.u32", (0, 0)),
    ("setp.eq.s32 p, a, b;", "setp.eq.b32", (0, 0)),
    ("setp.gtu.or.ftz.f32 p|q, f, g, !s;", "setp.gtu.f32", (2, 1)),
    ("set.le.u32.f32 a, f, g;", "set.le.f32", (0, 0, -1)),
    ("selp.f32 f, g, 0f00000000, p;", "selp.b32", ()),
    ("mov.b64 {a, b}, w;", "unpack.b64", (32,)),
    ("mov.b32 a, {h, i};", "pack.b32", (16,)),
    ("mov.b128 big, {w, x};", "pack.b128", (64,)),
    ("mov.u64 w, %globaltimer;", "clock.b64", (0,)),
    ("add.f32 f, f, g;", "add.f32", (0, 0)),
    ("add.rz.ftz.sat.f32 f, f, g;", "add.f32", (1, 3)),
    ("fma.rn.bf16x2 a, b, c, d;", "fma.bf16x2", (0, 0)),
    ("fma.rn.relu.f16 h, i, j, h;", "fma.f16", (0, 4)),
    ("fma.rn.f32x2 w, x, y, z;", "fma.f32x2", (0, 0)),
    ("max.f32 f, f, g, f;", "max.f32", (0, 0)),
    ("max.NaN.xorsign.abs.f32 f, f, g;", "max.f32", (0, 24)),
    ("div.full.f32 f, f, g;", "div.f32", (0, 0)),
    ("rcp.approx.ftz.f32 f, g;", "rcp.f32", (0, 1)),
    ("sqrt.rp.f64 e, e;", "sqrt.f64", (3, 0)),
    ("ex2.approx.ftz.bf16x2 a, b;", "ex2.bf16x2", (0, 1)),
    ("testp.subnormal.f32 p, f;", "testp.f32", (5,)),
    ("cvt.u32.u8 a, h;", "cvt.i32.u8", (32, 0, 32, 0)),
    ("cvt.s8.s32 a, b;", "cvt.i32.s32", (8, 1, 32, 0)),
    ("cvt.sat.u8.s32 h, b;", "cvt.i32.s32", (8, 0, 16, 1)),
    ("cvt.rzi.s64.f32 w, f;", "cvt.s64.f32", (5, 0, 64)),
    ("cvt.rn.satfinite.e4m3x2.f32 h, f, g;", "cvt.e4m3x2.f32", (0, 32, 16)),
    ("cvt.rn.relu.bf16x2.f32 a, f, g;", "cvt.bf16x2.f32", (0, 4, 32)),
    ("cvt.rna.tf32.f32 a, f;", "cvt.tf32.f32", (8, 0, 32)),
    ("cvt.pack.sat.u8.s32.b32 a, b, c, d;", "cvt.pack", (8, 0)),
    ("shfl.sync.bfly.b32 a|p, b, 1, 31, -1;", "shfl.bfly", ()),
    ("vote.sync.ballot.b32 a, !p, -1;", "vote.ballot", ()),
    ("redux.sync.min.abs.NaN.f32 f, g, -1;", "redux.min.f32", (1, 1)),
    ("elect.sync _|p, -1;", "elect", ()),
]


@pytest.mark.parametrize(("text", "op", "attributes"), ROWS)
def test_rules(text: str, op: str, attributes: tuple[int, ...]) -> None:
    lowered = lower_instruction(text)
    assert (lowered.op, lowered.attributes) == (op, attributes)
    assert lowered.text == text.split()[0]


def test_the_machine_has_a_handler_for_every_row() -> None:
    body = "\n".join(text for text, _, _ in ROWS)
    load(f".version 9.0\n.target sm_100a\n.address_size 64\n.entry k() {{\n{REGISTERS}\n{body}\n}}", ["k"])


@pytest.mark.parametrize(
    "text",
    [
        "add.u32.u32 a, b, c;",
        "add.u32.s32 a, b, c;",
        "add.sat.u32 a, b, c;",
        "add.rn.u32 a, b, c;",
        "add.f32.rn f, f, g;",
        "add.rn.rz.f32 f, f, g;",
        "add.rz.f16 h, i, j;",
        "add.sat.f64 e, e, e;",
        "fma.f32 f, f, g, f;",
        "fma.rn.oob.f32 f, f, g, f;",
        "mul.u32 a, b, c;",
        "mul.lo.hi.u32 a, b, c;",
        "shl.s32 a, b, c;",
        "shf.l.b32 a, b, c, d;",
        "shf.l.wrap.clamp.b32 a, b, c, d;",
        "div.f32 f, f, g;",
        "div.approx.rn.f32 f, f, g;",
        "rcp.f32 f, g;",
        "ex2.f32 f, g;",
        "setp.lt.b32 p, a, b;",
        "setp.lo.s32 p, a, b;",
        "setp.equ.u32 p, a, b;",
        "setp.lt.and.u32 p, a, b;",
        "setp.lt.u32 p, a, b, q;",
        "cvt.f32.s32 f, a;",
        "cvt.rzi.f32.s32 f, a;",
        "cvt.rn.s32.f32 a, f;",
        "cvt.bf16.f32 h, f;",
        "cvt.rn.e4m3x2.f32 h, f, g;",
        "cvt.rn.satfinite.scaled::n2::ue8m0.e4m3x2.f32 h, f, g;",
        "cvt.rs.satfinite.e4m3x4.f32 a, {f, g, f, g}, b;",
        "cvt.rna.f16.f32 h, f;",
        "shfl.bfly.b32 a, b, 1, 31;",
        "shfl.sync.xor.b32 a, b, 1, 31, -1;",
        "elect.sync a, -1;",
        "mov.b64 {a, b, c}, w;",
        "bra.other L; L: ret;",
        "popc.u32 a, b;",
        "lop3.b32 a, b, c, d, 256;",
        "lop3.b32 a, b, c, d, a;",
    ],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match=r"at PTX line 7:"):
        lower_instruction(text)


ACCEPTED = [
    "add.s32 a, b, c;", "add.rn.f32 f, f, g;", "mul.wide.u32 w, a, b;", "setp.lt.f32 p, f, g;", "cvt.rn.f16.f32 h, f;",
    "shfl.sync.idx.b32 a, b, 1, 31, -1;", "mov.u32 a, b;", "selp.b32 a, b, c, p;", "min.f32 f, f, g;",
    "lop3.b32 a, b, c, d, 1;",
]  # fmt: skip


@settings(deadline=None)
@given(st.sampled_from(ACCEPTED), st.integers(0, 6), st.sampled_from(["volatile", "x3", "cta", "v2", "rn7", "to"]))
def test_an_unknown_modifier_anywhere_is_refused(text: str, position: int, modifier: str) -> None:
    opcode, rest = text.split(maxsplit=1)
    parts = opcode.split(".")
    parts.insert(1 + position % len(parts), modifier)
    with pytest.raises(UnsupportedError):
        lower_instruction(f"{'.'.join(parts)} {rest}")


@settings(deadline=None)
@given(st.sampled_from(ACCEPTED), st.integers(0, 6))
def test_a_repeated_modifier_is_refused(text: str, position: int) -> None:
    opcode, rest = text.split(maxsplit=1)
    parts = opcode.split(".")
    again = parts[1 + position % (len(parts) - 1)]
    with pytest.raises(UnsupportedError):
        lower_instruction(f"{'.'.join([parts[0], again, *parts[1:]])} {rest}")
