"""Which bytes of a kernel's parameters its code reads.

A struct passed by value has padding, and padding holds whatever was on the host's stack. No instruction reads it, so it
must neither make two plans different nor enter a digest: a plan has zeros there. Where the PTX does something with the
address of a parameter that is not understood here, the whole parameter counts as read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ptxbench.core import KernelFacts

_TENSOR_MAP_BYTES = 128
_MAX_ORIGINS = 64

_ENTRY = re.compile(r"\.entry\s+([\w$]+)")
_NO_STATEMENT = re.compile(r"^\s*(?:\.loc\b.*|\.pragma\b.*|\.reg\b.*|\.param\b.*|[$\w]+:\s*)$", re.MULTILINE)
_COMMENT = re.compile(r"//.*|/\*[\s\S]*?\*/")
# A register (or parameter) that gets its value from an address and a constant.
_DERIVED = re.compile(
    r"(?:mov|cvta(?:\.to)?\.\w+|cvta|add)\.[bus]64\s+(?P<to>[\w%$]+),\s*(?P<source>[\w%$]+)(?:\s*\+\s*(?P<plus>\d+))?"
    r"(?:,\s*(?P<add>-?\d+))?"
)
_NAME = re.compile(r"(?P<open>\[\s*)?(?P<name>[\w%$]+)(?:\s*\+\s*(?P<offset>-?\d+))?")

Origin = tuple[int, int]
"""(parameter number, offset in it)."""


@dataclass
class _Body:
    """One kernel's statements, and what of its parameters they read."""

    kernel: KernelFacts
    statements: Sequence[str]
    origins: dict[str, set[Origin]] = field(default_factory=dict[str, set[Origin]])

    def reads(self) -> bytearray:
        """The parameter block with 0xff where it is read."""
        self._seed()
        derivations = self._derive()
        block = bytearray(block_size(self.kernel))
        for statement in self.statements:
            if statement not in derivations:
                self._mark(block, statement)
        return block

    def _seed(self) -> None:
        for number in range(len(self.kernel.parameters)):
            self.origins[f"{self.kernel.name}_param_{number}"] = {(number, 0)}

    def _derive(self) -> set[str]:
        """Follows addresses through registers, regardless of the order of execution; the statements that do so."""
        candidates = [(s, match) for s in self.statements if (match := _DERIVED.fullmatch(s))]
        found: set[str] = set()
        changed = True
        while changed:
            changed = False
            for statement, match in candidates:
                sources = self.origins.get(match["source"], set())
                shift = int(match["plus"] or 0) + int(match["add"] or 0)
                known = self.origins.setdefault(match["to"], set()) if sources else set[Origin]()
                new = {(number, offset + shift) for number, offset in sources} - known
                if sources:
                    found.add(statement)
                if new and len(known) < _MAX_ORIGINS:
                    known |= new
                    changed = True
        return found

    def _mark(self, block: bytearray, statement: str) -> None:
        for use in _NAME.finditer(statement):
            for number, offset in self.origins.get(use["name"], ()):
                slot = self.kernel.parameters[number]
                begin = offset + int(use["offset"] or 0)
                size = _bytes_read(statement) if use["open"] else 0
                if size == 0 or begin < 0 or len(self.origins[use["name"]]) >= _MAX_ORIGINS:
                    begin, size = 0, slot.size
                first, last = slot.offset + begin, min(slot.offset + begin + size, slot.offset + slot.size)
                block[first:last] = b"\xff" * max(last - first, 0)


def parameter_reads(ptx: str, kernels: Iterable[KernelFacts]) -> Mapping[str, bytearray]:
    """By kernel: its parameter block with 0xff at every byte that its PTX may read and 0 elsewhere."""
    facts = {kernel.name: kernel for kernel in kernels}
    # A kernel whose PTX is not found here reads everything.
    reads = {name: bytearray(b"\xff" * block_size(kernel)) for name, kernel in facts.items()}
    parts = _ENTRY.split(ptx)
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        head, brace, body = text.partition("{")
        if name in facts and brace and ";" not in head:
            reads[name] = _Body(facts[name], _statements(body)).reads()
    return reads


def block_size(kernel: KernelFacts) -> int:
    """Bytes of the whole parameter block."""
    return max((slot.offset + slot.size for slot in kernel.parameters), default=0)


def parameter_at(kernel: KernelFacts, offset: int, size: int) -> str:
    """The parameter that holds ``size`` bytes at ``offset``, for messages: ``bytes 8 to 15 of parameter 2``."""
    for number, slot in enumerate(kernel.parameters):
        if slot.offset <= offset < slot.offset + slot.size:
            begin = offset - slot.offset
            inside = f"bytes {begin} to {begin + size - 1} of " if size < slot.size else ""
            return f"{inside}parameter {number}"
    return f"byte {offset} of the parameters"


def _statements(body: str) -> list[str]:
    plain = _NO_STATEMENT.sub("", _COMMENT.sub("", body))
    return [re.sub(r"^@!?[%\w$]+\s+", "", part.strip(" \t\n{}")) for part in plain.split(";")]


def _bytes_read(statement: str) -> int:
    """Bytes that a statement reads at an address operand; 0 if that is not known."""
    opcode = statement.split(None, 1)[0] if statement else ""
    if "tensor" in opcode:
        return _TENSOR_MAP_BYTES
    if not opcode.startswith("ld."):
        return 0
    parts = opcode.split(".")
    lanes = next((int(part[1:]) for part in parts if part in ("v2", "v4", "v8")), 1)
    return lanes * max(int(re.sub(r"\D", "", parts[-1]) or 64) // 8, 1)
