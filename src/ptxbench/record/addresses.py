"""Fake device addresses: one range per buffer and recording, so that an address in the recording names its buffer.

An address is ``6`` in its top four bits (not canonical on x86-64, so no host pointer), a *space* in the next four, a
16-bit *slot*, and 40 bits around a base. Every call has a space for its arguments, every process one for its
allocations and one for its symbols. A buffer owns its whole slot, so that pointers before and behind it name it too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ptxbench.core import Task

_TAG = 6
_SLOT_BITS = 40
_FIRST_CALL_SPACE = 1
_FIRST_ALLOCATION_SPACE = 8
_FIRST_SYMBOL_SPACE = 12
_WORKSPACE_SLOT = 0

Role = Literal["argument", "workspace", "allocation", "symbol"]


@dataclass(frozen=True)
class Region:
    """A buffer as one recording sees it; ``bytes`` is its size."""

    role: Role
    name: str
    base: int
    bytes: int


@dataclass(frozen=True)
class Place:
    """An offset in bytes (of either sign) from the start of a region."""

    region: Region
    offset: int


def allocation_base(process: int) -> int:
    """Address of the first allocation of a process; the n-th lies n slots further."""
    return _base(_FIRST_ALLOCATION_SPACE + process, 0)


def symbol_base(process: int) -> int:
    """Address of the first registered variable of a process; the n-th lies n slots further."""
    return _base(_FIRST_SYMBOL_SPACE + process, 0)


def workspace_base(call: int) -> int:
    """Address of the workspace in a call (counted from 0 over all processes)."""
    return _base(_FIRST_CALL_SPACE + call, _WORKSPACE_SLOT)


def argument_regions(task: Task, sizes: Mapping[str, int], call: int) -> tuple[Region, ...]:
    """The tensors of a call, in the order of the signature."""
    space = _FIRST_CALL_SPACE + call
    return tuple(
        Region("argument", a.name, _base(space, slot), a.nbytes(dict(sizes)))
        for slot, a in enumerate((*task.inputs, *task.outputs), start=_WORKSPACE_SLOT + 1)
    )


@dataclass(frozen=True)
class AddressMap:
    """Finds the region of an address in one call; ``stale`` regions belong to other calls."""

    regions: Sequence[Region]
    stale: Sequence[Region] = ()
    _by_slot: dict[int, Region] = field(init=False, repr=False, compare=False, default_factory=dict[int, Region])

    def __post_init__(self) -> None:
        for region in (*self.stale, *self.regions):
            self._by_slot[region.base >> _SLOT_BITS] = region

    def find(self, address: int) -> Place | None:
        """The place that an address names; None if it is no fake address of this process."""
        region = self._by_slot.get(address >> _SLOT_BITS)
        return None if region is None else Place(region, address - region.base)

    def is_stale(self, place: Place) -> bool:
        """Whether the place belongs to another call than this one."""
        return place.region in self.stale


def _base(space: int, slot: int) -> int:
    # The middle of the slot, moved by a multiple of 256 bytes. The first call's addresses are an odd multiple where
    # those of all others are an even one, or the other way round: a launcher that looks at more of a pointer than its
    # 256-byte alignment does something else in the first call than in the two others, as no call counter does.
    first = int(space == _FIRST_CALL_SPACE)
    digest = hashlib.sha256(f"{first}/{slot}".encode()).digest()
    move = (int.from_bytes(digest[:3], "little") & ~1 | (first + slot) & 1) << 8
    return (_TAG << 60 | space << 56 | slot << _SLOT_BITS) + (1 << (_SLOT_BITS - 1)) + move
