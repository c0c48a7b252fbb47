"""What names mean inside a kernel: register rows, constant rows, variables, labels and nested scopes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from ptxbench.simulator.lower.image import Constant, ConstantKind, OperandKind, Slot
from ptxbench.simulator.lower.types import TYPES

_ROWS_OF_STORAGE = {1: 1, 32: 1, 64: 2, 128: 4}
_KIND_OF_STORAGE = {1: OperandKind.PRED, 32: OperandKind.ROW, 64: OperandKind.ROW64, 128: OperandKind.ROW128}
CARRY = "carry flag"
"""The hidden predicate register that holds the condition code of ``add.cc`` and its kin; no PTX name has a space."""

_MAX_DIGITS = 12
_NUMBERED = re.compile(r"(.*?\D)(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Register:
    """A register that has its row; ``bits`` as declared. ``negated`` is the slot of ``!p``."""

    bits: int
    storage: int
    slot: Slot
    negated: Slot


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable or parameter. ``at`` is its byte offset in its space, or the number of a global variable.

    ``dynamic`` is the extern shared block of the launch.
    """

    space: Literal["global", "const", "shared", "dynamic", "local", "param"]
    at: int


@dataclass(slots=True)
class Rows:
    """The register file of one kernel: hands out rows, and constant rows once per value."""

    count: int = 0
    constants: dict[tuple[int, ConstantKind, int, int], Constant] = field(
        default_factory=lambda: dict[tuple[int, ConstantKind, int, int], Constant]()
    )

    def allocate(self, storage: int) -> int:
        """The first row of a fresh register of that storage width (1, 32, 64 or 128 bits)."""
        slot = self.count
        self.count += _ROWS_OF_STORAGE[storage]
        return slot

    def constant(self, width: int, kind: ConstantKind, value: int, addend: int = 0) -> Slot:
        """The constant row of that value; ``width`` is 1, 32 or 64 bits."""
        key = (width, kind, value, addend)
        known = self.constants.get(key)
        if known is None:
            known = Constant(self.allocate(width), width, kind, value, addend)
            self.constants[key] = known
        return Slot(_KIND_OF_STORAGE[width], known.slot)


class Scope:
    """A lexical scope. Registers get rows when they are first used, so unused ones of a large range cost nothing."""

    def __init__(self, rows: Rows, parent: Scope | None = None) -> None:
        self.rows = rows
        self.parent = parent
        self.symbols: dict[str, Symbol] = {}
        self.labels: dict[str, int] = {}
        self.branch_targets: dict[str, tuple[str, ...]] = {}
        self._registers: dict[str, Register] = {}
        self._singles: dict[str, str] = {}
        self._ranges: dict[str, tuple[str, int]] = {}

    def declare(self, name: str, count: int | None, type_name: str) -> None:
        """Declares a register, or with ``count`` the range ``name0 .. name(count-1)``."""
        if count is None:
            self._singles[name] = type_name
        else:
            self._ranges[name] = (type_name, count)

    def register(self, name: str) -> Register | None:
        """The register of that name in this scope or an outer one, or ``None``."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._registers.get(name) or scope._first_use(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def symbol(self, name: str) -> Symbol | None:
        """The variable or parameter of that name in this scope or an outer one, or ``None``."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.symbols:
                return scope.symbols[name]
            scope = scope.parent
        return None

    def label(self, name: str) -> int | None:
        """The instruction index of a label in this scope or an outer one, or ``None``."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None

    def targets(self, name: str) -> tuple[str, ...] | None:
        """The labels of a ``.branchtargets`` list of that name, or ``None``."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.branch_targets:
                return scope.branch_targets[name]
            scope = scope.parent
        return None

    def _first_use(self, name: str) -> Register | None:
        type_name = self._singles.get(name) or self._type_from_range(name)
        if type_name is None:
            return None
        bits, storage = TYPES[type_name].bits, TYPES[type_name].storage
        kind = _KIND_OF_STORAGE[storage]
        slot = self.rows.allocate(storage)
        made = Register(bits, storage, Slot(kind, slot), Slot(kind, slot, 1))
        self._registers[name] = made
        return made

    def _type_from_range(self, name: str) -> str | None:
        if not self._ranges:
            return None
        numbered = _NUMBERED.fullmatch(name)
        if numbered is None:
            return None
        # `%r1<20>` declares `%r10`, and so does `%r<20>`: every split of the digits is tried, longest number first.
        prefix, digits = numbered[1], numbered[2]
        for cut in range(max(0, len(digits) - _MAX_DIGITS), len(digits)):
            type_name, count = self._ranges.get(prefix + digits[:cut], ("", 0))
            number = digits[cut:]
            if type_name and (number == "0" or number[0] != "0") and int(number) < count:
                return type_name
        return None
