"""The PTX intermediate representation: what the text says, with names unresolved and types unchecked.

Every node is a frozen dataclass with tuples inside. ``line`` fields say where a node stood in the text; they do not
take part in equality, so that two parses of the same program compare equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Name:
    """A register, variable, special register, parameter, function or label; ``_`` is the sink."""

    text: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A constant. Floats hold their bit pattern; a decimal float literal is ``f64``."""

    value: int
    kind: Literal["int", "f32", "f64"] = "int"


@dataclass(frozen=True, slots=True)
class Offset:
    """The address of a variable plus a constant, used as a value; ``generic`` for ``generic(name)``."""

    base: Name
    offset: int
    generic: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    """A negated predicate, ``!p``."""

    operand: Name


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}``; in a variable's initialiser the braces may nest."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """``(a, b, ...)``, the argument lists of a call."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``a|b``, two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Address:
    """``[base+offset, extra, ...]``; ``extra`` holds the coordinates of a tensor access."""

    base: Name | Immediate
    offset: int = 0
    extra: tuple[Operand, ...] = ()


Operand: TypeAlias = Name | Immediate | Offset | Not | Vector | Group | Pair | Address


@dataclass(frozen=True, slots=True)
class Guard:
    """``@p`` or ``@!p``."""

    name: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; ``opcode`` is the full dotted text, such as ``add.rn.f32``."""

    opcode: str
    operands: tuple[Operand, ...]
    guard: Guard | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target of the scope it stands in."""

    name: str
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Location:
    """``.loc``: the source position of what follows. ``inlined_at`` is (file, line, column) of the inlining call."""

    file: int
    line: int
    column: int
    function: str = ""
    inlined_at: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Registers:
    """``.reg``: names with their range (``%r<5>`` is ``("%r", 5)``; a single register has ``None``)."""

    type: str
    names: tuple[tuple[str, int | None], ...]
    vector: int = 1
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable or parameter of a state space (``global``, ``const``, ``shared``, ``local``, ``param``).

    ``dims`` holds the array dimensions, ``None`` for ``[]``. ``pointer`` is (space, alignment) of a ``.ptr`` parameter.
    """

    space: str
    type: str
    name: str
    align: int | None = None
    vector: int = 1
    dims: tuple[int | None, ...] = ()
    initializer: Operand | None = None
    linkage: str = ""
    pointer: tuple[str, int | None] | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Scope:
    """A ``{ ... }`` block with its own registers, variables and labels."""

    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Directive:
    """Any other directive, as name and text: ``.pragma``, ``.maxntid``, ``.branchtargets``, ``.file`` and so on.

    ``label`` is the label it carries (``targets: .branchtargets a, b;``).
    """

    name: str
    text: str
    label: str = ""
    line: int = field(default=0, compare=False)


Statement: TypeAlias = Instruction | Label | Location | Registers | Variable | Scope | Directive


@dataclass(frozen=True, slots=True)
class Function:
    """``.entry`` or ``.func``. ``body`` is ``None`` for a declaration."""

    kind: Literal["entry", "func"]
    name: str
    linkage: str
    parameters: tuple[Variable | Registers, ...]
    results: tuple[Variable | Registers, ...] = ()
    directives: tuple[Directive, ...] = ()
    body: tuple[Statement, ...] | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Section:
    """``.section``: debug information, kept as text."""

    name: str
    text: str


Item: TypeAlias = Function | Variable | Directive | Section


@dataclass(frozen=True, slots=True)
class Module:
    """A whole PTX text. ``target`` is the text behind ``.target`` (``sm_90a``, perhaps with options)."""

    version: str
    target: str
    address_size: int
    items: tuple[Item, ...]

    def function(self, name: str) -> Function:
        """The definition of a function, or its declaration if that is all there is; `KeyError` if there is neither."""
        found = [item for item in self.items if isinstance(item, Function) and item.name == name]
        if not found:
            raise KeyError(name)
        return next((function for function in found if function.body is not None), found[0])

    def files(self) -> dict[int, str]:
        """The source files by the number that ``.loc`` uses."""
        table: dict[int, str] = {}
        for item in self.items:
            if isinstance(item, Directive) and item.name == ".file":
                number, path = item.text.split(None, 1)
                table[int(number)] = path[1:].split('"')[0]
        return table
