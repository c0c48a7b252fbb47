"""Floating-point arithmetic. Machine ops are named by base and type; attributes are (rounding, flags).

The flags mirror ``FloatFlag`` in ``machine/float_format.hpp``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ptxbench.simulator.lower.image import LoweredInstruction
from ptxbench.simulator.lower.site import Rules, Site

ROUNDINGS: Final = {"rn": 0, "rz": 1, "rm": 2, "rp": 3}
FTZ, SAT, RELU, NAN, XORSIGN, ABS = 1, 2, 4, 8, 16, 64

HALVES: Final = ("f16", "f16x2", "bf16", "bf16x2")
_SINGLE: Final = ("f32", "f64")
_TYPES: Final = (*HALVES, *_SINGLE, "f32x2")
_F16: Final = ("f16", "f16x2")
_SCALAR_HALVES: Final = ("f16", "bf16")


def _flags(site: Site, *allowed: tuple[str, int]) -> dict[str, int]:
    return {name: flag for name, flag in allowed if site.take(name)}


def _check(site: Site, flags: Collection[str], type_name: str, valid: Mapping[str, Sequence[str]]) -> None:
    for flag in flags:
        if type_name not in valid[flag]:
            site.refuse(f".{flag} does not go with .{type_name}")


def _emit(
    site: Site, type_name: str, sources: Sequence[int], rounding: int, flags: Collection[int], *, base: str = ""
) -> LoweredInstruction:
    d, *rest = site.arguments(*(count + 1 for count in sources))
    return site.emit(
        f"{base or site.base}.{type_name}",
        site.destination(d, type_name), [site.source(operand, type_name) for operand in rest],
        attributes=[rounding, sum(flags)],
    )  # fmt: skip


def _rounding(site: Site, type_name: str, default: int | None = 0) -> int:
    rounding = site.pick(ROUNDINGS, default)
    if rounding and type_name in HALVES:
        site.refuse(f".{type_name} is rounded to nearest only")
    return rounding


def _type(site: Site, allowed: Sequence[str]) -> str:
    """The type, which is the last modifier; it is consumed first so that what else is allowed can depend on it."""
    if not site.modifiers or site.modifiers[-1] not in allowed:
        site.refuse("needs one of ." + ", .".join(allowed) + " as its type")
    return site.choose(allowed)


def _mixed(site: Site) -> LoweredInstruction:
    """``add``, ``sub`` and ``fma`` of halves with an ``f32``: machine op ``<base>.f32.<half>``: d, halves, c."""
    half = _type(site, _SCALAR_HALVES)
    site.expect("f32")
    rounding = _rounding(site, "f32", None)
    flags = _flags(site, ("sat", SAT))
    d, *halves, c = site.arguments(4 if site.base == "fma" else 3)
    return site.emit(
        f"{site.base}.f32.{half}", site.destination(d, "f32"), [site.source(a, half) for a in halves],
        site.source(c, "f32"), attributes=[rounding, sum(flags.values())],
    )  # fmt: skip


def _is_mixed(site: Site) -> bool:
    types = site.modifiers[-2:]
    return len(types) == 2 and types[0] == "f32" and types[1] in _SCALAR_HALVES


def add_sub_mul(site: Site) -> LoweredInstruction:
    """``add``, ``sub`` and ``mul``."""
    if site.base != "mul" and _is_mixed(site):
        return _mixed(site)
    type_name = _type(site, _TYPES)
    rounding = _rounding(site, type_name)
    flags = _flags(site, ("ftz", FTZ), ("sat", SAT))
    _check(site, flags, type_name, {"ftz": ("f32", "f32x2", *_F16), "sat": ("f32", *_F16)})
    return _emit(site, type_name, (2,), rounding, flags.values())


def fma(site: Site) -> LoweredInstruction:
    """``fma``, and ``mad`` of floats, which is the same."""
    if site.base == "fma" and _is_mixed(site):
        return _mixed(site)
    type_name = _type(site, _TYPES)
    rounding = _rounding(site, type_name, None)
    outside = site.base == "fma" and type_name in HALVES and site.take("oob")
    flags = _flags(site, ("relu", RELU)) if outside else _flags(site, ("ftz", FTZ), ("sat", SAT), ("relu", RELU))
    _check(site, flags, type_name, {"ftz": ("f32", "f32x2", *_F16), "sat": ("f32", *_F16), "relu": HALVES})
    return _emit(site, type_name, (3,), rounding, flags.values(), base="fma.oob" if outside else "fma")


def div(site: Site) -> LoweredInstruction:
    """``div``; the approximate forms are computed exactly, which is within their error bounds."""
    type_name = _type(site, _SINGLE)
    approximate = type_name == "f32" and site.choose(("approx", "full"), "") != ""
    rounding = 0 if approximate else _rounding(site, type_name, None)
    flags = _flags(site, ("ftz", FTZ)) if type_name == "f32" else {}
    return _emit(site, type_name, (2,), rounding, flags.values())


def _root(site: Site) -> LoweredInstruction:
    """``rcp`` and ``sqrt``."""
    type_name = _type(site, _SINGLE)
    approximate = site.take("approx")
    if approximate and type_name == "f64":
        if site.base == "sqrt":
            site.refuse("does not exist in double precision")
        site.expect("ftz")
        return _gross(site)
    rounding = 0 if approximate else _rounding(site, type_name, None)
    flags = _flags(site, ("ftz", FTZ)) if type_name == "f32" else {}
    return _emit(site, type_name, (1,), rounding, flags.values())


def _gross(site: Site) -> LoweredInstruction:
    d, a = site.arguments(2)
    return site.emit(f"{site.base}.gross.f64", site.destination(d, "f64"), site.source(a, "f64"))


def _rsqrt(site: Site) -> LoweredInstruction:
    type_name = _type(site, _SINGLE)
    site.expect("approx")
    flags = _flags(site, ("ftz", FTZ))
    if flags and type_name == "f64":
        return _gross(site)
    return _emit(site, type_name, (1,), 0, flags.values())


def _approximate(site: Site) -> LoweredInstruction:
    """``ex2``, ``tanh`` (halves too), ``lg2``, ``sin``, ``cos``."""
    type_name = _type(site, ("f32", *HALVES) if site.base in ("ex2", "tanh") else ("f32",))
    site.expect("approx")
    flags = _flags(site, ("ftz", FTZ))
    if flags and (site.base == "tanh" or type_name in _F16):
        site.refuse(".ftz is not supported here")
    return _emit(site, type_name, (1,), 0, flags.values())


def min_max(site: Site) -> LoweredInstruction:
    """``min`` and ``max`` of two values, or of three in single precision."""
    type_name = _type(site, (*HALVES, *_SINGLE))
    flags = _flags(site, ("ftz", FTZ), ("NaN", NAN))
    if site.take("xorsign"):
        site.expect("abs")
        flags["xorsign"] = XORSIGN
    elif type_name == "f32" and len(site.operands) == 4 and site.take("abs"):
        flags["abs"] = ABS
    valid = {"ftz": ("f32", *_F16), "NaN": ("f32", *HALVES), "xorsign": ("f32", *HALVES), "abs": ("f32",)}
    _check(site, flags, type_name, valid)
    return _emit(site, type_name, (2, 3) if type_name == "f32" else (2,), 0, flags.values())


def abs_neg(site: Site) -> LoweredInstruction:
    """``abs`` and ``neg``."""
    type_name = _type(site, (*HALVES, *_SINGLE))
    flags = _flags(site, ("ftz", FTZ))
    _check(site, flags, type_name, {"ftz": ("f32", *_F16)})
    return _emit(site, type_name, (1,), 0, flags.values())


def _copysign(site: Site) -> LoweredInstruction:
    return _emit(site, _type(site, _SINGLE), (2,), 0, ())


_PROPERTIES: Final = ("finite", "infinite", "number", "notanumber", "normal", "subnormal")


def _testp(site: Site) -> LoweredInstruction:
    """Machine op ``testp.<type>``: p, a; the attribute numbers the property in the order of `_PROPERTIES`."""
    type_name = _type(site, _SINGLE)
    test = _PROPERTIES.index(site.choose(_PROPERTIES))
    p, a = site.arguments(2)
    return site.emit(
        f"testp.{type_name}", site.destination(p, "pred"), site.source(a, type_name), attributes=[test]
    )


def is_float(operand_type: str) -> bool:
    """Whether a base opcode that exists for integers and floats is meant for floats."""
    return operand_type in _TYPES


RULES: Final[Rules] = {
    "copysign": _copysign,
    "cos": _approximate,
    "ex2": _approximate,
    "fma": fma,
    "lg2": _approximate,
    "rcp": _root,
    "rsqrt": _rsqrt,
    "sin": _approximate,
    "sqrt": _root,
    "tanh": _approximate,
    "testp": _testp,
}
