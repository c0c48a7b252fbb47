"""Attribute values that the memory units of the machine share. They mirror the enums in ``machine/*.hpp``."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import Slot
from ptxbench.simulator.lower.site import NONE, Site


class Space(IntEnum):
    """``ptx::Space``: the state space of an address."""

    GENERIC = 0
    GLOBAL = 1
    SHARED_CTA = 2
    SHARED_CLUSTER = 3
    LOCAL = 4
    PARAM = 5
    CONST = 6


SPACES: Final = {
    "global": Space.GLOBAL, "shared": Space.SHARED_CTA, "shared::cta": Space.SHARED_CTA,
    "shared::cluster": Space.SHARED_CLUSTER, "local": Space.LOCAL, "param": Space.PARAM, "param::entry": Space.PARAM,
    "const": Space.CONST,
}  # fmt: skip
SHARED: Final = {name: space for name, space in SPACES.items() if name.startswith("shared")}

SEMANTICS: Final = ("weak", "relaxed", "acquire", "release", "acq_rel", "sc", "volatile")
SCOPES: Final = ("cta", "cluster", "gpu", "sys")

ATOMIC_OPS: Final = {
    "add": 0, "min": 1, "max": 2, "inc": 3, "dec": 4, "and": 5, "or": 6, "xor": 7, "exch": 8, "cas": 9,
}  # fmt: skip
ATOMIC_TYPES: Final = {
    "b16": 0, "b32": 1, "b64": 2, "u32": 3, "u64": 4, "s32": 5, "s64": 6, "f16": 7, "bf16": 8, "f16x2": 9, "bf16x2": 10,
    "f32": 11, "f64": 12, "flushed f32": 13,
}  # fmt: skip
"""By the type's name; the last one, which takes subnormals for zero, is the machine's own."""

_INTEGERS = ("u32", "s32", "u64", "s64")
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
TYPES_OF_OP: Final = {
    "add": ("u32", "s32", "u64", "s64", "f32", "f64", *_HALVES), "min": (*_INTEGERS, *_HALVES),
    "max": (*_INTEGERS, *_HALVES), "inc": ("u32",), "dec": ("u32",), "and": ("b32", "b64"), "or": ("b32", "b64"),
    "xor": ("b32", "b64"), "exch": ("b32", "b64"), "cas": ("b16", "b32", "b64"),
}  # fmt: skip


def result(site: Site, operand: ptx.Operand, type_name: str) -> Slot:
    """A destination that has to be a register: the sink ``_`` is refused."""
    (slot,) = results(site, [operand], type_name)
    return slot


def results(site: Site, operands: Sequence[ptx.Operand], type_name: str) -> list[Slot]:
    """Destinations that all have to be registers."""
    slots = [site.destination(operand, type_name) for operand in operands]
    if NONE in slots:
        site.refuse("the sink _ cannot be written here")
    return slots


def take_reduction(site: Site) -> tuple[str, str]:
    """Consumes an atomic operation with its type, such as ``.add.noftz.f16x2``; returns both names."""
    op = site.choose(ATOMIC_OPS)
    type_name = site.choose(TYPES_OF_OP[op])
    if type_name in _HALVES:
        site.take("noftz")
    return op, type_name


def take_cache_hints(site: Site) -> bool:
    """Consumes hints that do not change results; says whether a cache policy follows the operands."""
    site.match(r"L1::(evict_normal|evict_unchanged|evict_first|evict_last|no_allocate)")
    site.match(r"L2::(evict_normal|evict_first|evict_last)")
    policy = site.take("L2::cache_hint")
    site.match(r"L2::(64B|128B|256B)")
    return policy
