"""Video instructions against the pseudocode of the PTX ISA, in Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from simulator_launch import load
from simulator_scalar import evaluate
from simulator_text import kernel

from ptxbench.core import UnsupportedError

Array = np.ndarray
_COUNT = 512
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "vadd": lambda a, b: a + b,
    "vsub": lambda a, b: a - b,
    "vabsdiff": lambda a, b: abs(a - b),
    "vmin": min,
    "vmax": max,
    "vavrg": lambda a, b: (a + b + 1) >> 1 if a + b >= 0 else (a + b) >> 1,
}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
_PARTS = {"": (0, 32), "b0": (0, 8), "b1": (8, 8), "b2": (16, 8), "b3": (24, 8), "h0": (0, 16), "h1": (16, 16)}


def words(seed: int) -> Array:
    random = np.random.default_rng(seed)
    values = random.integers(0, 2**32, _COUNT, dtype=np.uint64) >> random.integers(0, 32, _COUNT, dtype=np.uint64)
    edges = np.array([0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint64)
    chosen = random.random(_COUNT) < 0.4
    values[chosen] = edges[random.integers(0, len(edges), int(chosen.sum()))]
    return values.astype(np.uint32)


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def part(word: int, name: str, is_signed: bool) -> int:
    shift, bits = _PARTS[name]
    value = word >> shift & ((1 << bits) - 1)
    return signed(value, bits) if is_signed else value


def clamp(value: int, bits: int, is_signed: bool) -> int:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def check(text: str, reference: Callable[[int, int, int], int]) -> None:
    a, b, c = words(1), words(2), words(3)
    got = evaluate(text, a, b, c, result=np.uint32, target="sm_90a")
    expected = [reference(*row) & 0xFFFFFFFF for row in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    np.testing.assert_array_equal(got, np.array(expected, np.uint32))


TYPES = [("u32", "u32", "u32"), ("s32", "u32", "s32"), ("u32", "s32", "u32"), ("s32", "s32", "s32")]


@pytest.mark.parametrize("types", TYPES, ids=".".join)
@pytest.mark.parametrize("name", ["vadd", "vsub", "vabsdiff", "vmin", "vmax"])
@pytest.mark.parametrize("saturate", [False, True])
def test_scalars(name: str, types: tuple[str, str, str], saturate: bool) -> None:
    d_signed, a_signed, b_signed = (kind == "s32" for kind in types)

    def primary(a: int, b: int, a_part: str = "", b_part: str = "", bits: int = 32) -> int:
        value = _OPERATIONS[name](part(a, a_part, a_signed), part(b, b_part, b_signed))
        return clamp(value, bits, d_signed) if saturate else value

    wraps = saturate and name in ("vadd", "vsub", "vmin")
    if wraps and not d_signed:
        return
    opcode = f"{name}.{'.'.join(types)}{'.sat' if saturate else ''}"
    check(f"{opcode} d, a, b;", lambda a, b, c: primary(a, b))
    check(f"{opcode}.add d, a.b2, b.h1, c;", lambda a, b, c: primary(a, b, "b2", "h1") + c)
    if d_signed == (name in ("vadd", "vsub", "vmin")):
        view = (lambda value: signed(value, 32)) if d_signed else (lambda value: value)
        check(f"{opcode}.min d, a, b, c;", lambda a, b, c: min(view(primary(a, b) & 0xFFFFFFFF), view(c)))
        check(f"{opcode}.max d, a, b, c;", lambda a, b, c: max(view(primary(a, b) & 0xFFFFFFFF), view(c)))
    for to, (shift, bits) in [] if wraps else list(_PARTS.items())[1:-1]:
        mask = ((1 << bits) - 1) << shift
        check(
            f"{opcode} d.{to}, a.h0, b.b3, c;",
            lambda a, b, c, m=mask, s=shift, n=bits: (c & ~m) | (primary(a, b, "h0", "b3", n) << s & m),
        )


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
@pytest.mark.parametrize(("d_type", "a_type"), [("u32", "u32"), ("s32", "s32"), ("u32", "s32"), ("s32", "u32")])
@pytest.mark.parametrize("name", ["vshl", "vshr"])
def test_shifts(name: str, d_type: str, a_type: str, mode: str) -> None:
    def shifted(a: int, b: int, a_part: str = "") -> int:
        amount = min(b, 32) if mode == "clamp" else b & 31
        value = part(a, a_part, a_type == "s32")
        return value << amount if name == "vshl" else value >> amount

    opcode = f"{name}.{d_type}.{a_type}.u32"
    check(f"{opcode}.{mode} d, a, b;", lambda a, b, c: shifted(a, b))
    if name == "vshr":
        check(f"{opcode}.sat.{mode} d, a, b;", lambda a, b, c: clamp(shifted(a, b), 32, d_type == "s32"))
    check(f"{opcode}.{mode}.add d, a.b1, b.b0, c;", lambda a, b, c: shifted(a, b & 255, "b1") + c)


@pytest.mark.parametrize("comparison", _COMPARISONS)
@pytest.mark.parametrize(("a_type", "b_type"), [("u32", "u32"), ("s32", "u32"), ("s32", "s32")])
def test_comparisons(comparison: str, a_type: str, b_type: str) -> None:
    def compared(a: int, b: int, name: str = "") -> int:
        return int(_COMPARISONS[comparison](part(a, name, a_type == "s32"), part(b, name, b_type == "s32")))

    opcode = f"vset.{a_type}.{b_type}.{comparison}"
    check(f"{opcode} d, a, b;", lambda a, b, c: compared(a, b))
    check(f"{opcode}.add d, a.h1, b.h1, c;", lambda a, b, c: compared(a, b, "h1") + c)
    if a_type == "u32":
        check(f"{opcode}.max d, a.h1, b.h1, c;", lambda a, b, c: max(compared(a, b, "h1"), c))


@pytest.mark.parametrize("types", TYPES, ids=".".join)
def test_multiply_and_add(types: tuple[str, str, str]) -> None:
    a_signed, b_signed = types[1] == "s32", types[2] == "s32"

    def full(a: int, b: int, c: int, a_part: str = "", b_part: str = "", one: int = 0) -> int:
        return part(a, a_part, a_signed) * part(b, b_part, b_signed) + c + one

    opcode = f"vmad.{'.'.join(types)}"
    check(f"{opcode} d, a, b, c;", full)
    check(f"{opcode}.po d, a.h1, b.b2, c;", lambda a, b, c: full(a, b, c, "h1", "b2", 1))


@pytest.mark.parametrize("elements", [2, 4])
@pytest.mark.parametrize("types", TYPES, ids=".".join)
@pytest.mark.parametrize("name", [*_OPERATIONS, "vset"])
def test_parallel(name: str, types: tuple[str, str, str], elements: int) -> None:
    bits = 32 // elements
    unit, mask = ("h", [1]) if elements == 2 else ("b", [0, 2, 3])
    a_choice, b_choice = ([2, 1], [3, 0]) if elements == 2 else ([1, 5, 0, 7], [6, 2, 4, 3])
    operation = _COMPARISONS["lt"] if name == "vset" else _OPERATIONS[name]
    signs = [kind == "s32" for kind in types]

    def element(a: int, b: int, number: int, is_signed: bool) -> int:
        value = (b << 32 | a) >> number * bits & ((1 << bits) - 1)
        return signed(value, bits) if is_signed else value

    def merged(a: int, b: int, c: int, chosen: tuple[list[int], list[int]], written: list[int], mode: str) -> int:
        result = c
        for place in range(elements):
            if place not in written:
                continue
            value = int(operation(element(a, b, chosen[0][place], signs[1]), element(a, b, chosen[1][place], signs[2])))
            if mode == ".sat":
                value = clamp(value, bits, signs[0])
            if mode == ".add":
                result += value
            else:
                ones = ((1 << bits) - 1) << place * bits
                result = (result & ~ones) | (value << place * bits & ones)
        return result

    own = list(range(elements)), list(range(elements, 2 * elements))
    for mode in ("", ".add") if name == "vset" else ("", ".sat", ".add"):
        kinds = ".".join(types[1:]) + ".lt" if name == "vset" else ".".join(types)
        opcode = f"{name}{elements}.{kinds}{mode}"
        check(f"{opcode} d, a, b, c;", lambda a, b, c, m=mode: merged(a, b, c, own, list(range(elements)), m))
        names = ["".join(str(digit) for digit in reversed(choice)) for choice in (a_choice, b_choice, mask)]
        check(
            f"{opcode} d.{unit}{names[2]}, a.{unit}{names[0]}, b.{unit}{names[1]}, c;",
            lambda a, b, c, m=mode: merged(a, b, c, (a_choice, b_choice), mask, m),
        )


@pytest.mark.parametrize(("text", "reason"), [
    ("vadd.s32.u32.u32.add %r1, %r2, %r3;", "a third operand"),
    ("vadd.s32.u32.u32 %r1.h0, %r2, %r3;", "a third operand"),
    ("vadd.s32.u32.u32.add %r1.h0, %r2, %r3, %r4;", "not both"),
    ("vadd2.s32.u32.u32.sat.add %r1, %r2, %r3, %r4;", "does not go with .add"),
    ("vadd2.s32.u32.u32 %r1, %r2.h40, %r3, %r4;", "chooses no 2 elements"),
    ("vadd4.s32.u32.u32 %r1, %r2.h10, %r3, %r4;", "chooses no 4 elements"),
    ("vadd2.s32.u32.u32 %r1.h11, %r2, %r3, %r4;", "no mask of 2 elements"),
    ("vshl.s32.u32.s32.clamp %r1, %r2, %r3;", "the shift amount is .u32"),
])  # fmt: skip
def test_what_does_not_exist_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        load(kernel(text), ["k"])


@pytest.mark.parametrize("text", [
    "vadd.u32.u32.u32.sat %r1, %r2, %r3;", "vmin.s32.s32.s32.sat %r1.b0, %r2, %r3, %r4;",
    "vshl.s32.s32.u32.sat.clamp %r1, %r2, %r3;", "vadd.u32.s32.s32.min %r1, %r2, %r3, %r4;",
    "vset.s32.u32.eq.max %r1, %r2, %r3, %r4;", "vabsdiff.s32.u32.u32 %r1.h1, %r2, %r3, %r4;",
    "vmad.s32.s32.s32.sat %r1, %r2, %r3, %r4;", "vmad.s32.s32.s32.shr7 %r1, %r2, %r3, %r4;",
])  # fmt: skip
def test_what_an_h200_computes_otherwise_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedError, match="something else than the ISA says"):
        load(kernel(text), ["k"])
