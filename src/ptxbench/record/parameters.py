"""Which bytes of a kernel's parameters its code reads.

A struct passed by value has padding, and padding holds whatever was on the host's stack. No instruction reads it, so it
must neither make two plans different nor enter a digest: a plan has zeros there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ptxbench.core import KernelFacts

_WIDTH = {"b8": 1, "u8": 1, "s8": 1, "b128": 16}
_USE = re.compile(r"(?:ld\.param((?:\.\w+)+)\s+[^;\[]*\[)?([\w$]+)_param_(\d+)(?:\+(\d+))?")


def parameter_reads(ptx: str, kernels: Iterable[KernelFacts]) -> dict[str, bytearray]:
    """By kernel: its parameter block with 0xff at every byte that its PTX may read and 0 elsewhere.

    A parameter that is named in any other way than by a load (its address is taken, for example) counts as read as a
    whole.
    """
    facts = {kernel.name: kernel for kernel in kernels}
    reads = {name: bytearray(block_size(kernel)) for name, kernel in facts.items()}
    for line in ptx.splitlines():
        if "_param_" not in line or line.lstrip().startswith(".param"):
            continue
        for modifiers, name, number, offset in _USE.findall(line):
            if name not in facts or int(number) >= len(facts[name].parameters):
                continue
            slot = facts[name].parameters[int(number)]
            begin, size = (int(offset or 0), _width(modifiers)) if modifiers else (0, slot.size)
            first, last = slot.offset + begin, min(slot.offset + begin + size, slot.offset + slot.size)
            reads[name][first:last] = b"\xff" * (last - first)
    return reads


def block_size(kernel: KernelFacts) -> int:
    """Bytes of the whole parameter block."""
    return max((slot.offset + slot.size for slot in kernel.parameters), default=0)


def parameter_at(kernel: KernelFacts, offset: int) -> str:
    """The parameter that holds a byte, for messages: ``parameter 2 (bytes 8 to 15 of it)``."""
    for number, slot in enumerate(kernel.parameters):
        if slot.offset <= offset < slot.offset + slot.size:
            begin = offset - slot.offset
            inside = f" (bytes {begin} to {begin + 7} of it)" if slot.size > 8 else ""
            return f"parameter {number}{inside}"
    return f"byte {offset} of the parameters"


def _width(modifiers: str) -> int:
    """Bytes that a load with these modifiers reads, such as ``.v4.b32``."""
    parts = modifiers.strip(".").split(".")
    lanes = next((int(part[1]) for part in parts if part in ("v2", "v4", "v8")), 1)
    element = parts[-1]
    return lanes * _WIDTH.get(element, int(re.sub(r"\D", "", element) or 64) // 8)
