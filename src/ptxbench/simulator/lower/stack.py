"""A thread's stack: ``alloca``, ``stacksave`` and ``stackrestore``.

A kernel that names one of them has `STACK_BYTES` of local memory more, behind the hidden variable `STACK`, whose
address the stack pointer begins with.
"""

from __future__ import annotations

from typing import Final

from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import LoweredInstruction, Slot
from ptxbench.simulator.lower.site import Rules, Site
from ptxbench.simulator.lower.spaces import result

STACK: Final = "dynamic stack"
"""No PTX name has a space."""

STACK_BYTES: Final = 16384
STACK_ALIGN: Final = 16
OPCODES: Final = ("alloca", "stacksave", "stackrestore")
_TYPES: Final = ("u32", "u64")
_DEFAULT_ALIGN: Final = 8
_MOST_ALIGN: Final = 1 << 23


def _pointer(site: Site) -> tuple[Slot, int]:
    """The row of the stack pointer, and the stack's first byte in local memory."""
    symbol = site.symbol(ptx.Name(STACK))
    assert symbol is not None
    return site.source(ptx.Name(STACK), "u64"), symbol.at


def _alloca(site: Site) -> LoweredInstruction:
    type_name = site.choose(_TYPES)
    d, size, *alignment = site.arguments(2, 3)
    align = site.integer(alignment[0]) if alignment else _DEFAULT_ALIGN
    if not 1 <= align <= _MOST_ALIGN or align & (align - 1):
        site.refuse(f"alignment {align} is not a power of two up to 2^23")
    pointer, first = _pointer(site)
    return site.emit(
        "stack.allocate", result(site, d, type_name), site.source(size, type_name), pointer,
        attributes=[align, first, STACK_BYTES],
    )  # fmt: skip


def _stacksave(site: Site) -> LoweredInstruction:
    type_name = site.choose(_TYPES)
    (d,) = site.arguments(1)
    return site.emit("stack.save", result(site, d, type_name), _pointer(site)[0])


def _stackrestore(site: Site) -> LoweredInstruction:
    type_name = site.choose(_TYPES)
    (a,) = site.arguments(1)
    pointer, first = _pointer(site)
    return site.emit("stack.restore", site.source(a, type_name), pointer, attributes=[first, STACK_BYTES])


RULES: Final[Rules] = {"alloca": _alloca, "stackrestore": _stackrestore, "stacksave": _stacksave}
