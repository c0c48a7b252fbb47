"""The layout of kernel parameters as PTX declares them."""

from __future__ import annotations

import re

from ptxbench.core import ParameterSlot

_ENTRY = re.compile(r"\.entry\s+(?P<name>[\w$]+)\s*(?:\((?P<parameters>[^()]*)\))?")
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.[a-z]+(?P<bits>\d+)\s+(?:\.ptr[\w\s.]*?\s)?(?P<name>[\w$]+)\s*"
    r"(?:\[(?P<count>\d+)\])?"
)


def entry_parameters(ptx: str) -> dict[str, tuple[ParameterSlot, ...]]:
    """Every kernel's parameters in order: sizes in bytes, and offsets by alignment from 0 (PTX ISA, "Kernel function
    parameters"), which is also the layout of the driver API's packed parameter buffer.
    """
    return {match["name"]: _slots(match["parameters"] or "") for match in _ENTRY.finditer(ptx)}


def _slots(declarations: str) -> tuple[ParameterSlot, ...]:
    slots: list[ParameterSlot] = []
    end = 0
    for match in _PARAMETER.finditer(declarations):
        element = int(match["bits"]) // 8
        size = element * int(match["count"] or 1)
        align = int(match["align"] or element)
        end = -(-end // align) * align
        slots.append(ParameterSlot(offset=end, size=size))
        end += size
    return tuple(slots)
