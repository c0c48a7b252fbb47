"""Integer arithmetic and bit operations.

Machine ops: results that do not depend on signedness are named by width (``add.b32``), others by type (``mul.hi.s32``).
"""

from __future__ import annotations

from typing import Final

from ptxbench.simulator.lower.image import LoweredInstruction
from ptxbench.simulator.lower.site import NONE, Rules, Site
from ptxbench.simulator.lower.types import BITS, INTEGERS, SIGNED, TYPES, plain

_WIDE: Final = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
_WORDS: Final = ("u32", "s32", "u64", "s64")
_PACKED: Final = ("u16x2", "s16x2")
_PRMT_MODES: Final = ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")


def _bits_of(type_name: str) -> str:
    return plain(TYPES[type_name].bits)


def _same(site: Site, op: str, type_name: str, sources: int) -> LoweredInstruction:
    """An instruction whose operands all have one type."""
    d, *rest = site.arguments(1 + sources)
    return site.emit(op, site.destination(d, type_name), [site.source(a, type_name) for a in rest])


def add_or_sub(site: Site) -> LoweredInstruction:
    """``add`` and ``sub`` of integers, with saturation or with the carry flag as result."""
    if site.take("cc"):
        return _carry_chain(site, site.base, reads=False, writes=True)
    saturate = site.take("sat")
    type_name = site.choose(INTEGERS + _PACKED)
    if saturate:
        if type_name != "s32":
            site.refuse(".sat needs .s32")
        return _same(site, f"{site.base}.sat.s32", type_name, 2)
    suffix = "b16x2" if type_name in _PACKED else _bits_of(type_name)
    return _same(site, f"{site.base}.{suffix}", type_name, 2)


def _add_or_sub_carry(site: Site) -> LoweredInstruction:
    return _carry_chain(site, site.base[:3], reads=True, writes=site.take("cc"))


def _carry_chain(site: Site, base: str, *, reads: bool, writes: bool) -> LoweredInstruction:
    """Machine op ``addc``/``subc``: d, a, b, carry in, carry out."""
    type_name = site.choose(_WORDS)
    d, a, b = site.arguments(3)
    return site.emit(
        f"{base}c.{_bits_of(type_name)}",
        site.destination(d, type_name), site.source(a, type_name), site.source(b, type_name),
        site.carry() if reads else NONE, site.carry() if writes else NONE,
    )  # fmt: skip


def mul(site: Site) -> LoweredInstruction:
    """``mul.lo``, ``.hi`` and ``.wide`` of integers."""
    part = site.choose(("lo", "hi", "wide"))
    if part == "wide":
        type_name = site.choose(_WIDE)
        d, a, b = site.arguments(3)
        return site.emit(
            f"mul.wide.{type_name}",
            site.destination(d, _WIDE[type_name]), site.source(a, type_name), site.source(b, type_name),
        )  # fmt: skip
    type_name = site.choose(INTEGERS)
    return _same(site, f"mul.{part}.{_bits_of(type_name) if part == 'lo' else type_name}", type_name, 2)


def mad(site: Site) -> LoweredInstruction:
    """``mad.lo``, ``.hi`` and ``.wide`` of integers."""
    part = site.choose(("lo", "hi", "wide"))
    if part == "wide":
        type_name = site.choose(_WIDE)
        wide = _WIDE[type_name]
        d, a, b, c = site.arguments(4)
        return site.emit(
            f"mad.wide.{type_name}",
            site.destination(d, wide), site.source(a, type_name), site.source(b, type_name), site.source(c, wide),
        )  # fmt: skip
    if site.take("cc"):
        return _mad_carry_chain(site, part, reads=False, writes=True)
    saturate = site.take("sat")
    type_name = site.choose(INTEGERS)
    if saturate:
        if (part, type_name) != ("hi", "s32"):
            site.refuse(".sat needs .hi.s32")
        return _same(site, "mad.hi.sat.s32", type_name, 3)
    return _same(site, f"mad.{part}.{_bits_of(type_name) if part == 'lo' else type_name}", type_name, 3)


def _madc(site: Site) -> LoweredInstruction:
    return _mad_carry_chain(site, site.choose(("lo", "hi")), reads=True, writes=site.take("cc"))


def _mad_carry_chain(site: Site, part: str, *, reads: bool, writes: bool) -> LoweredInstruction:
    """Machine op ``madc``: d, a, b, c, carry in, carry out."""
    type_name = site.choose(_WORDS)
    d, *sources = site.arguments(4)
    return site.emit(
        f"madc.{part}.{_bits_of(type_name) if part == 'lo' else type_name}",
        site.destination(d, type_name), [site.source(a, type_name) for a in sources],
        site.carry() if reads else NONE, site.carry() if writes else NONE,
    )  # fmt: skip


def _mul24(site: Site) -> LoweredInstruction:
    part = site.choose(("lo", "hi"))
    part += ".sat" if part == "hi" and site.base == "mad24" and site.take("sat") else ""
    type_name = site.choose(("s32",) if part == "hi.sat" else ("u32", "s32"))
    return _same(site, f"{site.base}.{part}.{type_name}", type_name, 2 if site.base == "mul24" else 3)


def div_or_rem(site: Site) -> LoweredInstruction:
    """Integer ``div`` and ``rem``."""
    type_name = site.choose(INTEGERS)
    return _same(site, f"{site.base}.{type_name}", type_name, 2)


def min_or_max(site: Site) -> LoweredInstruction:
    """Integer ``min`` and ``max``; attribute: whether negative results become 0."""
    relu = site.take("relu")
    type_name = site.choose(INTEGERS + _PACKED)
    if relu and type_name not in ("s32", "s16x2"):
        site.refuse(".relu needs .s32 or .s16x2")
    d, a, b = site.arguments(3)
    return site.emit(
        f"{site.base}.{type_name}",
        site.destination(d, type_name), site.source(a, type_name), site.source(b, type_name),
        attributes=[relu],
    )  # fmt: skip


def abs_(site: Site) -> LoweredInstruction:
    """Integer ``abs``."""
    type_name = site.choose(SIGNED)
    return _same(site, f"abs.{type_name}", type_name, 1)


def neg(site: Site) -> LoweredInstruction:
    """Integer ``neg``."""
    type_name = site.choose(SIGNED)
    return _same(site, f"neg.{_bits_of(type_name)}", type_name, 1)


def _sad(site: Site) -> LoweredInstruction:
    type_name = site.choose(INTEGERS)
    return _same(site, f"sad.{type_name}", type_name, 3)


def _logic(site: Site) -> LoweredInstruction:
    type_name = site.choose(BITS if site.base == "cnot" else ("pred", *BITS))
    return _same(site, f"{site.base}.{type_name}", type_name, 1 if site.base in ("not", "cnot") else 2)


def _shift(site: Site) -> LoweredInstruction:
    type_name = site.choose(BITS if site.base == "shl" else BITS + INTEGERS)
    d, a, amount = site.arguments(3)
    op = type_name if TYPES[type_name].kind == "signed" else _bits_of(type_name)
    return site.emit(
        f"{site.base}.{op}", site.destination(d, type_name), site.source(a, type_name), site.source(amount, "u32")
    )


def _funnel_shift(site: Site) -> LoweredInstruction:
    direction = site.choose(("l", "r"))
    mode = site.choose(("clamp", "wrap"))
    type_name = site.choose(("b32",))
    return _same(site, f"shf.{direction}.{mode}", type_name, 3)


def _bfe(site: Site) -> LoweredInstruction:
    type_name = site.choose(_WORDS)
    d, a, start, length = site.arguments(4)
    return site.emit(
        f"bfe.{type_name}",
        site.destination(d, type_name), site.source(a, type_name),
        site.source(start, "u32"), site.source(length, "u32"),
    )  # fmt: skip


def _bfi(site: Site) -> LoweredInstruction:
    type_name = site.choose(("b32", "b64"))
    d, a, b, start, length = site.arguments(5)
    return site.emit(
        f"bfi.{type_name}",
        site.destination(d, type_name), site.source(a, type_name), site.source(b, type_name),
        site.source(start, "u32"), site.source(length, "u32"),
    )  # fmt: skip


def _bfind(site: Site) -> LoweredInstruction:
    shift_amount = site.take("shiftamt")
    type_name = site.choose(_WORDS)
    d, a = site.arguments(2)
    return site.emit(
        f"bfind.{type_name}", site.destination(d, "u32"), site.source(a, type_name), attributes=[shift_amount]
    )


def _fns(site: Site) -> LoweredInstruction:
    site.expect("b32")
    d, mask, base, offset = site.arguments(4)
    return site.emit(
        "fns.b32", site.destination(d, "b32"), site.source(mask, "b32"), site.source(base, "b32"),
        site.source(offset, "s32"),
    )  # fmt: skip


def _count(site: Site) -> LoweredInstruction:
    type_name = site.choose(("b32", "b64"))
    d, a = site.arguments(2)
    return site.emit(f"{site.base}.{type_name}", site.destination(d, "u32"), site.source(a, type_name))


def _brev(site: Site) -> LoweredInstruction:
    type_name = site.choose(("b32", "b64"))
    return _same(site, f"brev.{type_name}", type_name, 1)


def _prmt(site: Site) -> LoweredInstruction:
    site.expect("b32")
    mode = site.choose(_PRMT_MODES, "index")
    return _same(site, f"prmt.{mode}", "b32", 3)


def _lop3(site: Site) -> LoweredInstruction:
    """Machine op ``lop3``: d, a, b, c, p, q with the table and the predicate operation (0 none, 1 and, 2 or)."""
    combine = site.pick({"and": 1, "or": 2}, 0)
    site.expect("b32")
    d, a, b, c, table, *q = site.arguments(6 if combine else 5)
    value, predicate = site.pair(d)
    lut = site.integer(table)
    if not 0 <= lut < 256 or (predicate is None) != (combine == 0):
        site.refuse("lookup table or predicate operands are wrong")
    return site.emit(
        "lop3",
        site.destination(value, "b32"), [site.source(x, "b32") for x in (a, b, c)],
        site.destination(predicate, "pred") if predicate else NONE, site.source(q[0], "pred") if q else NONE,
        attributes=[lut, combine],
    )  # fmt: skip


def _dot_product(site: Site) -> LoweredInstruction:
    """``dp4a`` and ``dp2a``; the order of the type modifiers is (type of a, type of b)."""
    half = site.choose(("lo", "hi")) if site.base == "dp2a" else ""
    a_type = site.choose(("u32", "s32"))
    b_type = site.choose(("u32", "s32"))
    d, a, b, c = site.arguments(4)
    return site.emit(
        ".".join(part for part in (site.base, half, a_type, b_type) if part),
        site.destination(d, "s32"), site.source(a, a_type), site.source(b, b_type), site.source(c, "s32"),
    )  # fmt: skip


def _szext(site: Site) -> LoweredInstruction:
    mode = site.choose(("clamp", "wrap"))
    type_name = site.choose(("u32", "s32"))
    return _same(site, f"szext.{mode}.{type_name}", type_name, 2)


def _bmsk(site: Site) -> LoweredInstruction:
    mode = site.choose(("clamp", "wrap"))
    site.expect("b32")
    return _same(site, f"bmsk.{mode}", "b32", 2)


RULES: Final[Rules] = {
    "addc": _add_or_sub_carry,
    "and": _logic,
    "bfe": _bfe,
    "bfi": _bfi,
    "bfind": _bfind,
    "bmsk": _bmsk,
    "brev": _brev,
    "clz": _count,
    "cnot": _logic,
    "dp2a": _dot_product,
    "dp4a": _dot_product,
    "fns": _fns,
    "lop3": _lop3,
    "mad24": _mul24,
    "madc": _madc,
    "mul24": _mul24,
    "not": _logic,
    "or": _logic,
    "popc": _count,
    "prmt": _prmt,
    "rem": div_or_rem,
    "sad": _sad,
    "shf": _funnel_shift,
    "shl": _shift,
    "shr": _shift,
    "subc": _add_or_sub_carry,
    "szext": _szext,
    "xor": _logic,
}
