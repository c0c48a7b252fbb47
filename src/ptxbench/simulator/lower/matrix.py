"""Matrix products: ``wgmma`` (sm_90a) and ``tcgen05`` (sm_100a). Codes mirror the machine's enums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import LoweredInstruction, Slot
from ptxbench.simulator.lower.site import NONE, Rules, Site
from ptxbench.simulator.lower.spaces import SHARED, Space, results

ELEMENTS: Final = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 3, "e5m2": 4, "s8": 5, "u8": 6}
BYTES: Final = {"f16": 2, "bf16": 2, "tf32": 4, "e4m3": 1, "e5m2": 1, "s8": 1, "u8": 1}
_FLOAT8: Final = ("e4m3", "e5m2")
_INT8: Final = ("s8", "u8")
ACCUMULATORS: Final = {"f32": 0, "f16": 1, "s32": 2}
_COLUMNS: Final = 512
_COLLECTOR: Final = r"collector::a::(fill|use|lastuse|discard)"
_GROUPS: Final = {"cta_group::1": 1, "cta_group::2": 2}
_KINDS: Final = {"kind::f16": 0, "kind::tf32": 1, "kind::f8f6f4": 2, "kind::i8": 3}
# Block-scaled kinds, and how many scale factors a row has for each spelling; without one the ISA's default.
_SCALED_KINDS: Final = {"kind::mxf8f6f4": 4, "kind::mxf4": 5, "kind::mxf4nvf4": 6}
_SCALES: Final[dict[str, dict[str, int]]] = {
    "kind::mxf8f6f4": {"": 1, "scale_vec::1X": 1, "block32": 1},
    "kind::mxf4": {"": 2, "scale_vec::2X": 2, "block32": 2},
    "kind::mxf4nvf4": {"scale_vec::2X": 2, "block32": 2, "scale_vec::4X": 4, "block16": 4},
}
_SHAPES: Final = {"32x32b": 0, "16x64b": 1, "16x128b": 2, "16x256b": 3, "16x32bx2": 4}
_REGISTERS: Final = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
# Rows, 16-byte chunks of a row, and by multicast where the rows go.
_COPIES: Final[dict[str, tuple[int, int, dict[str, int]]]] = {
    "128x256b": (128, 2, {"": 0}),
    "4x256b": (4, 2, {"": 1}),
    "128x128b": (128, 1, {"": 0}),
    "64x128b": (64, 1, {"warpx2::02_13": 2, "warpx2::01_23": 3}),
    "32x128b": (32, 1, {"warpx4": 4}),
}


def _wgmma(site: Site) -> LoweredInstruction:
    action = site.choose(("mma_async", "fence", "commit_group", "wait_group"))
    site.expect("sync", "aligned")
    if action == "mma_async":
        return _mma_async(site)
    if action == "wait_group":
        (pending,) = site.arguments(1)
        return site.emit("wgmma.wait", attributes=[site.integer(pending)])
    site.arguments(0)
    return site.emit("wgmma.fence" if action == "fence" else "wgmma.commit")


def _mma_async(site: Site) -> LoweredInstruction:
    columns, depth = shape_of(site, r"m64n(\d+)k(\d+)")
    bits = "b1" in site.modifiers
    saturate = not bits and site.take("satfinite")
    accumulator, a_type, b_type = _bit_types(site) if bits else product_types(site)
    integers = accumulator == "s32"
    step = 16 if integers and columns > 24 else 8
    row_bytes = depth // 8 if bits else depth * BYTES[a_type]
    if columns % step or not 8 <= columns <= 256 or row_bytes != 32 or saturate > integers:
        site.refuse("this shape and these types do not go together")
    d, a, b, scale_d, *flags = site.arguments(*range(4, 9))
    in_registers = isinstance(a, ptx.Vector)
    negate_a, negate_b, transpose_a, transpose_b = _wgmma_flags(site, flags, a_type, in_registers)
    destinations = results(site, site.elements(d, columns // (4 if accumulator == "f16" else 2)), "b32")
    left = site.sources(a, "b32", 4) if in_registers else [site.source(a, "b64")]
    attributes = [
        columns, ELEMENTS[a_type], ELEMENTS[b_type], ACCUMULATORS[accumulator], in_registers, negate_a, negate_b,
        transpose_a, transpose_b, saturate, bits,
    ]  # fmt: skip
    return site.emit(
        "wgmma.mma", destinations, left, site.source(b, "b64"), site.source(scale_d, "pred"), attributes=attributes
    )


def _bit_types(site: Site) -> tuple[str, str, str]:
    """Consumes what products of bits say. In memory eight bits lie like an element of 8 bits."""
    site.expect("s32", "b1", "b1", "and", "popc")
    return "s32", "u8", "u8"


def _wgmma_flags(
    site: Site, flags: Sequence[ptx.Operand], a_type: str, in_registers: bool
) -> tuple[bool, bool, int, int]:
    """Whether A and B are negated, and whether each is MN-major: the constants after scale-d, as far as they exist."""
    scales = 0 if a_type in _INT8 else 2
    majors = 0 if BYTES[a_type] != 2 else 1 if in_registers else 2
    if len(flags) != scales + majors:
        site.refuse(f"takes {scales + majors} constants after scale-d, not {len(flags)}")
    values = [site.integer(flag) for flag in flags]
    scale_a, scale_b = values[:scales] or (1, 1)
    if scale_a not in (1, -1) or scale_b not in (1, -1):
        site.refuse("scales of A and B are 1 or -1")
    transpose_a, transpose_b = (0,) * (2 - majors) + tuple(values[scales:])
    return scale_a < 0, scale_b < 0, transpose_a, transpose_b


def product_types(site: Site) -> tuple[str, str, str]:
    """Consumes the types of accumulators, A and B, which have to go together."""
    accumulator = site.choose(ACCUMULATORS)
    a_type, b_type = site.choose(ELEMENTS), site.choose(ELEMENTS)
    same_family = a_type == b_type or any(a_type in family and b_type in family for family in (_FLOAT8, _INT8))
    half = accumulator == "f16"
    if not same_family or (a_type in _INT8) != (accumulator == "s32") or (half and a_type in ("bf16", "tf32")):
        site.refuse("these types do not go together")
    return accumulator, a_type, b_type


def shape_of(site: Site, pattern: str) -> tuple[int, ...]:
    """Consumes the modifier that matches; the numbers in it."""
    found = site.match(pattern)
    if found is None:
        site.refuse("has no supported shape")
    return tuple(int(extent) for extent in found.groups())


def _tcgen05(site: Site) -> LoweredInstruction:
    return site.pick(_TCGEN05)(site)


def _alloc(site: Site) -> LoweredInstruction:
    group = _aligned_group(site)
    site.expect("b32")
    space = site.pick(SHARED, Space.GENERIC)
    to, columns = site.arguments(2)
    return site.emit("tcgen05.alloc", site.memory(to), site.source(columns, "u32"), attributes=[space, group])


def _dealloc(site: Site) -> LoweredInstruction:
    _aligned_group(site)
    site.expect("b32")
    address, columns = site.arguments(2)
    return site.emit("tcgen05.dealloc", site.source(address, "b32"), site.source(columns, "u32"))


def _relinquish(site: Site) -> LoweredInstruction:
    _aligned_group(site)
    site.arguments(0)
    return site.emit("tcgen05.relinquish")


def _aligned_group(site: Site) -> int:
    site.expect("sync", "aligned")
    return site.pick(_GROUPS)


def _ld(site: Site) -> LoweredInstruction:
    attributes, registers = _transfer(site, "pack::16b")
    d, a, *_ = site.arguments(2, 3)
    if registers == 1 and not isinstance(d, ptx.Vector):
        destinations = [site.destination(d, "b32")]
    else:
        destinations = site.destinations(d, "b32", registers)
    return site.emit("tcgen05.ld", destinations, site.memory(a), attributes=attributes)


def _st(site: Site) -> LoweredInstruction:
    attributes, registers = _transfer(site, "unpack::16b")
    a, *_, b = site.arguments(2, 3)
    scalar = registers == 1 and not isinstance(b, ptx.Vector)
    sources = [site.source(b, "b32")] if scalar else site.sources(b, "b32", registers)
    return site.emit("tcgen05.st", site.memory(a), sources, attributes=attributes)


def _transfer(site: Site, packing: str) -> tuple[list[int], int]:
    site.expect("sync", "aligned", "b32")
    shape = site.choose(_SHAPES)
    (repeat,) = shape_of(site, r"x(\d+)")
    packed = site.take(packing)
    split = shape == "16x32bx2"
    operands = site.arguments(3 if split else 2)
    second_half = 0
    if split:
        second_half = site.integer(operands[2 if packing.startswith("pack") else 1])
        if not 0 <= second_half < _COLUMNS:
            site.refuse(f"{second_half} is not a column offset")
    registers = repeat * _REGISTERS[shape]
    if repeat not in (1, 2, 4, 8, 16, 32, 64, 128) or registers > 128:
        site.refuse(f".x{repeat} does not exist for this shape")
    return [_SHAPES[shape], registers, packed, second_half], registers


def _wait_ld(site: Site) -> LoweredInstruction:
    site.expect("sync", "aligned")
    return site.emit("tcgen05.wait.ld")


def _wait_st(site: Site) -> LoweredInstruction:
    site.expect("sync", "aligned")
    return site.emit("tcgen05.wait.st")


def _fence_after(site: Site) -> LoweredInstruction:
    site.arguments(0)
    return site.emit("tcgen05.fence.after")


def _fence_before(site: Site) -> LoweredInstruction:
    site.arguments(0)
    return site.emit("tcgen05.fence.before")


def _scaled_mma(site: Site) -> LoweredInstruction:
    group = site.pick(_GROUPS)
    kind = site.choose(_SCALED_KINDS)
    spellings = _SCALES[kind]
    scales = site.pick(spellings, spellings.get("", None))
    site.match(_COLLECTOR)
    d, a, b, instruction, a_scales, b_scales, accumulate = site.arguments(7)
    in_memory = isinstance(a, ptx.Address)
    return site.emit(
        "tcgen05.mma", site.memory(d), site.memory(a) if in_memory else site.source(a, "b64"), site.source(b, "b64"),
        site.source(instruction, "b32"), site.source(accumulate, "pred"), site.memory(a_scales), site.memory(b_scales),
        attributes=[group, _SCALED_KINDS[kind], in_memory, scales, False, False, 0],
    )  # fmt: skip


def _tensor_mma(site: Site) -> LoweredInstruction:
    if site.take("block_scale"):
        return _scaled_mma(site)
    stationary = site.take("ws")
    group = site.pick(_GROUPS)
    kind = site.pick(_KINDS)
    site.match(r"collector::b[0-3]::(fill|use|lastuse|discard)" if stationary else _COLLECTOR)
    if stationary and group != 1:
        site.refuse(".ws needs .cta_group::1")
    d, a, b, instruction, *rest = site.arguments(5, 6) if stationary else site.arguments(5, 6, 7)
    in_memory = isinstance(a, ptx.Address)
    masks = site.sources(rest.pop(0), "b32", 4 * group) if isinstance(rest[0], ptx.Vector) else []
    if not rest:
        site.refuse("takes a predicate after the mask of lanes")
    accumulate, *extra = rest
    divided = 0
    if stationary:
        masks += [site.source(operand, "b64") for operand in extra]
    elif extra:
        divided = _input_scale(site, extra, kind)
    left: Slot = site.memory(a) if in_memory else site.source(a, "b64")
    return site.emit(
        "tcgen05.mma", site.memory(d), left, site.source(b, "b64"), site.source(instruction, "b32"),
        site.source(accumulate, "pred"), masks,
        attributes=[group, kind, in_memory, 0, stationary, stationary and bool(extra), divided],
    )  # fmt: skip


def _input_scale(site: Site, operands: Sequence[ptx.Operand], kind: int) -> int:
    """The binary logarithm of what D is divided by before the products are added."""
    if len(operands) != 1 or kind not in (_KINDS["kind::f16"], _KINDS["kind::tf32"]):
        site.refuse("takes a scale of D for .kind::f16 and .kind::tf32 only")
    divided = site.integer(operands[0])
    if not 0 <= divided <= 15:
        site.refuse("the scale of D is 0 to 15")
    return divided


def _cp(site: Site) -> LoweredInstruction:
    group = site.pick(_GROUPS)
    shape = site.choose(_COPIES)
    rows, chunks, placements = _COPIES[shape]
    placement = site.pick(placements) if "" not in placements else placements[""]
    for modifier in site.modifiers:
        if modifier in ("b8x16", "b6x16_p32", "b4x16_p64"):
            site.refuse("copies that decompress are not supported")
    to, source = site.arguments(2)
    return site.emit(
        "tcgen05.cp", site.memory(to), site.source(source, "b64"), attributes=[group, rows, chunks, placement]
    )


def _commit(site: Site) -> LoweredInstruction:
    group = site.pick(_GROUPS)
    site.expect("mbarrier::arrive::one", "b64")
    site.take("shared::cluster")
    multicast = site.take("multicast::cluster")
    barrier, *mask = site.arguments(1 + multicast)
    ranks = site.source(mask[0], "u16", wider=True) if multicast else NONE
    return site.emit("tcgen05.commit", site.memory(barrier), ranks, attributes=[group, multicast])


_TCGEN05: Final[Rules] = {
    "alloc": _alloc,
    "commit": _commit,
    "cp": _cp,
    "dealloc": _dealloc,
    "fence::after_thread_sync": _fence_after,
    "fence::before_thread_sync": _fence_before,
    "ld": _ld,
    "mma": _tensor_mma,
    "relinquish_alloc_permit": _relinquish,
    "st": _st,
    "wait::ld": _wait_ld,
    "wait::st": _wait_st,
}

RULES: Final[Rules] = {"tcgen05": _tcgen05, "wgmma": _wgmma}
