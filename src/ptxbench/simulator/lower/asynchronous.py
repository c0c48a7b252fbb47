"""Asynchronous copies: ``cp.async``, bulk copies and tensor (TMA) copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import LoweredInstruction, Slot
from ptxbench.simulator.lower.site import NONE, Rules, Site
from ptxbench.simulator.lower.spaces import (
    ATOMIC_OPS,
    ATOMIC_TYPES,
    SHARED,
    Space,
    take_cache_hints,
    take_reduction,
)

_SPACES: Final = (*SHARED, "global")
_ROWS: Final = 5  # a column and four rows
_COMPLETES: Final = "mbarrier::complete_tx::bytes"
# ``CopyMode`` of the machine, by the modifier; without one a copy is tiled.
_MODES: Final = {
    "tile": 0, "tile::gather4": 1, "tile::scatter4": 1, "im2col": 2, "im2col_no_offs": 3, "im2col::w": 4,
    "im2col::w::128": 5,
}  # fmt: skip
_LOADS: Final = ("tile", "tile::gather4", "im2col", "im2col::w", "im2col::w::128")
_STORES: Final = ("tile", "tile::scatter4", "im2col_no_offs")
_REDUCTIONS: Final = ("tile", "im2col_no_offs")


def _cp(site: Site) -> LoweredInstruction:
    if site.take("reduce"):
        site.expect("async", "bulk")
        return _tensor_store(site, reduce=True) if site.take("tensor") else _bulk_reduce(site)
    site.expect("async")
    if not site.take("bulk"):
        return _cp_async(site)
    if site.take("commit_group"):
        site.arguments(0)
        return site.emit("bulk.commit")
    if site.take("wait_group"):
        reads = site.take("read")
        (pending,) = site.arguments(1)
        return site.emit("bulk.wait", attributes=[site.integer(pending), reads])
    if site.take("prefetch"):
        return _prefetch(site)
    if site.take("tensor"):
        return _tensor(site)
    return _bulk(site)


def _cp_async(site: Site) -> LoweredInstruction:
    if site.take("commit_group"):
        return site.emit("async.commit")
    if site.take("wait_all"):
        return site.emit("async.wait", attributes=[-1])
    if site.take("wait_group"):
        (pending,) = site.arguments(1)
        return site.emit("async.wait", attributes=[site.integer(pending)])
    if site.take("mbarrier"):
        site.expect("arrive", "b64")
        no_increment = site.take("noinc")
        space = site.pick(SHARED, Space.GENERIC)
        (barrier,) = site.arguments(1)
        return site.emit("async.arrive", site.memory(barrier), attributes=[space, no_increment])
    return _cp_async_copy(site)


def _cp_async_copy(site: Site) -> LoweredInstruction:
    level = site.choose(("ca", "cg"))
    space = site.pick(SHARED)
    site.expect("global")
    policy = take_cache_hints(site)
    operands = list(site.arguments(*(count + policy for count in (3, 4, 5))))
    if policy:
        operands.pop()
    to, source, size, *rest = operands
    count = site.integer(size)
    if count not in ((16,) if level == "cg" else (4, 8, 16)):
        site.refuse(f"cannot copy {count} bytes")
    source_bytes = ignore = NONE
    for operand in rest:
        if site.bits(operand) == 1 or isinstance(operand, ptx.Not):
            ignore = site.source(operand, "pred")
        else:
            source_bytes = site.source(operand, "u32")
    return site.emit(
        "cp.async", site.memory(to), site.memory(source), source_bytes, ignore, attributes=[space, count]
    )


def _direction(site: Site) -> tuple[str, str]:
    """Consumes destination and source space; ``shared`` is ``shared::cta``."""
    names = [site.choose(_SPACES), site.choose(_SPACES)]
    to, source = ("shared::cta" if name == "shared" else name for name in names)
    return to, source


def _bulk(site: Site) -> LoweredInstruction:
    to, source = _direction(site)
    multicast = site.take("multicast::cluster")
    policy = take_cache_hints(site)
    if to == "global" and source == "shared::cta":
        site.expect("bulk_group")
        masked = site.take("cp_mask")
        d, a, size, *rest = site.arguments(3 + policy + masked)
        mask = site.source(rest[policy], "u16", wider=True) if masked else NONE
        return site.emit("bulk.store", site.memory(d), site.memory(a), site.source(size, "u32"), mask)
    site.expect(_COMPLETES)
    d, a, size, barrier, *rest = site.arguments(4 + multicast + policy)
    operands = [site.memory(d), site.memory(a), site.source(size, "u32"), site.memory(barrier)]
    if source == "global":
        mask = site.source(rest[0], "u16", wider=True) if multicast else NONE
        return site.emit("bulk.load", operands, mask, attributes=[multicast])
    if to != "shared::cluster" or multicast:
        site.refuse(f"copies from {source} to {to} do not exist")
    return site.emit("bulk.share", operands)


def _bulk_reduce(site: Site) -> LoweredInstruction:
    to, _ = _direction(site)
    policy = take_cache_hints(site)
    group = site.take("bulk_group")
    if not group:
        site.expect(_COMPLETES)
    op, type_name = take_reduction(site)
    attributes = [ATOMIC_OPS[op], ATOMIC_TYPES[type_name]]
    if group:
        d, a, size, *_ = site.arguments(3 + policy)
        return site.emit(
            "bulk.reduce", site.memory(d), site.memory(a), site.source(size, "u32"), attributes=attributes
        )
    if to != "shared::cluster":
        site.refuse(f"reductions to {to} do not complete on an mbarrier")
    d, a, size, barrier = site.arguments(4)
    operands = [site.memory(d), site.memory(a), site.source(size, "u32"), site.memory(barrier)]
    return site.emit("bulk.share.reduce", operands, attributes=attributes)


def _prefetch(site: Site) -> LoweredInstruction:
    if site.take("tensor"):
        rank = _rank(site)
        site.expect("L2", "global")
        mode = _mode(site, rank, _LOADS)
        policy = take_cache_hints(site)
        offsets = _offset_count(mode, rank)
        box, *rest = site.arguments(1 + bool(offsets) + policy)
        map_, coordinates = _box(site, box, rank, mode)
        return site.emit("tensor.prefetch", map_, coordinates, _offsets(site, rest, offsets), attributes=[rank, mode])
    site.expect("L2", "global")
    policy = take_cache_hints(site)
    a, size, *_ = site.arguments(2 + policy)
    return site.emit("bulk.prefetch", site.memory(a), site.source(size, "u32"))


def _tensor(site: Site) -> LoweredInstruction:
    if "bulk_group" in site.modifiers:
        return _tensor_store(site, reduce=False)
    rank = _rank(site)
    to, source = _direction(site)
    if not to.startswith("shared") or source != "global":
        site.refuse(f"tensor copies from {source} to {to} do not exist")
    mode = _mode(site, rank, _LOADS)
    site.expect(_COMPLETES)
    multicast = site.take("multicast::cluster")
    pair = site.pick({"cta_group::1": 1, "cta_group::2": 2}, 1) == 2
    policy = take_cache_hints(site)
    offsets = _offset_count(mode, rank)
    d, box, barrier, *rest = site.arguments(3 + bool(offsets) + multicast + policy)
    map_, coordinates = _box(site, box, rank, mode)
    moved = _offsets(site, rest, offsets)
    mask = site.source(rest[bool(offsets)], "u16", wider=True) if multicast else NONE
    operands = [site.memory(d), map_, site.memory(barrier), mask]
    return site.emit("tensor.load", operands, coordinates, moved, attributes=[rank, multicast, pair, mode])


def _tensor_store(site: Site, *, reduce: bool) -> LoweredInstruction:
    rank = _rank(site)
    to, source = _direction(site)
    if to != "global" or source != "shared::cta":
        site.refuse(f"tensor copies from {source} to {to} with a bulk group do not exist")
    op = site.choose(("add", "min", "max", "inc", "dec", "and", "or", "xor")) if reduce else ""
    mode = _mode(site, rank, _REDUCTIONS if reduce else _STORES)
    site.expect("bulk_group")
    policy = take_cache_hints(site)
    box, a, *_ = site.arguments(2 + policy)
    map_, coordinates = _box(site, box, rank, mode)
    attributes = [rank, ATOMIC_OPS[op] if reduce else 0, mode]
    name = "tensor.reduce" if reduce else "tensor.store"
    return site.emit(name, map_, site.memory(a), coordinates, attributes=attributes)


def _mode(site: Site, rank: int, modes: Sequence[str]) -> int:
    """Consumes the mode. Four rows that are named one by one take two dimensions, images at least three."""
    name = site.choose(modes, "tile")
    mode = _MODES[name]
    if mode == _MODES["tile::gather4"] and rank != 2:
        site.refuse(f".{name} needs .2d")
    if mode > _MODES["tile::gather4"] and rank < 3:
        site.refuse(f".{name} needs .3d, .4d or .5d")
    return mode


def _offset_count(mode: int, rank: int) -> int:
    """Offsets that follow the coordinates: one for each of W, H and D, or halo and offset along W."""
    if mode == _MODES["im2col"]:
        return rank - 2
    return 2 if mode > _MODES["im2col_no_offs"] else 0


def _offsets(site: Site, operands: Sequence[ptx.Operand], count: int) -> list[Slot]:
    return site.sources(operands[0], "u16", count, wider=True) if count else []


def _rank(site: Site) -> int:
    return site.pick({f"{rank}d": rank for rank in range(1, 6)})


def _box(site: Site, operand: ptx.Operand, rank: int, mode: int) -> tuple[Slot, Sequence[Slot]]:
    map_, extra = site.tensor(operand)
    if len(extra) != 1:
        site.refuse("a tensor operand has the form [map, {coordinates}]")
    return map_, site.sources(extra[0], "s32", _ROWS if mode == _MODES["tile::gather4"] else rank)


RULES: Final[Rules] = {"cp": _cp}
