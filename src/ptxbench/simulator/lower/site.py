"""One PTX instruction being lowered: the toolbox of the lowering rules.

A rule is a function ``(Site) -> LoweredInstruction`` that stands in a topic's ``RULES`` table under the base opcode
(``add``, ``wgmma``, ...). It consumes the modifiers one by one, lowers the operands by the PTX type it expects of each,
and ends with `Site.emit`, which refuses whatever modifier was not consumed. So an unknown, repeated or contradictory
modifier cannot be ignored by accident. Example::

    def _popc(site: Site) -> LoweredInstruction:
        type_name = site.choose(("b32", "b64"))
        d, a = site.arguments(2)
        return site.emit(f"popc.{type_name}", site.destination(d, "u32"), site.source(a, type_name))

Everything that is not supported raises `UnsupportedError` with the full opcode and the PTX line (`Site.refuse`).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn, TypeAlias, TypeVar

from ptxbench.core import UnsupportedError
from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import (
    SPECIAL_REGISTERS,
    ConstantKind,
    LoweredInstruction,
    OperandKind,
    Slot,
)
from ptxbench.simulator.lower.scope import CARRY, Scope, Symbol
from ptxbench.simulator.lower.types import TYPES

T = TypeVar("T")

NONE = Slot(OperandKind.NONE)
"""The lowered sink ``_`` or an absent optional operand."""

_MAX_F32 = 3.4028234663852886e38
_FULL_MASK = 0xFFFFFFFF
_SPECIAL_INDEX = {f"%{name}": index for index, name in enumerate(SPECIAL_REGISTERS)}


class Site:
    """One instruction: ``base`` is its base opcode, ``opcode`` the full text, ``operands`` the unlowered operands."""

    __slots__ = ("_frames", "_instruction", "_modifiers", "_scope", "base", "opcode", "operands")

    def __init__(self, instruction: ptx.Instruction, scope: Scope, frames: tuple[tuple[str, int], ...]) -> None:
        self.opcode = instruction.opcode
        self.operands = instruction.operands
        self.base, *self._modifiers = instruction.opcode.split(".")
        self._instruction = instruction
        self._scope = scope
        self._frames = frames

    # Modifiers

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The modifiers not consumed yet, in order of the text."""
        return tuple(self._modifiers)

    def take(self, modifier: str) -> bool:
        """Consumes a modifier if it is there; says whether it was."""
        if modifier in self._modifiers:
            self._modifiers.remove(modifier)
            return True
        return False

    def expect(self, *modifiers: str) -> None:
        """Consumes modifiers that must be there."""
        for modifier in modifiers:
            if not self.take(modifier):
                self.refuse(f"modifier .{modifier} is missing")

    def choose(self, options: Iterable[str], default: str | None = None) -> str:
        """Consumes the first modifier that is among ``options``; without one, ``default``, or an error."""
        for modifier in self._modifiers:
            if modifier in options:
                self._modifiers.remove(modifier)
                return modifier
        if default is None:
            self.refuse("needs one of ." + ", .".join(options))
        return default

    def pick(self, options: Mapping[str, T], default: T | None = None) -> T:
        """Like `choose`, and returns what the mapping holds for the modifier."""
        for modifier in self._modifiers:
            if modifier in options:
                self._modifiers.remove(modifier)
                return options[modifier]
        if default is None:
            self.refuse("needs one of ." + ", .".join(options))
        return default

    def match(self, pattern: str) -> re.Match[str] | None:
        """Consumes the first modifier that matches the whole regular expression, if any."""
        for modifier in self._modifiers:
            found = re.fullmatch(pattern, modifier)
            if found is not None:
                self._modifiers.remove(modifier)
                return found
        return None

    # Operands

    def arguments(self, *counts: int) -> tuple[ptx.Operand, ...]:
        """The unlowered operands; their number must be one of ``counts``."""
        if len(self.operands) not in counts:
            self.refuse(f"takes {' or '.join(map(str, counts))} operands, not {len(self.operands)}")
        return self.operands

    def source(self, operand: ptx.Operand, type_name: str, *, wider: bool = False) -> Slot:
        """A value that is read: register, predicate (``!p`` too), immediate, special register or address of a variable.

        Immediates and addresses become constant rows. ``wider`` allows a register wider than the type. A vector of one
        element stands for the element.
        """
        operand = _only(operand)
        if isinstance(operand, ptx.Name):
            register = self._scope.register(operand.text)
            if register is None:
                return self._symbolic(operand, type_name, 0)
            self._check_width(operand.text, register.storage, type_name, wider)
            return register.slot
        if isinstance(operand, ptx.Immediate):
            return self._immediate(operand, type_name)
        if isinstance(operand, ptx.Not):
            register = self._scope.register(operand.operand.text)
            if register is None or register.storage != 1 or type_name != "pred":
                self.refuse(f"!{operand.operand.text} is not a predicate")
            return register.negated
        if isinstance(operand, ptx.Offset) and not operand.generic:
            return self._symbolic(operand.base, type_name, operand.offset)
        return self.refuse(f"operand {ptx.emit_operand(operand)} is not a value")

    def destination(self, operand: ptx.Operand, type_name: str, *, wider: bool = False) -> Slot:
        """A register that is written, or the sink ``_``."""
        operand = _only(operand)
        if not isinstance(operand, ptx.Name):
            self.refuse(f"operand {ptx.emit_operand(operand)} is not a destination")
        if operand.text == "_":
            return NONE
        register = self._scope.register(operand.text)
        if register is None:
            self.refuse(f"{operand.text} is not a register")
        self._check_width(operand.text, register.storage, type_name, wider)
        return register.slot

    def sources(self, operand: ptx.Operand, type_name: str, *counts: int, wider: bool = False) -> list[Slot]:
        """The elements of a vector operand that is read; their number must be one of ``counts`` if given."""
        return [self.source(element, type_name, wider=wider) for element in self.elements(operand, *counts)]

    def destinations(self, operand: ptx.Operand, type_name: str, *counts: int, wider: bool = False) -> list[Slot]:
        """The elements of a vector operand that is written."""
        return [self.destination(element, type_name, wider=wider) for element in self.elements(operand, *counts)]

    def elements(self, operand: ptx.Operand, *counts: int) -> tuple[ptx.Operand, ...]:
        """The unlowered elements of ``{...}``."""
        if not isinstance(operand, ptx.Vector):
            self.refuse(f"operand {ptx.emit_operand(operand)} is not a vector")
        if counts and len(operand.elements) not in counts:
            self.refuse(f"takes a vector of {' or '.join(map(str, counts))}, not {len(operand.elements)}")
        return operand.elements

    def pair(self, operand: ptx.Operand) -> tuple[ptx.Operand, ptx.Operand | None]:
        """The unlowered halves of ``a|b``; the second is ``None`` where only one is written."""
        if isinstance(operand, ptx.Pair):
            return operand.first, operand.second
        return operand, None

    def memory(self, operand: ptx.Operand) -> Slot:
        """An address ``[base+offset]``: MEM (32-bit base), MEM64 or PARAM."""
        slot, extra = self.tensor(operand)
        if extra:
            self.refuse(f"operand {ptx.emit_operand(operand)} has coordinates")
        return slot

    def tensor(self, operand: ptx.Operand) -> tuple[Slot, tuple[ptx.Operand, ...]]:
        """An address with what follows the comma in ``[base+offset, coordinates]``, unlowered."""
        if not isinstance(operand, ptx.Address):
            self.refuse(f"operand {ptx.emit_operand(operand)} is not an address")
        base = operand.base
        if isinstance(base, ptx.Immediate):
            row = self._scope.rows.constant(64, ConstantKind.IMMEDIATE, base.value & (2**64 - 1))
        else:
            register = self._scope.register(base.text)
            symbol = None if register else self._scope.symbol(base.text)
            if register is not None and register.storage in (32, 64):
                row = register.slot
            elif symbol is None:
                self.refuse(f"{base.text} is not an address")
            elif symbol.space == "param":
                return Slot(OperandKind.PARAM, imm=symbol.at + operand.offset), operand.extra
            else:
                row = self._address(symbol, 32 if symbol.space in ("shared", "dynamic") else 64, 0)
        kind = OperandKind.MEM64 if row.kind is OperandKind.ROW64 else OperandKind.MEM
        return Slot(kind, row.slot, operand.offset), operand.extra

    def integer(self, operand: ptx.Operand) -> int:
        """An operand that must be an integer constant, as a Python integer."""
        if not isinstance(operand, ptx.Immediate) or operand.kind != "int":
            self.refuse(f"operand {ptx.emit_operand(operand)} must be an integer constant")
        return operand.value

    def label(self, operand: ptx.Operand) -> Slot:
        """A branch target."""
        position = self._scope.label(operand.text) if isinstance(operand, ptx.Name) else None
        if position is None:
            self.refuse(f"{ptx.emit_operand(operand)} is not a label")
        return Slot(OperandKind.LABEL, imm=position)

    def branch_targets(self, operand: ptx.Operand) -> list[Slot]:
        """The targets of a ``.branchtargets`` list."""
        names = self._scope.targets(operand.text) if isinstance(operand, ptx.Name) else None
        if names is None:
            self.refuse(f"{ptx.emit_operand(operand)} is not a list of branch targets")
        return [self.label(ptx.Name(name)) for name in names]

    def bits(self, operand: ptx.Operand) -> int:
        """Bits of a register operand as it was declared (1, 8, 16, 32, 64, 128); 0 for anything else."""
        operand = _only(operand)
        register = self._scope.register(operand.text) if isinstance(operand, ptx.Name) else None
        return register.bits if register else 0

    def carry(self) -> Slot:
        """The carry flag, a predicate."""
        return self.source(ptx.Name(CARRY), "pred")

    def symbol(self, operand: ptx.Operand) -> Symbol | None:
        """The variable or parameter that a name operand means, if it means one."""
        if not isinstance(operand, ptx.Name) or self._scope.register(operand.text):
            return None
        return self._scope.symbol(operand.text)

    # Results

    def emit(
        self, op: str, *operands: Slot | Sequence[Slot], attributes: Iterable[int] = ()
    ) -> LoweredInstruction:
        """The machine instruction. Lists of operands are flattened; a modifier left over is an error."""
        if self._modifiers:
            self.refuse(f"modifier .{self._modifiers[0]} is not supported here")
        flat: list[Slot] = []
        for operand in operands:
            if isinstance(operand, Slot):
                flat.append(operand)
            else:
                flat.extend(operand)
        attributes = tuple(attributes)
        if not all(-(2**31) <= value < 2**31 for value in attributes):
            self.refuse("a constant is out of range")
        if not all(-(2**63) <= operand.imm < 2**63 for operand in flat):
            self.refuse("an offset does not fit 64 bits")
        guard, negated = self._guard()
        return LoweredInstruction(
            op, self.opcode, tuple(flat), attributes, guard, negated, self._instruction.line, self._frames
        )

    def refuse(self, why: str) -> NoReturn:
        """Raises `UnsupportedError` naming the instruction and its line."""
        raise UnsupportedError(f"{self.opcode} at PTX line {self._instruction.line}: {why}")

    def _guard(self) -> tuple[int, bool]:
        guard = self._instruction.guard
        if guard is None:
            return -1, False
        register = self._scope.register(guard.name)
        if register is None or register.storage != 1:
            self.refuse(f"guard {guard.name} is not a predicate")
        return register.slot.slot, guard.negated

    def _check_width(self, name: str, storage: int, type_name: str, wider: bool) -> None:
        expected = TYPES[type_name].storage
        if storage != expected and not (wider and storage > expected > 1):
            self.refuse(f"{name} has {storage} bits where .{type_name} is expected")

    def _immediate(self, operand: ptx.Immediate, type_name: str) -> Slot:
        expected = TYPES[type_name]
        value = operand.value
        if operand.kind != "int" or expected.kind == "float":
            value = self._float_bits(operand, type_name)
        if expected.bits == 1:
            return self._scope.rows.constant(1, ConstantKind.IMMEDIATE, _FULL_MASK if value else 0)
        if expected.bits > 64:
            self.refuse("128-bit constants are not supported")
        return self._scope.rows.constant(expected.storage, ConstantKind.IMMEDIATE, value & ((1 << expected.bits) - 1))

    def _float_bits(self, operand: ptx.Immediate, type_name: str) -> int:
        bits = TYPES[type_name].bits
        if operand.kind == "f32" and bits == 32:
            return operand.value
        if operand.kind == "f64" and bits == 64:
            return operand.value
        if operand.kind == "f64" and bits == 32:
            (value,) = struct.unpack("<d", struct.pack("<Q", operand.value))
            if abs(value) <= _MAX_F32:
                return struct.unpack("<I", struct.pack("<f", value))[0]
        if operand.kind == "int" and type_name not in ("f32", "f64", "tf32"):
            return operand.value  # packed and narrow formats are written as bit patterns
        return self.refuse(f"constant {ptx.emit_operand(operand)} does not fit .{type_name}")

    def _symbolic(self, name: ptx.Name, type_name: str, addend: int) -> Slot:
        storage = TYPES[type_name].storage
        index = _SPECIAL_INDEX.get(name.text)
        if index is not None and addend == 0 and storage in (1, 32, 64):
            return self._scope.rows.constant(storage, ConstantKind.SPECIAL, index)
        if name.text == "WARP_SZ" and storage in (32, 64):
            return self._scope.rows.constant(storage, ConstantKind.IMMEDIATE, 32 + addend)
        symbol = self._scope.symbol(name.text)
        if symbol is None:
            self.refuse(f"{name.text} is not a register, variable or supported special register")
        if not -(2**62) <= addend < 2**62:
            self.refuse("an offset does not fit 64 bits")
        if TYPES[type_name].bits not in (32, 64):
            self.refuse(f"the address of {name.text} needs 64 bits, or 32 in shared and parameter space")
        return self._address(symbol, storage, addend)

    def _address(self, symbol: Symbol, width: int, addend: int) -> Slot:
        rows = self._scope.rows
        if symbol.space == "shared":
            return rows.constant(width, ConstantKind.SHARED, symbol.at + addend)
        if symbol.space == "dynamic":
            return rows.constant(width, ConstantKind.DYNAMIC_SHARED, addend)
        if symbol.space == "param":  # 32 bits hold the address within the space, which cvta.param makes generic
            return rows.constant(width, ConstantKind.PARAM_ADDRESS, symbol.at + addend)
        if width != 64:
            self.refuse(f"the address of a .{symbol.space} variable needs 64 bits")
        if symbol.space == "local":
            return rows.constant(width, ConstantKind.LOCAL, symbol.at + addend)
        return rows.constant(width, ConstantKind.GLOBAL, symbol.at, addend)


def _only(operand: ptx.Operand) -> ptx.Operand:
    return operand.elements[0] if isinstance(operand, ptx.Vector) and len(operand.elements) == 1 else operand


Rule: TypeAlias = Callable[[Site], LoweredInstruction]
Rules: TypeAlias = Mapping[str, Rule]
