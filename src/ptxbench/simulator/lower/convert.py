"""``cvt``.

Machine ops:

- ``cvt.i<32|64>.<source>``: integer to integer; attributes: bits and signedness of the result type, bits of the
  destination register, saturation;
- ``cvt.<result>.<source>`` for every other scalar pair; attributes: rounding, flags, bits of the destination register;
- ``cvt.<packed>.f32``: d, high, low; ``cvt.<packed>.<packed>``: d, a. Same attributes.

Roundings 0-3 are rn, rz, rm, rp; 4-7 the same to an integer; 8 is rna.
"""

from __future__ import annotations

from typing import Final

from ptxbench.simulator.lower.floating import FTZ, RELU, SAT
from ptxbench.simulator.lower.image import LoweredInstruction
from ptxbench.simulator.lower.site import Rules, Site
from ptxbench.simulator.lower.types import TYPES

SATFINITE = 32

_ROUNDINGS: Final = {"rn": 0, "rz": 1, "rm": 2, "rp": 3, "rni": 4, "rzi": 5, "rmi": 6, "rpi": 7, "rna": 8}
_INTEGRAL: Final = (4, 5, 6, 7)
_INTEGERS: Final = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_FLOATS: Final = ("f16", "bf16", "f32", "f64")
_SCALARS: Final = (*_INTEGERS, *_FLOATS, "tf32")
_NARROW: Final = ("e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2")
_PACKED: Final = ("f16x2", "bf16x2", "ue8m0x2", *_NARROW)
_TYPES: Final = (*_SCALARS, *_PACKED)
_FLAGS: Final = {"ftz": FTZ, "sat": SAT, "relu": RELU, "satfinite": SATFINITE}


def _cvt(site: Site) -> LoweredInstruction:
    if site.modifiers[:1] == ("pack",):
        return _cvt_pack(site)
    if site.take("rs"):
        return _cvt_stochastic(site)
    types = site.modifiers[-2:]
    if len(types) != 2 or any(name not in _TYPES for name in types):
        site.refuse("this pair of types is not supported")
    result, source = types
    for name in types:
        site.take(name)
    if result in _PACKED or source in _PACKED:
        return _cvt_packed(site, result, source)
    if result in _INTEGERS and source in _INTEGERS:
        return _cvt_integer(site, result, source)
    return _cvt_scalar(site, result, source)


def _cvt_integer(site: Site, result: str, source: str) -> LoweredInstruction:
    saturate = site.take("sat")
    d, a = site.arguments(2)
    to = TYPES[result]
    return site.emit(
        f"cvt.i{to.storage}.{source}", site.destination(d, result), site.source(a, source),
        attributes=[to.bits, to.kind == "signed", _register_bits(site, result), saturate],
    )  # fmt: skip


def _cvt_scalar(site: Site, result: str, source: str) -> LoweredInstruction:
    rounding = site.pick(_ROUNDINGS, -1)
    flags = sum(flag for name, flag in _FLAGS.items() if site.take(name))
    _check_rounding(site, result, source, rounding)
    if source in _INTEGERS and flags & ~SAT:
        site.refuse("only .sat goes with an integer source")
    if flags & (RELU | SATFINITE) and result not in ("f16", "bf16", "tf32"):
        site.refuse(".relu and .satfinite need a narrow result")
    d, a = site.arguments(2)
    return site.emit(
        f"cvt.{result}.{source}", site.destination(d, result), site.source(a, source),
        attributes=[max(rounding, 0), flags, _register_bits(site, result)],
    )  # fmt: skip


def _check_rounding(site: Site, result: str, source: str, rounding: int) -> None:
    """What PTX demands: an integer rounding from float to integer, a float one where precision is lost, else none."""
    if result == "tf32":
        if rounding not in (0, 1, 8) or source != "f32":
            site.refuse("to .tf32 needs .rna, .rn or .rz and an .f32 source")
    elif rounding == 8:
        site.refuse(".rna needs a .tf32 result")
    elif result in _INTEGERS:
        if rounding not in _INTEGRAL:
            site.refuse("float to integer needs .rni, .rzi, .rmi or .rpi")
    elif source in _INTEGERS:
        if rounding not in (0, 1, 2, 3):
            site.refuse("integer to float needs .rn, .rz, .rm or .rp")
    elif result == source:
        if rounding not in (-1, *_INTEGRAL):
            site.refuse("between equal types only integer rounding exists")
    elif _loses_precision(result, source):
        halves = {result, source} == {"f16", "bf16"}  # ptxas takes these without a rounding, which is .rn then
        if rounding not in ((-1, 0, 1, 2, 3) if halves else (0, 1, 2, 3)):
            site.refuse("needs .rn, .rz, .rm or .rp")
    elif rounding not in (-1, 0, 1, 2, 3):
        site.refuse("integer rounding does not exist here")


def _loses_precision(result: str, source: str) -> bool:
    return (result, source) not in (
        ("f32", "f16"), ("f32", "bf16"), ("f64", "f16"), ("f64", "bf16"), ("f64", "f32"),
    )  # fmt: skip


def _cvt_packed(site: Site, result: str, source: str) -> LoweredInstruction:
    rounding = site.pick(_ROUNDINGS, -1)
    flags = sum(flag for name, flag in _FLAGS.items() if site.take(name))
    if flags & (FTZ | SAT):
        site.refuse(".ftz and .sat do not go with packed types")
    _check_packed(site, result, source, rounding, flags)
    d, *sources = site.arguments(3 if source == "f32" else 2)
    return site.emit(
        f"cvt.{result}.{source}", site.destination(d, result), [site.source(a, source) for a in sources],
        attributes=[max(rounding, 0), flags, TYPES[result].bits],
    )  # fmt: skip


def _check_packed(site: Site, result: str, source: str, rounding: int, flags: int) -> None:
    if source == "f32" and result in ("f16x2", "bf16x2"):
        valid = rounding in (0, 1)
    elif source in ("f32", "f16x2") and result in _NARROW:
        valid = rounding == 0 and bool(flags & SATFINITE)
    elif result == "ue8m0x2" and source in ("f32", "bf16x2"):
        valid = rounding in (1, 3) and not flags & RELU
    elif (result, source) == ("bf16x2", "ue8m0x2"):
        valid = rounding == 0 and not flags
    else:
        valid = result == "f16x2" and source in _NARROW and rounding == 0 and not flags & SATFINITE
    if not valid:
        site.refuse("this combination of types, rounding and flags is not supported")


def _cvt_stochastic(site: Site) -> LoweredInstruction:
    """Machine op ``cvt.rs.<packed>.f32``: d, high, low, random bits."""
    if site.modifiers[-2:-1] and site.modifiers[-2].endswith("x4"):
        site.refuse("which random bits belong to which of four elements is not documented in words")
    result = site.choose(("f16x2", "bf16x2"))
    flags = sum(_FLAGS[name] for name in ("relu", "satfinite") if site.take(name))
    site.expect("f32")
    d, high, low, random = site.arguments(4)
    return site.emit(
        f"cvt.rs.{result}.f32", site.destination(d, result), site.source(high, "f32"), site.source(low, "f32"),
        site.source(random, "b32"), attributes=[flags],
    )  # fmt: skip


def _cvt_pack(site: Site) -> LoweredInstruction:
    """Machine op ``cvt.pack.<result>``: d, a, b, c or none; saturates two 32-bit integers and packs them."""
    site.expect("pack", "sat")
    result = site.choose(("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"))
    site.expect("s32")
    shifted = site.take("b32")
    if (int(result[1:]) == 16) == shifted:
        site.refuse("16-bit results take no .b32 operand, narrower ones need it")
    d, *sources = site.arguments(4 if shifted else 3)
    return site.emit(
        "cvt.pack", site.destination(d, "b32"), [site.source(a, "b32") for a in sources],
        attributes=[int(result[1:]), result[0] == "s"],
    )  # fmt: skip


def _register_bits(site: Site, result: str) -> int:
    return max(site.bits(site.operands[0]), TYPES[result].bits)


RULES: Final[Rules] = {"cvt": _cvt}
