"""Tensor maps that a kernel writes itself: ``tensormap.replace`` and ``tensormap.cp_fenceproxy``."""

from __future__ import annotations

from typing import Final

from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import LoweredInstruction, Slot
from ptxbench.simulator.lower.site import Rules, Site
from ptxbench.simulator.lower.spaces import ATOMIC_TYPES, SCOPES, SHARED, Space

# ``Field`` of the machine, the type of the new value, and whether a dimension is named.
_FIELDS: Final[dict[str, tuple[int, str, bool]]] = {
    "global_address": (0, "b64", False), "rank": (1, "b32", False), "box_dim": (2, "b32", True),
    "global_dim": (3, "b32", True), "global_stride": (4, "b64", True), "element_stride": (5, "b32", True),
}  # fmt: skip
_ELEMENT_TYPE: Final = 6
_SWIZZLE: Final = 7
_FILL: Final = 8
_REDUCE_SHIFT: Final = 8
_ROUNDED_SHIFT: Final = 16
_BYTES: Final = 128
_MOST_DIMENSIONS: Final = 5
ELEMENTS: Final[dict[str, tuple[int, str, bool]]] = {
    "uint8": (1, "b32", False), "uint16": (2, "b16", False), "uint32": (4, "u32", False), "int32": (4, "s32", False),
    "uint64": (8, "u64", False), "int64": (8, "s64", False), "float16": (2, "f16", False),
    "float32": (4, "f32", False), "float32_ftz": (4, "flushed f32", False), "float64": (8, "f64", False),
    "bfloat16": (2, "bf16", False), "tfloat32": (4, "f32", True), "tfloat32_ftz": (4, "flushed f32", True),
}  # fmt: skip
"""By the driver's name, in the order of the ISA's codes: bytes, the type of reductions (8- and 16-bit integers have
none), and whether loads round to tf32. Subnormals are flushed in reductions alone (an H200)."""


def _tensormap(site: Site) -> LoweredInstruction:
    return _replace(site) if site.choose(("replace", "cp_fenceproxy")) == "replace" else _copy(site)


def _replace(site: Site) -> LoweredInstruction:
    site.expect("tile", "b1024")
    space = site.pick({"global": Space.GLOBAL, **SHARED}, Space.GENERIC)
    for name in (*_FIELDS, "elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode"):
        if site.take(name):
            return _field(site, name, space)
    return site.refuse("names no field of a tensor map")


def _field(site: Site, name: str, space: Space) -> LoweredInstruction:
    if name not in _FIELDS:
        site.expect("b32")
        a, value = site.arguments(2)
        return _coded(site, name, space, site.memory(a), site.integer(value))
    field, type_name, indexed = _FIELDS[name]
    site.expect(type_name)
    a, *dimension, value = site.arguments(3 if indexed else 2)
    number = site.integer(dimension[0]) if dimension else 0
    if not 0 <= number < _MOST_DIMENSIONS - (name == "global_stride"):
        site.refuse(f"there is no dimension {number}")
    return site.emit(
        "tensormap.replace", site.memory(a), site.source(value, type_name), attributes=[space, field, number]
    )


def _coded(site: Site, name: str, space: Space, address: Slot, code: int) -> LoweredInstruction:
    """The fields whose values are constants of the ISA."""
    field, value = 0, code
    if name == "elemtype":
        if not 0 <= code < len(ELEMENTS):
            site.refuse(f"element type {code} is not supported")
        size, reduced, rounded = tuple(ELEMENTS.values())[code]
        field = _ELEMENT_TYPE
        value = rounded << _ROUNDED_SHIFT | ATOMIC_TYPES[reduced] << _REDUCE_SHIFT | size
    elif name == "swizzle_mode":
        if not 0 <= code <= 3:
            site.refuse(f"swizzle mode {code} is not supported")
        field = _SWIZZLE
    elif name == "fill_mode":
        if code not in (0, 1):
            site.refuse(f"there is no fill mode {code}")
        field = _FILL
    else:
        if code != 0:
            site.refuse(f".{name} {code} is not supported")
        return site.emit("no_effect")
    return site.emit(
        "tensormap.replace", address, site.source(ptx.Immediate(value), "b32"), attributes=[space, field, 0]
    )


def _copy(site: Site) -> LoweredInstruction:
    """Copies and orders what the generic proxy wrote before later uses as a tensor map."""
    site.expect("tensormap::generic", "release", "sync", "aligned", "global")
    site.choose(("shared", "shared::cta"))
    site.choose(SCOPES)
    to, source, size = site.arguments(3)
    if site.integer(size) != _BYTES:
        site.refuse(f"copies {_BYTES} bytes, not {site.integer(size)}")
    return site.emit("tensormap.copy", site.memory(to), site.memory(source))


RULES: Final[Rules] = {"tensormap": _tensormap}
