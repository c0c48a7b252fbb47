"""Atomic additions in the family table: what they count as, in PTX and in SASS."""

from __future__ import annotations

import pytest

from ptxbench.core import Family, Target, families_of


def family_of(opcode: str, *, sass: bool = False) -> Family | None:
    matches = Family.matches_sass if sass else Family.matches_ptx
    return next((family for family in families_of(Target.SM_90A) if matches(family, opcode)), None)


@pytest.mark.parametrize(
    ("ptx", "sass", "flops"),
    [
        ("red.global.add.f32", "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU", 1),
        ("atom.relaxed.gpu.global.add.f32", "ATOMG.E.ADD.F32.FTZ.RN.STRONG.GPU", 1),
        ("red.add.f32", "ATOM.E.ADD.F32.FTZ.RN.STRONG.GPU", 1),
        ("red.global.add.f64", "REDG.E.ADD.F64.RN.STRONG.GPU", 1),
        ("red.relaxed.gpu.global.add.v2.f32", "REDG.E.ADD.F32x2.FTZ.RN.STRONG.GPU", 2),
        ("atom.global.add.v4.f32", "ATOMG.E.ADD.F32x4.FTZ.RN.STRONG.GPU", 4),
        ("red.global.add.noftz.bf16x2", "REDG.E.ADD.BF16x2.RN.STRONG.GPU", 2),
        ("red.global.add.noftz.v2.bf16x2", "REDG.E.ADD.BF16x4.RN.STRONG.GPU", 4),
        ("red.global.add.noftz.v8.bf16", "REDG.E.ADD.BF16x8.RN.STRONG.GPU", 8),
        ("red.global.add.noftz.v4.f16x2", "REDG.E.ADD.F16x8.RN.STRONG.GPU", 8),
    ],
)
def test_an_atomic_addition_counts_its_elements(ptx: str, sass: str, flops: float) -> None:
    by_ptx, by_sass = family_of(ptx), family_of(sass, sass=True)
    assert by_ptx is not None and by_ptx is by_sass
    assert (by_ptx.role, by_ptx.unit, by_ptx.flops_per_thread) == ("other_math", "thread", flops)


@pytest.mark.parametrize("opcode", ["red.shared.add.u32", "atom.global.cas.b32", "red.global.max.noftz.v2.bf16x2"])
def test_other_atomics_are_no_arithmetic(opcode: str) -> None:
    assert family_of(opcode) is None


@pytest.mark.parametrize("opcode", ["REDG.E.ADD.STRONG.GPU", "REDG.E.MAX.BF16x4.RN", "ATOMS.CAST.SPIN", "REDUX.SUM"])
def test_nor_are_they_in_machine_code(opcode: str) -> None:
    assert family_of(opcode, sass=True) is None


def test_an_addition_to_shared_memory_counts_in_ptx_as_its_loop_does_in_sass() -> None:
    by_ptx, by_sass = family_of("atom.shared.add.f32"), family_of("FADD", sass=True)
    assert by_ptx is not None and by_sass is not None
    assert by_ptx.flops_per_thread == by_sass.flops_per_thread == 1
