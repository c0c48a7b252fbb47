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
        d, a, size, *_ = site.arguments(3 + policy)
        return site.emit("bulk.store", site.memory(d), site.memory(a), site.source(size, "u32"))
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
        rows = _rows(site, rank, "tile::gather4")
        policy = take_cache_hints(site)
        box, *_ = site.arguments(1 + policy)
        map_, coordinates = _box(site, box, _ROWS if rows else rank)
        return site.emit("tensor.prefetch", map_, coordinates, attributes=[rank])
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
    rows = _rows(site, rank, "tile::gather4")
    site.expect(_COMPLETES)
    multicast = site.take("multicast::cluster")
    pair = site.pick({"cta_group::1": 1, "cta_group::2": 2}, 1) == 2
    policy = take_cache_hints(site)
    d, box, barrier, *rest = site.arguments(3 + multicast + policy)
    map_, coordinates = _box(site, box, _ROWS if rows else rank)
    mask = site.source(rest[0], "u16", wider=True) if multicast else NONE
    operands = [site.memory(d), map_, site.memory(barrier), mask]
    return site.emit("tensor.load", operands, coordinates, attributes=[rank, multicast, pair, rows])


def _tensor_store(site: Site, *, reduce: bool) -> LoweredInstruction:
    rank = _rank(site)
    to, source = _direction(site)
    if to != "global" or source != "shared::cta":
        site.refuse(f"tensor copies from {source} to {to} with a bulk group do not exist")
    op = site.choose(("add", "min", "max", "inc", "dec", "and", "or", "xor")) if reduce else ""
    rows = _rows(site, rank, "" if reduce else "tile::scatter4")
    site.expect("bulk_group")
    policy = take_cache_hints(site)
    box, a, *_ = site.arguments(2 + policy)
    map_, coordinates = _box(site, box, _ROWS if rows else rank)
    attributes = [rank, ATOMIC_OPS[op] if reduce else 0, rows]
    name = "tensor.reduce" if reduce else "tensor.store"
    return site.emit(name, map_, site.memory(a), coordinates, attributes=attributes)


def _rows(site: Site, rank: int, modifier: str) -> bool:
    """Consumes the mode; whether four rows are named one by one, which takes a tensor of two dimensions."""
    rows = bool(modifier) and site.take(modifier)
    if rows and rank != 2:
        site.refuse(f".{modifier} needs .2d")
    if not rows:
        site.take("tile")
    return rows


def _rank(site: Site) -> int:
    return site.pick({f"{rank}d": rank for rank in range(1, 6)})


def _box(site: Site, operand: ptx.Operand, rank: int) -> tuple[Slot, Sequence[Slot]]:
    map_, extra = site.tensor(operand)
    if len(extra) != 1:
        site.refuse("a tensor operand has the form [map, {coordinates}]")
    return map_, site.sources(extra[0], "s32", rank)


RULES: Final[Rules] = {"cp": _cp}
