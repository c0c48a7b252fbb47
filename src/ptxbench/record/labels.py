"""Names for messages."""

from __future__ import annotations

import re


def kernel_label(mangled: str) -> str:
    """The plain name of a kernel, such as ``gemm`` or ``tiles::gemm``, without template and parameter types."""
    match = re.match(r"_ZL?(N?)", mangled)
    if match is None:
        return mangled
    parts: list[str] = []
    rest = mangled[match.end():]
    while length := re.match(r"L?(\d+)", rest):
        begin, size = length.end(), int(length[1])
        parts.append(rest[begin : begin + size])
        rest = rest[begin + size :]
        if not match[1]:
            break
    return "::".join(part for part in parts if not part.startswith("_GLOBAL__N_")) or mangled


def cause_of(first: object, second: object, fresh: object) -> str:
    """What three recordings that are not all equal depend on, by which two of them agree."""
    if first == second:
        return "on the process (environment, clock, random numbers or host addresses)"
    if first == fresh:
        return "on how often launch was called before"
    if second == fresh:
        return "on the values of its pointers"
    return "on something that changes every time (clock, random numbers, pointer values or uninitialised memory)"
