"""Matrix fragments of one warp: ``ldmatrix``, ``stmatrix``, ``mma.sync`` and ``wmma``."""

from __future__ import annotations

from typing import Final

from ptxbench.simulator.lower.floating import ROUNDINGS
from ptxbench.simulator.lower.image import LoweredInstruction
from ptxbench.simulator.lower.matrix import ACCUMULATORS, BYTES, ELEMENTS, product_types, shape_of
from ptxbench.simulator.lower.site import NONE, Rules, Site
from ptxbench.simulator.lower.spaces import SHARED, SPACES, Space, results

# ``Kind`` of the machine's integer products, and bits of an element.
_INTEGERS: Final = {"s8": (0, 8), "u8": (1, 8), "s4": (2, 4), "u4": (3, 4)}
_BITS: Final = {"and": 4, "xor": 5}
# Rows and depth of the shapes that ``mma.integer`` has, by bits of an element.
_SHAPES: Final = {
    8: ((8, 16),), 4: ((8, 32), (16, 32), (16, 64)), 1: ((8, 128), (16, 128), (16, 256)),
}  # fmt: skip
# Of ``wmma``: codes of matrices and types, and registers of fragments of 16x16 elements.
_MATRICES: Final = {"a": 0, "b": 1, "c": 2, "d": 2}
_TYPES: Final = {"f16": 0, "bf16": 1, "f32": 2}
_OPERANDS: Final = {"f16": 8, "bf16": 4}
_SUMS: Final = {"f16": 4, "f32": 8}
_COUNTS: Final = {"x1": 1, "x2": 2, "x4": 4}
_PADDED: Final = {"b6x16_p32": 6, "b4x16_p64": 4}  # bits of an element in memory
_DOUBLE_SHAPES: Final = ((8, 4), (16, 4), (16, 8), (16, 16))


def _mma(site: Site) -> LoweredInstruction:
    site.expect("sync", "aligned")
    modifiers = site.modifiers
    if "f64" in modifiers:
        return _doubles(site)
    if "b1" in modifiers or "s4" in modifiers or "u4" in modifiers or "m8n8k16" in modifiers:
        return _integers(site)
    site.expect("row", "col")
    (depth,) = shape_of(site, r"m16n8k(\d+)")
    saturate = site.take("satfinite")
    d_type, a_type, b_type = product_types(site)
    c_type = site.choose(ACCUMULATORS)
    integers = d_type == "s32"
    if depth * BYTES[a_type] not in (16, 32) or (c_type == "s32") != integers or saturate > integers:
        site.refuse("this shape and these types do not go together")
    d, a, b, c = site.arguments(4)
    left = depth * BYTES[a_type] // 8
    return site.emit(
        "mma.sync",
        results(site, site.elements(d, 2 if d_type == "f16" else 4), "b32"),
        site.sources(a, "b32", left),
        site.sources(b, "b32", left // 2),
        site.sources(c, "b32", 2 if c_type == "f16" else 4),
        attributes=[
            depth, ELEMENTS[a_type], ELEMENTS[b_type], ACCUMULATORS[d_type], ACCUMULATORS[c_type], saturate,
        ],
    )  # fmt: skip


def _doubles(site: Site) -> LoweredInstruction:
    site.expect("row", "col")
    rows, depth = shape_of(site, r"m(\d+)n8k(\d+)")
    rounding = site.pick(ROUNDINGS, 0)
    site.expect(*["f64"] * 4)
    if (rows, depth) not in _DOUBLE_SHAPES:
        site.refuse("this shape does not exist")
    d, a, b, c = site.arguments(4)
    return site.emit(
        "mma.f64",
        results(site, site.elements(d, rows // 4), "f64"),
        site.sources(a, "f64", rows * depth // 32),
        site.sources(b, "f64", depth // 4),
        site.sources(c, "f64", rows // 4),
        attributes=[rows, depth, rounding],
    )


def _integers(site: Site) -> LoweredInstruction:
    site.expect("row", "col")
    rows, depth = shape_of(site, r"m(\d+)n8k(\d+)")
    saturate = site.take("satfinite")
    site.expect("s32")
    if site.take("b1"):
        site.expect("b1", "popc")
        kinds, bits = [site.pick(_BITS)] * 2, 1
    else:
        (a_kind, bits), (b_kind, b_bits) = site.pick(_INTEGERS), site.pick(_INTEGERS)
        kinds = [a_kind, b_kind]
        if bits != b_bits:
            site.refuse("these types do not go together")
    site.expect("s32")
    if (rows, depth) not in _SHAPES[bits] or (saturate and bits == 1):
        site.refuse("this shape and these types do not go together")
    d, a, b, c = site.arguments(4)
    registers = depth * bits // 128  # of eight rows
    return site.emit(
        "mma.integer",
        results(site, site.elements(d, rows // 4), "b32"),
        site.sources(a, "b32", registers * rows // 8),
        site.sources(b, "b32", registers),
        site.sources(c, "b32", rows // 4),
        attributes=[rows, depth, *kinds, saturate],
    )


def _wmma(site: Site) -> LoweredInstruction:
    action = site.choose(("load", "mma", "store"))
    if action == "mma":
        return _fragment_product(site)
    matrix = site.choose(("a", "b", "c") if action == "load" else ("d",))
    site.expect("sync", "aligned", "m16n16k16")
    transposed = site.choose(("row", "col")) == "col"
    space = site.pick(SPACES, Space.GENERIC)
    type_name = site.choose(("f16", "bf16") if matrix in ("a", "b") else ("f16", "f32"))
    count = _OPERANDS[type_name] if matrix in ("a", "b") else _SUMS[type_name]
    first, second, *stride = site.arguments(2, 3)
    pitch = site.source(stride[0], "u32") if stride else NONE
    attributes = [space, _MATRICES[matrix], transposed, _TYPES[type_name], count]
    if action == "load":
        registers = results(site, site.elements(first, count), "b32")
        return site.emit("wmma.load", registers, site.memory(second), pitch, attributes=attributes)
    sources = site.sources(second, "b32", count)
    return site.emit("wmma.store", site.memory(first), sources, pitch, attributes=attributes)


def _fragment_product(site: Site) -> LoweredInstruction:
    """A fragment is the same for both layouts in memory. Without types of A and B they are f16."""
    site.expect("sync", "aligned", "m16n16k16")
    site.choose(("row", "col"))
    site.choose(("row", "col"))
    d_type = site.choose(_SUMS)
    operand = "bf16" if site.take("bf16") else "f16"
    if operand == "bf16":
        site.expect("bf16")
    c_type = site.choose(_SUMS)
    if operand == "bf16" and (d_type, c_type) != ("f32", "f32"):
        site.refuse("these types do not go together")
    d, a, b, c = site.arguments(4)
    return site.emit(
        "wmma.mma",
        results(site, site.elements(d, _SUMS[d_type]), "b32"),
        site.sources(a, "b32", _OPERANDS[operand]),
        site.sources(b, "b32", _OPERANDS[operand]),
        site.sources(c, "b32", _SUMS[c_type]),
        attributes=[_TYPES[operand], _TYPES[d_type], _TYPES[c_type]],
    )


def _ldmatrix(site: Site) -> LoweredInstruction:
    site.expect("sync", "aligned")
    shape = site.choose(("m8n8", "m16n16", "m8n16"))
    if shape != "m8n8":
        return _load_bytes(site, 16 if shape == "m16n16" else 8)
    count, transposed, space = _matrices(site)
    d, a = site.arguments(2)
    return site.emit(
        "ldmatrix", site.destinations(d, "b32", count), site.memory(a), attributes=[space, count, transposed]
    )


def _load_bytes(site: Site, rows: int) -> LoweredInstruction:
    """Matrices of 16 columns: of 8-bit elements, which only the square ones have, or of narrower ones with padding."""
    count = site.pick({"x1": 1, "x2": 2} if rows == 16 else _COUNTS)
    if rows == 16:
        site.expect("trans")
    bits = 8 if rows == 16 and site.take("b8") else 0
    if not bits:
        site.expect("b8x16")
        bits = site.pick(_PADDED)
    space = site.pick(SHARED, Space.GENERIC)
    d, a = site.arguments(2)
    return site.emit(
        "ldmatrix.bytes", site.destinations(d, "b32", count * rows // 8), site.memory(a),
        attributes=[space, count, rows, bits],
    )  # fmt: skip


def _stmatrix(site: Site) -> LoweredInstruction:
    site.expect("sync", "aligned")
    if site.take("m16n8"):
        site.expect("trans", "b8")
        count, space = site.pick(_COUNTS), site.pick(SHARED, Space.GENERIC)
        a, b = site.arguments(2)
        return site.emit("stmatrix.bytes", site.memory(a), site.sources(b, "b32", count), attributes=[space, count])
    site.expect("m8n8")
    count, transposed, space = _matrices(site)
    a, b = site.arguments(2)
    return site.emit("stmatrix", site.memory(a), site.sources(b, "b32", count), attributes=[space, count, transposed])


def _matrices(site: Site) -> tuple[int, bool, Space]:
    site.expect("b16")
    return site.pick(_COUNTS), site.take("trans"), site.pick(SHARED, Space.GENERIC)


RULES: Final[Rules] = {"ldmatrix": _ldmatrix, "mma": _mma, "stmatrix": _stmatrix, "wmma": _wmma}
