"""Loads, stores, atomics and address arithmetic between state spaces."""

from __future__ import annotations

from typing import Final

from ptxbench.simulator.lower.image import LoweredInstruction, OperandKind, Slot
from ptxbench.simulator.lower.site import NONE, Rules, Site
from ptxbench.simulator.lower.spaces import (
    ATOMIC_OPS,
    ATOMIC_TYPES,
    SCOPES,
    SEMANTICS,
    SHARED,
    SPACES,
    Space,
    result,
    take_cache_hints,
    take_reduction,
)
from ptxbench.simulator.lower.types import TYPES

_VALUES: Final = (*(f"{kind}{bits}" for kind in "bus" for bits in (8, 16, 32, 64)), "f32", "f64", "b128")
_VECTORS: Final = {"v2": 2, "v4": 4, "v8": 8}
_MOST_BITS: Final = 256
_ZERO_EXTENDED: Final = 0
_SIGN_EXTENDED: Final = {16: 1, 32: 2, 64: 3}  # by bits of the destination


def _ld(site: Site) -> LoweredInstruction:
    _take_mmio(site)
    semantics = site.choose(SEMANTICS, "weak")
    if semantics != "weak":
        site.choose(SCOPES, "sys")
    space = site.pick(SPACES, Space.GENERIC)
    site.choose(("ca", "cg", "cs", "lu", "cv"), "ca")
    site.take("nc")
    site.take("unified")
    policy = take_cache_hints(site)
    count = site.pick(_VECTORS, 1)
    type_name = site.choose(_VALUES)
    d, a, *_ = site.arguments(3 if policy else 2)
    if count == 1:
        destinations = [site.destination(d, type_name, wider=True)]
        extension = _extension(type_name, site.bits(d))
    else:
        destinations = site.destinations(d, type_name, count, wider=True)
        extension = _extension(type_name, max(site.bits(element) for element in site.elements(d)))
    size = _element_bytes(site, type_name, count)
    poll = semantics != "weak"
    address = site.memory(a)
    return site.emit(
        "ld", destinations, address, attributes=[_access_space(space, address), size, count, extension, poll]
    )


def _access_space(space: Space, address: Slot) -> Space:
    """A register holds a generic address: of a kernel's parameter, or of a call's argument in local memory."""
    return Space.GENERIC if space is Space.PARAM and address.kind is not OperandKind.PARAM else space


def _element_bytes(site: Site, type_name: str, count: int) -> int:
    bits = TYPES[type_name].bits
    if bits * count > _MOST_BITS:
        site.refuse(f"{count} elements of {bits} bits exceed {_MOST_BITS} bits")
    return bits // 8


def _extension(type_name: str, bits: int) -> int:
    return _SIGN_EXTENDED.get(bits, _ZERO_EXTENDED) if TYPES[type_name].kind == "signed" else _ZERO_EXTENDED


def _st(site: Site) -> LoweredInstruction:
    if site.take("async"):
        return _st_async_mmio(site) if site.take("mmio") else _st_async(site)
    if site.take("bulk"):
        return _st_bulk(site)
    _take_mmio(site)
    semantics = site.choose(SEMANTICS, "weak")
    if semantics != "weak":
        site.choose(SCOPES, "sys")
    space = site.pick(SPACES, Space.GENERIC)
    site.choose(("wb", "cg", "cs", "wt"), "wb")
    policy = take_cache_hints(site)
    count = site.pick(_VECTORS, 1)
    type_name = site.choose(_VALUES)
    a, b, *_ = site.arguments(3 if policy else 2)
    if count == 1:
        sources = [site.source(b, type_name, wider=True)]
    else:
        sources = site.sources(b, type_name, count, wider=True)
    address = site.memory(a)
    attributes = [_access_space(space, address), TYPES[type_name].bits // 8, count, semantics != "weak"]
    return site.emit("st", address, sources, attributes=attributes)


def _take_mmio(site: Site) -> None:
    """Accesses that keep their number and order, as every access here does; they are relaxed ones of the system."""
    if site.take("mmio") and not {"relaxed", "sys"} <= set(site.modifiers):
        site.refuse(".mmio needs .relaxed.sys")


def _st_bulk(site: Site) -> LoweredInstruction:
    site.take("weak")
    space = site.pick(SHARED, Space.GENERIC)
    a, size, value = site.arguments(3)
    if site.integer(value) != 0:
        site.refuse("fills with zeros only")
    return site.emit("st.bulk", site.memory(a), site.source(size, "u64"), attributes=[space])


def _st_async_mmio(site: Site) -> LoweredInstruction:
    """Nothing completes these stores to global memory, so they are complete at once: the earliest that may be seen."""
    site.expect("release", "sys", "global")
    type_name = site.choose(("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64"))
    a, b = site.arguments(2)
    return site.emit(
        "st", site.memory(a), site.source(b, type_name), attributes=[Space.GLOBAL, TYPES[type_name].bits // 8, 1, True]
    )


def _red_async_mmio(site: Site) -> LoweredInstruction:
    site.expect("release", "sys", "global", "add")
    type_name = site.choose(("u32", "s32", "u64"))
    a, b = site.arguments(2)
    attributes = [Space.GLOBAL, ATOMIC_OPS["add"], ATOMIC_TYPES[type_name], 1]
    return site.emit("atom", NONE, site.memory(a), site.source(b, type_name), NONE, attributes=attributes)


def _st_async(site: Site) -> LoweredInstruction:
    site.take("weak")
    site.take("shared::cluster")
    site.expect("mbarrier::complete_tx::bytes")
    count = site.pick({"v2": 2, "v4": 4}, 1)
    type_name = site.choose(("b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"))
    a, b, barrier = site.arguments(3)
    values = [site.source(b, type_name)] if count == 1 else site.sources(b, type_name, count)
    size = TYPES[type_name].bits // 8
    return site.emit("st.async", site.memory(a), site.memory(barrier), values, attributes=[size])


def _atom(site: Site) -> LoweredInstruction:
    return _atomic(site, returns=True)


def _red(site: Site) -> LoweredInstruction:
    if not site.take("async"):
        return _atomic(site, returns=False)
    return _red_async_mmio(site) if site.take("mmio") else _red_async(site)


def _atomic(site: Site, *, returns: bool) -> LoweredInstruction:
    site.choose(SEMANTICS, "relaxed")
    site.choose(SCOPES, "gpu")
    space = site.pick(SPACES, Space.GENERIC)
    policy = take_cache_hints(site)
    if returns and site.take("b128"):
        return _atom_wide(site, space, policy=policy)
    count = site.pick(_VECTORS, 1)
    op, type_name = take_reduction(site)
    arguments = list(site.arguments(returns + 2 + (op == "cas") + policy))
    destinations = [NONE] * count
    if returns:
        d = arguments.pop(0)
        destinations = [site.destination(d, type_name)] if count == 1 else site.destinations(d, type_name, count)
    a, b, *rest = arguments
    values = [site.source(b, type_name)] if count == 1 else site.sources(b, type_name, count)
    swap = site.source(rest[0], type_name) if op == "cas" else NONE
    attributes = [space, ATOMIC_OPS[op], ATOMIC_TYPES[type_name], count]
    return site.emit("atom", destinations, site.memory(a), values, swap, attributes=attributes)


def _atom_wide(site: Site, space: Space, *, policy: bool) -> LoweredInstruction:
    op = site.choose(("exch", "cas"))
    swaps = op == "cas"
    d, a, b, *rest = site.arguments(3 + swaps + policy)
    return site.emit(
        "atom.b128", site.destination(d, "b128"), site.memory(a), site.source(b, "b128"),
        site.source(rest[0], "b128") if swaps else NONE, attributes=[space, ATOMIC_OPS[op]],
    )  # fmt: skip


def _red_async(site: Site) -> LoweredInstruction:
    site.take("relaxed")
    site.take("cluster")
    site.take("shared::cluster")
    site.expect("mbarrier::complete_tx::bytes")
    op, type_name = take_reduction(site)
    a, b, barrier = site.arguments(3)
    attributes = [ATOMIC_OPS[op], ATOMIC_TYPES[type_name]]
    return site.emit(
        "red.async", site.memory(a), site.memory(barrier), site.source(b, type_name), attributes=attributes
    )


def _hint(site: Site) -> LoweredInstruction:
    """``prefetch``, ``prefetchu``, ``applypriority`` and ``discard`` change no result that a program may rely on."""
    site.choose(SPACES, "generic")
    site.choose(("L1", "L2", "tensormap"), "L2")
    site.match(r"L2::evict_(last|normal)")
    site.arguments(1, 2)
    return site.emit("no_effect")


def _createpolicy(site: Site) -> LoweredInstruction:
    site.choose(("fractional", "range", "cvt"))
    if not site.take("L2"):
        while site.match(r"L2::evict_(last|normal|first|unchanged)"):
            pass
    site.take("global")
    site.expect("b64")
    return site.emit("createpolicy", result(site, site.arguments(1, 2, 3, 4)[0], "b64"))


def _cvta(site: Site) -> LoweredInstruction:
    op = "cvta.to" if site.take("to") else "cvta"
    space = site.pick(SPACES)
    type_name = site.choose(("u64", "u32"))
    d, a = site.arguments(2)
    return site.emit(op, result(site, d, type_name), site.source(a, type_name), attributes=[space])


def _isspacep(site: Site) -> LoweredInstruction:
    space = site.pick(SPACES)
    p, a = site.arguments(2)
    type_name = f"u{site.bits(a) or 64}"
    return site.emit("isspacep", site.destination(p, "pred"), site.source(a, type_name), attributes=[space])


def _mapa(site: Site) -> LoweredInstruction:
    site.take("shared::cluster")
    type_name = site.choose(("u32", "u64"))
    d, a, rank = site.arguments(3)
    return site.emit("mapa", result(site, d, type_name), site.source(a, type_name), site.source(rank, "u32"))


def _getctarank(site: Site) -> LoweredInstruction:
    site.take("shared::cluster")
    type_name = site.choose(("u32", "u64"))
    d, a = site.arguments(2)
    return site.emit("getctarank", result(site, d, "u32"), site.source(a, type_name))


RULES: Final[Rules] = {
    "applypriority": _hint,
    "atom": _atom,
    "createpolicy": _createpolicy,
    "cvta": _cvta,
    "discard": _hint,
    "getctarank": _getctarank,
    "isspacep": _isspacep,
    "ld": _ld,
    "ldu": _ld,
    "mapa": _mapa,
    "prefetch": _hint,
    "prefetchu": _hint,
    "red": _red,
    "st": _st,
}
