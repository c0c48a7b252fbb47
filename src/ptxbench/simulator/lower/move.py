"""``mov``: copies, packing and unpacking of vectors, addresses, clocks; ``selp`` and ``slct``."""

from __future__ import annotations

from typing import Final

from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import LoweredInstruction
from ptxbench.simulator.lower.site import Rules, Site
from ptxbench.simulator.lower.types import BITS, INTEGERS, TYPES, plain

_MOVABLE: Final = ("pred", *BITS, *INTEGERS, "f32", "f64", "b128")
_SELECTABLE: Final = (*BITS, *INTEGERS, "f32", "f64")

# Registers that change while a warp runs: (bits, right shift of the 64-bit counter).
_CLOCKS: Final = {
    "%clock": (32, 0), "%clock_hi": (32, 32), "%clock64": (64, 0),
    "%globaltimer": (64, 0), "%globaltimer_lo": (32, 0), "%globaltimer_hi": (32, 32),
}  # fmt: skip


def _mov(site: Site) -> LoweredInstruction:
    type_name = site.choose(_MOVABLE)
    d, a = site.arguments(2)
    if isinstance(a, ptx.Vector):
        return _pack(site, type_name, d, a)
    if isinstance(d, ptx.Vector):
        return _unpack(site, type_name, d, a)
    if isinstance(a, ptx.Name) and a.text in _CLOCKS:
        return _clock(site, type_name, d, a.text)
    op = "mov.pred" if type_name == "pred" else f"mov.{plain(TYPES[type_name].bits)}"
    return site.emit(op, site.destination(d, type_name), site.source(a, type_name))


def _clock(site: Site, type_name: str, d: ptx.Operand, name: str) -> LoweredInstruction:
    bits, shift = _CLOCKS[name]
    if TYPES[type_name].bits != bits:
        site.refuse(f"{name} has {bits} bits")
    return site.emit(f"clock.b{bits}", site.destination(d, type_name), attributes=[shift])


def _pack(site: Site, type_name: str, d: ptx.Operand, a: ptx.Vector) -> LoweredInstruction:
    """Machine op ``pack.<total bits>``: d, elements, lowest first; attribute: bits of an element."""
    element = _element(site, type_name, a)
    return site.emit(
        f"pack.b{TYPES[type_name].bits}",
        site.destination(d, type_name), site.sources(a, element), attributes=[TYPES[element].bits],
    )  # fmt: skip


def _unpack(site: Site, type_name: str, d: ptx.Vector, a: ptx.Operand) -> LoweredInstruction:
    """Machine op ``unpack.<total bits>``: a, then the elements; attribute: bits of an element."""
    element = _element(site, type_name, d)
    return site.emit(
        f"unpack.b{TYPES[type_name].bits}",
        site.source(a, type_name), site.destinations(d, element), attributes=[TYPES[element].bits],
    )  # fmt: skip


def _element(site: Site, type_name: str, vector: ptx.Vector) -> str:
    total, count = TYPES[type_name].bits, len(vector.elements)
    if count not in ((2, 4) if total == 128 else (2, 4, 8)) or total // count < 8 or total == 1:
        site.refuse(f"a vector of {count} does not fill .{type_name}")
    return plain(total // count)


def _selp(site: Site) -> LoweredInstruction:
    """Machine op ``selp.b<bits>``: d, a, b, p."""
    type_name = site.choose(_SELECTABLE)
    d, a, b, p = site.arguments(4)
    return site.emit(
        f"selp.{plain(TYPES[type_name].bits)}",
        site.destination(d, type_name), site.source(a, type_name), site.source(b, type_name), site.source(p, "pred"),
    )  # fmt: skip


def _slct(site: Site) -> LoweredInstruction:
    """Machine op ``slct.b<bits>.<type of c>``: d, a, b, c; attribute: whether subnormal c counts as zero."""
    flush = site.take("ftz")
    type_name = site.choose(_SELECTABLE)
    selector = site.choose(("s32", "f32"))
    d, a, b, c = site.arguments(4)
    return site.emit(
        f"slct.{plain(TYPES[type_name].bits)}.{selector}",
        site.destination(d, type_name), site.source(a, type_name), site.source(b, type_name), site.source(c, selector),
        attributes=[flush],
    )  # fmt: skip


RULES: Final[Rules] = {
    "mov": _mov,
    "selp": _selp,
    "slct": _slct,
}
