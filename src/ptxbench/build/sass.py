"""Reads the listing of ``nvdisasm -c -ndf -gi``: machine instructions with the source lines they came from."""

from __future__ import annotations

import re
from collections.abc import Callable

from ptxbench.core import KernelSass, SassInstruction, SourceFrame

_SECTION = re.compile(r"\t\.section\t\.text\.(?P<name>[^,\s]+),")
_POSITION = re.compile(r'\t//## File "(?P<file>[^"]*)", line (?P<line>\d+)(?P<inlined> inlined at )?')
_INSTRUCTION = re.compile(
    r"\s+/\*(?P<offset>[0-9a-f]{4,})\*/\s+(?:@(?P<predicate>!?U?P\w+)\s+)?(?P<opcode>[A-Z][\w.]*)\s*(?P<operands>[^;]*?)\s*;"
)


def parse_sass(listing: str, normalise: Callable[[str], str]) -> tuple[KernelSass, ...]:
    """One entry per function with code of its own; ``normalise`` turns a file path into the name to keep.

    A function that is called but not inlined is listed inside its kernel. The comment lines before an instruction are
    its chain of frames, innermost first; the last line of a chain is the one without "inlined at".
    """
    kernels: dict[str, list[SassInstruction]] = {}
    current: list[SassInstruction] = []
    frames: list[SourceFrame] = []
    chain_ended = True
    for line in listing.splitlines():
        if match := _INSTRUCTION.match(line):
            chain_ended = True
            current.append(
                SassInstruction(
                    offset=int(match["offset"], 16), opcode=match["opcode"], operands=match["operands"],
                    predicate=match["predicate"] or "", frames=tuple(frames),
                )
            )
        elif match := _POSITION.match(line):
            if chain_ended:
                frames = []
            frames.append((normalise(match["file"]), int(match["line"])))
            chain_ended = match["inlined"] is None
        elif match := _SECTION.match(line):
            current = kernels.setdefault(match["name"], [])
            frames, chain_ended = [], True
    return tuple(KernelSass(kernel=name, instructions=tuple(code)) for name, code in kernels.items() if code)
