"""What a template is filled with: parameters of the kernel, facts for its explanation, techniques it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SHARED_BYTES_PER_BLOCK = 227 * 1024
"""Shared memory that a block may ask for on both targets (CUDA C++ Programming Guide, compute capabilities)."""


@dataclass(frozen=True)
class Barrier:
    """One kind of mbarrier: how many there are, arrivals per phase, who arrives, what its completion means."""

    name: str
    count: int
    arrivals: int
    who: str
    means: str


@dataclass(frozen=True)
class Field:
    """An operand's descriptor: byte offsets, swizzle in bytes, and the step of 16 along K in units of 16 bytes."""

    operand: str
    major: str
    leading: int
    stride: int
    swizzle: int
    step: int


@dataclass(frozen=True)
class Plan:
    """One kernel before it is rendered.

    ``parameters`` is what the template sees as ``v``; ``facts`` is what the explanation sees. All byte counts are the
    kernel's own: tests compare ``facts["shared_bytes"]`` with the recorded launch.
    """

    parameters: Mapping[str, Any]
    facts: Mapping[str, Any]
    techniques: Sequence[str]


def aligned(size: int, to: int) -> int:
    """``size`` rounded up to a multiple of ``to``."""
    return -(-size // to) * to


def laid_out(parts: Sequence[tuple[int, int]]) -> int:
    """The size in bytes of a C++ structure whose members have these (bytes, alignment), in order."""
    end = 0
    for size, alignment in parts:
        end = aligned(end, alignment) + size
    return aligned(end, max(alignment for _, alignment in parts))
