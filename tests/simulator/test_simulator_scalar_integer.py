"""Integer instructions, executed and compared with Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from simulator_scalar import evaluate

RANDOM = np.random.default_rng(7)
COUNT = 512
EDGES = [
    0,
    1,
    -1,
    2,
    -2,
    3,
    7,
    8,
    31,
    32,
    33,
    63,
    64,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0x7FFFFFFF,
    -0x80000000,
    2**63 - 1,
    -(2**63),
]


def sample(bits: int, seed: int) -> np.ndarray:
    """Edge cases first, then random values of all magnitudes."""
    random = np.random.default_rng(seed)
    edges = np.array([random.choice(EDGES) for _ in range(COUNT // 2)], dtype=object)
    magnitudes = [int(random.integers(0, 2**63)) >> int(random.integers(0, 63)) for _ in range(COUNT // 2)]
    signs = random.choice([-1, 1], COUNT // 2)
    values = [*edges, *(m * int(s) for m, s in zip(magnitudes, signs, strict=True))]
    return np.array([int(value) & (2**bits - 1) for value in values], dtype=f"uint{bits}")


def signed(value: int, bits: int) -> int:
    value &= 2**bits - 1
    return value - 2**bits if value >= 2 ** (bits - 1) else value


def check(text: str, reference: Callable[..., int], *bits: int, result: int, is_signed: bool = False) -> None:
    """``bits`` are the widths of a, b, c; the reference gets Python integers, signed if asked."""
    inputs = [sample(width, seed) for seed, width in enumerate(bits)]
    got = evaluate(text, *inputs, result=f"uint{result}")
    convert = signed if is_signed else (lambda value, width: value)
    rows = zip(*(array.tolist() for array in inputs), strict=True)
    expected = [
        reference(*(convert(value, width) for value, width in zip(row, bits, strict=True))) & (2**result - 1)
        for row in rows
    ]
    wrong = [
        (row, hex(e), hex(g))
        for row, e, g in zip(zip(*inputs, strict=True), expected, got.tolist(), strict=True)
        if e != g
    ]
    assert not wrong, f"{len(wrong)} wrong, first {wrong[0]}"


def divide(a: int, b: int) -> int:
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return a if b == 0 else a - b * divide(a, b)


def clamp(value: int, bits: int = 32) -> int:
    return max(-(2 ** (bits - 1)), min(2 ** (bits - 1) - 1, value))


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("kind", ["u", "s"])
def test_arithmetic(bits: int, kind: str) -> None:
    t, s = f"{kind}{bits}", kind == "s"
    check(f"add.{t} d, a, b;", lambda a, b: a + b, bits, bits, result=bits, is_signed=s)
    check(f"sub.{t} d, a, b;", lambda a, b: a - b, bits, bits, result=bits, is_signed=s)
    check(f"mul.lo.{t} d, a, b;", lambda a, b: a * b, bits, bits, result=bits, is_signed=s)
    check(f"mul.hi.{t} d, a, b;", lambda a, b: (a * b) >> bits, bits, bits, result=bits, is_signed=s)
    check(f"mad.lo.{t} d, a, b, c;", lambda a, b, c: a * b + c, bits, bits, bits, result=bits, is_signed=s)
    check(f"mad.hi.{t} d, a, b, c;", lambda a, b, c: ((a * b) >> bits) + c, bits, bits, bits, result=bits, is_signed=s)
    check(f"div.{t} d, a, b;", divide, bits, bits, result=bits, is_signed=s)
    check(f"rem.{t} d, a, b;", remainder, bits, bits, result=bits, is_signed=s)
    check(f"min.{t} d, a, b;", min, bits, bits, result=bits, is_signed=s)
    check(f"max.{t} d, a, b;", max, bits, bits, result=bits, is_signed=s)
    check(f"sad.{t} d, a, b, c;", lambda a, b, c: abs(a - b) + c, bits, bits, bits, result=bits, is_signed=s)
    check(f"shr.{t} d, a, b;", lambda a, b: a >> min(b & (2**32 - 1), bits), bits, 32, result=bits, is_signed=s)
    if s:
        check(f"abs.{t} d, a;", abs, bits, result=bits, is_signed=True)
        check(f"neg.{t} d, a;", lambda a: -a, bits, result=bits, is_signed=True)
    if bits < 64:
        wide = 2 * bits
        check(f"mul.wide.{t} d, a, b;", lambda a, b: a * b, bits, bits, result=wide, is_signed=s)
        check(f"mad.wide.{t} d, a, b, c;", lambda a, b, c: a * b + c, bits, bits, wide, result=wide, is_signed=s)


def test_saturation() -> None:
    check("add.sat.s32 d, a, b;", lambda a, b: clamp(a + b), 32, 32, result=32, is_signed=True)
    check("sub.sat.s32 d, a, b;", lambda a, b: clamp(a - b), 32, 32, result=32, is_signed=True)
    check(
        "mad.hi.sat.s32 d, a, b, c;", lambda a, b, c: clamp(((a * b) >> 32) + c), 32, 32, 32, result=32, is_signed=True
    )
    check("max.relu.s32 d, a, b;", lambda a, b: max(a, b, 0), 32, 32, result=32, is_signed=True)


def test_24_bit_products() -> None:
    low = lambda a: a & 0xFFFFFF  # noqa: E731
    check("mul24.lo.u32 d, a, b;", lambda a, b: low(a) * low(b), 32, 32, result=32)
    check("mul24.hi.u32 d, a, b;", lambda a, b: low(a) * low(b) >> 16, 32, 32, result=32)
    check("mad24.lo.s32 d, a, b, c;", lambda a, b, c: signed(a, 24) * signed(b, 24) + c, 32, 32, 32, result=32)
    check(
        "mad24.hi.sat.s32 d, a, b, c;",
        lambda a, b, c: min(max((signed(a, 24) * signed(b, 24) >> 16) + c, -(2**31)), 2**31 - 1),
        32, 32, 32, result=32, is_signed=True,
    )  # fmt: skip
    check("mul24.hi.s32 d, a, b;", lambda a, b: signed(a, 24) * signed(b, 24) >> 16, 32, 32, result=32)


@pytest.mark.parametrize("bits", [32, 64])
def test_carry_chains(bits: int) -> None:
    t = f"u{bits}"
    carry = lambda value: value >> bits & 1  # noqa: E731
    for extra in ("", ".cc"):
        check(
            f"add.cc.{t} d, a, b; addc{extra}.{t} d, c, 0;",
            lambda a, b, c: c + carry(a + b),
            bits,
            bits,
            bits,
            result=bits,
        )
    check(f"sub.cc.{t} d, a, b; subc.{t} d, c, 0;", lambda a, b, c: c - (a < b), bits, bits, bits, result=bits)
    check(
        f"sub.cc.{t} d, a, b; subc.cc.{t} d, a, c; subc.{t} d, 7, 1;",
        lambda a, b, c: 6 - (a < c + (a < b)), bits, bits, bits, result=bits,
    )  # fmt: skip
    check(
        f"add.cc.{t} d, a, b; addc.cc.{t} d, a, c; addc.{t} d, 0, 0;",
        lambda a, b, c: a + c + carry(a + b) >> bits, bits, bits, bits, result=bits,
    )  # fmt: skip
    check(
        f"mad.lo.cc.{t} d, a, b, c; madc.hi.{t} d, a, b, 0;",
        lambda a, b, c: (a * b + c) >> bits,
        bits,
        bits,
        bits,
        result=bits,
    )


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_logic_and_shifts(bits: int) -> None:
    for op, function in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)):
        check(f"{op}.b{bits} d, a, b;", function, bits, bits, result=bits)
    check(f"not.b{bits} d, a;", lambda a: ~a, bits, result=bits)
    check(f"cnot.b{bits} d, a;", lambda a: int(a == 0), bits, result=bits)
    check(f"shl.b{bits} d, a, b;", lambda a, b: a << min(b, bits), bits, 32, result=bits)
    check(f"shr.b{bits} d, a, b;", lambda a, b: a >> min(b, bits), bits, 32, result=bits)


def test_funnel_shifts() -> None:
    both = lambda a, b: b << 32 | a  # noqa: E731
    check("shf.l.clamp.b32 d, a, b, c;", lambda a, b, c: both(a, b) << min(c, 32) >> 32, 32, 32, 32, result=32)
    check("shf.l.wrap.b32 d, a, b, c;", lambda a, b, c: both(a, b) << (c & 31) >> 32, 32, 32, 32, result=32)
    check("shf.r.clamp.b32 d, a, b, c;", lambda a, b, c: both(a, b) >> min(c, 32), 32, 32, 32, result=32)
    check("shf.r.wrap.b32 d, a, b, c;", lambda a, b, c: both(a, b) >> (c & 31), 32, 32, 32, result=32)


@pytest.mark.parametrize("bits", [32, 64])
def test_bit_fields(bits: int) -> None:
    extent = 255 if bits == 32 else 2**32 - 1  # as hardware has it, see test_simulator_golden_findings.py

    def extract(a: int, start: int, length: int, *, sign: bool) -> int:
        start, length = start & extent, length & extent
        last = a >> min(start + length - 1, bits - 1) & 1 if sign and length else 0
        return sum((a >> start + i & 1 if i < length and start + i < bits else last) << i for i in range(bits))

    def insert(a: int, b: int, start: int, length: int) -> int:
        start, length = start & extent, length & extent
        for i in range(min(length, bits)):
            if start + i < bits:
                b = b & ~(1 << start + i) | (a >> i & 1) << start + i
        return b

    check(f"bfe.u{bits} d, a, b, c;", lambda a, b, c: extract(a, b, c, sign=False), bits, 32, 32, result=bits)
    check(f"bfe.s{bits} d, a, b, c;", lambda a, b, c: extract(a, b, c, sign=True), bits, 32, 32, result=bits)
    check(f"bfi.b{bits} d, a, b, c, x;", insert, bits, bits, 32, 32, result=bits)


@pytest.mark.parametrize("bits", [32, 64])
def test_counts(bits: int) -> None:
    check(f"popc.b{bits} d, a;", int.bit_count, bits, result=32)
    check(f"clz.b{bits} d, a;", lambda a: bits - a.bit_length(), bits, result=32)
    check(f"brev.b{bits} d, a;", lambda a: int(f"{a:0{bits}b}"[::-1], 2), bits, result=bits)
    check(f"bfind.u{bits} d, a;", lambda a: a.bit_length() - 1, bits, result=32)
    magnitude = lambda a: (~a if a < 0 else a).bit_length()  # noqa: E731
    check(f"bfind.s{bits} d, a;", lambda a: magnitude(a) - 1, bits, result=32, is_signed=True)
    check(f"bfind.shiftamt.u{bits} d, a;", lambda a: bits - a.bit_length() if a else -1, bits, result=32)


def test_permutations() -> None:
    def permute(a: int, b: int, select: list[int]) -> int:
        data = (b << 32 | a).to_bytes(8, "little")
        picked = [(0xFF if data[s & 7] >> 7 else 0) if s & 8 else data[s & 7] for s in select]
        return int.from_bytes(bytes(picked), "little")

    check(
        "prmt.b32 d, a, b, c;",
        lambda a, b, c: permute(a, b, [c >> 4 * i & 15 for i in range(4)]),
        32,
        32,
        32,
        result=32,
    )
    # The rows of the PTX manual's table: selectors of byte 3 .. byte 0 for c = 0, 1, 2, 3.
    for mode, rows in {
        "f4e": ["3210", "4321", "5432", "6543"], "b4e": ["5670", "6701", "7012", "0123"],
        "rc8": ["0000", "1111", "2222", "3333"], "ecl": ["3210", "3211", "3222", "3333"],
        "ecr": ["0000", "1110", "2210", "3210"], "rc16": ["1010", "3232", "1010", "3232"],
    }.items():  # fmt: skip
        check(
            f"prmt.b32.{mode} d, a, b, c;",
            lambda a, b, c, rows=rows: permute(a, b, [int(digit) for digit in reversed(rows[c & 3])]),
            32, 32, 32, result=32,
        )  # fmt: skip


@pytest.mark.parametrize("table", [0x00, 0x80, 0x96, 0xCA, 0xE8, 0xFF])
def test_lookup(table: int) -> None:
    def lookup(a: int, b: int, c: int) -> int:
        return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))

    check(f"lop3.b32 d, a, b, c, {table};", lookup, 32, 32, 32, result=32)
    check(
        f"setp.lt.u32 q, a, b; lop3.or.b32 r0|p, a, b, c, {table}, q; selp.u32 d, 1, 0, p;",
        lambda a, b, c: int(lookup(a, b, c) != 0 or a < b), 32, 32, 32, result=32,
    )  # fmt: skip


def test_dot_products() -> None:
    def parts(value: int, width: int, count: int, *, sign: bool) -> list[int]:
        fields = [value >> width * i & (2**width - 1) for i in range(count)]
        return [signed(field, width) for field in fields] if sign else fields

    for a_kind in "us":
        for b_kind in "us":

            def four(a: int, b: int, c: int, x: bool = a_kind == "s", y: bool = b_kind == "s") -> int:
                return c + sum(p * q for p, q in zip(parts(a, 8, 4, sign=x), parts(b, 8, 4, sign=y), strict=True))

            def two(a: int, b: int, c: int, x: bool = a_kind == "s", y: bool = b_kind == "s") -> int:
                return c + sum(p * q for p, q in zip(parts(a, 16, 2, sign=x), parts(b, 8, 4, sign=y)[2:], strict=True))

            check(f"dp4a.{a_kind}32.{b_kind}32 d, a, b, c;", four, 32, 32, 32, result=32)
            check(f"dp2a.hi.{a_kind}32.{b_kind}32 d, a, b, c;", two, 32, 32, 32, result=32)


def test_packed_halves() -> None:
    def both(a: int, b: int, function: Callable[[int, int], int]) -> int:
        return function(a & 0xFFFF, b & 0xFFFF) & 0xFFFF | (function(a >> 16, b >> 16) & 0xFFFF) << 16

    check("add.u16x2 d, a, b;", lambda a, b: both(a, b, int.__add__), 32, 32, result=32)
    check("max.u16x2 d, a, b;", lambda a, b: both(a, b, max), 32, 32, result=32)
    smaller = lambda x, y: max(0, min(signed(x, 16), signed(y, 16)))  # noqa: E731
    check("min.relu.s16x2 d, a, b;", lambda a, b: both(a, b, smaller), 32, 32, result=32)


def test_small_extensions() -> None:
    check("szext.wrap.s32 d, a, b;", lambda a, b: signed(a, b & 31) if b & 31 else 0, 32, 32, result=32)
    check("szext.clamp.u32 d, a, b;", lambda a, b: a & (2 ** min(b, 32) - 1), 32, 32, result=32)
    check("bmsk.clamp.b32 d, a, b;", lambda a, b: (2 ** min(b, 32) - 1) << min(a, 32), 32, 32, result=32)
    check("bmsk.wrap.b32 d, a, b;", lambda a, b: (2 ** (b & 31) - 1) << (a & 31), 32, 32, result=32)
