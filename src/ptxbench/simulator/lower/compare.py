"""``setp`` and ``set``.

Machine ops ``setp.<comparison>.<type>``: p, q, a, b, c, and ``set.<comparison>.<type>``: d, a, b, c.
Attributes: boolean operation with c (0 none, 1 and, 2 or, 3 xor), whether subnormals count as zero, and for ``set`` the
value of true.
"""

from __future__ import annotations

from typing import Final

from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import LoweredInstruction, Slot
from ptxbench.simulator.lower.site import NONE, Rules, Site
from ptxbench.simulator.lower.types import BITS, INTEGERS, TYPES, UNSIGNED, plain

_BOOLEANS: Final = {"and": 1, "or": 2, "xor": 3}
_EQUALITY: Final = ("eq", "ne")
_ORDER: Final = ("lt", "le", "gt", "ge")
_UNSIGNED_ORDER: Final = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_UNORDERED: Final = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
_COMPARISONS: Final = (*_EQUALITY, *_ORDER, *_UNSIGNED_ORDER, *_UNORDERED)
_FLOATS: Final = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
_COMPARED: Final = (*BITS, *INTEGERS, *_FLOATS)
_TRUE: Final = {"u32": -1, "s32": -1, "u16": 0xFFFF, "s16": 0xFFFF, "f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}
_PACKED_TRUE: Final = {"f16x2": {"f16x2": 0x3C00, "u32": 0xFFFF, "s32": 0xFFFF},
                       "bf16x2": {"bf16x2": 0x3F80, "u32": 0xFFFF, "s32": 0xFFFF}}  # fmt: skip


def _comparison(site: Site, type_name: str, comparison: str) -> str:
    """The machine's spelling; refuses a comparison that the type does not have."""
    if type_name in _FLOATS:
        valid = comparison in (*_EQUALITY, *_ORDER, *_UNORDERED)
        kind = type_name
    elif type_name in BITS or comparison in _EQUALITY:
        valid = comparison in _EQUALITY
        kind = plain(TYPES[type_name].bits)
    else:
        if type_name in UNSIGNED:
            comparison = _UNSIGNED_ORDER.get(comparison, comparison)
        valid = comparison in _ORDER
        kind = type_name
    if not valid:
        site.refuse(f".{comparison} does not go with .{type_name}")
    return f"{comparison}.{kind}"


def _flush(site: Site, type_name: str) -> bool:
    flush = site.take("ftz")
    if flush and type_name not in ("f32", "f16", "f16x2"):
        site.refuse(f".ftz does not go with .{type_name}")
    return flush


def _third(site: Site, boolean: int, rest: list[ptx.Operand]) -> Slot:
    return site.source(rest[0], "pred") if boolean else NONE


def _setp(site: Site) -> LoweredInstruction:
    comparison = site.choose(_COMPARISONS)
    boolean = site.pick(_BOOLEANS, 0)
    type_name = site.choose(_COMPARED)
    d, a, b, *rest = site.arguments(4 if boolean else 3)
    p, q = site.pair(d)
    return site.emit(
        f"setp.{_comparison(site, type_name, comparison)}",
        site.destination(p, "pred"), site.destination(q, "pred") if q else NONE,
        site.source(a, type_name), site.source(b, type_name), _third(site, boolean, rest),
        attributes=[boolean, _flush(site, type_name)],
    )  # fmt: skip


def _set(site: Site) -> LoweredInstruction:
    comparison = site.choose(_COMPARISONS)
    boolean = site.pick(_BOOLEANS, 0)
    type_name = site.modifiers[-1] if site.modifiers else ""
    results = _PACKED_TRUE.get(type_name, _TRUE)
    result = site.choose(tuple(results))
    site.expect(type_name)
    if type_name not in _COMPARED:
        site.refuse("needs a type to compare")
    d, a, b, *rest = site.arguments(4 if boolean else 3)
    return site.emit(
        f"set.{_comparison(site, type_name, comparison)}",
        site.destination(d, result), site.source(a, type_name), site.source(b, type_name),
        _third(site, boolean, rest), attributes=[boolean, _flush(site, type_name), results[result]],
    )  # fmt: skip


RULES: Final[Rules] = {
    "set": _set,
    "setp": _setp,
}
