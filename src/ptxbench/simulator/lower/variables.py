"""Variables: their sizes, their places, and the bytes of their initialisers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from ptxbench.core import UnsupportedError
from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import GlobalVariable
from ptxbench.simulator.lower.scope import Symbol
from ptxbench.simulator.lower.types import TYPES

_MAX_BYTES = 2**30
_DEFAULT_DYNAMIC_ALIGN = 16


@dataclass(slots=True)
class Block:
    """A block of memory that variables are placed in, one behind the other. Sizes in bytes."""

    size: int = 0

    def place(self, size: int, align: int) -> int:
        """The offset of a variable of that size and alignment."""
        offset = -(-self.size // align) * align
        self.size = offset + size
        return offset


@dataclass(slots=True)
class ModuleVariables:
    """The module-scope variables: globals by number, and shared ones, which a kernel places when it names them."""

    globals: list[ptx.Variable] = field(default_factory=lambda: list[ptx.Variable]())
    symbols: dict[str, Symbol] = field(default_factory=lambda: dict[str, Symbol]())
    shared: dict[str, ptx.Variable] = field(default_factory=lambda: dict[str, ptx.Variable]())

    @staticmethod
    def of(module: ptx.Module) -> ModuleVariables:
        """Collects the variables of a module."""
        found = ModuleVariables()
        for item in module.items:
            if not isinstance(item, ptx.Variable):
                continue
            if item.space == "shared":
                found.shared[item.name] = item
            elif item.space in ("global", "const"):
                found.symbols[item.name] = Symbol("const" if item.space == "const" else "global", len(found.globals))
                found.globals.append(item)
            else:
                raise _unsupported(item, f"module-scope .{item.space} variables are not supported")
        return found

    def images(self) -> tuple[GlobalVariable, ...]:
        """The global and constant variables with their initial bytes."""
        return tuple(_image(variable, self.symbols) for variable in self.globals)


def size_of(variable: ptx.Variable) -> int:
    """The size of a variable in bytes; 0 for ``[]``."""
    if variable.type not in TYPES or TYPES[variable.type].bits == 1:
        raise _unsupported(variable, f"type .{variable.type} is not supported")
    size = TYPES[variable.type].bits // 8 * variable.vector * prod(dim or 0 for dim in variable.dims)
    if size > _MAX_BYTES:
        raise _unsupported(variable, "too large")
    return size


def align_of(variable: ptx.Variable) -> int:
    """The alignment of a variable in bytes: what it states, else its type's."""
    align = variable.align or (TYPES[variable.type].bits // 8 * variable.vector if variable.type in TYPES else 1)
    if align & (align - 1):
        raise _unsupported(variable, f"alignment {align} is not a power of two")
    if align > _MAX_BYTES:
        raise _unsupported(variable, f"alignment {align} is above {_MAX_BYTES}")
    return align


def is_dynamic(variable: ptx.Variable) -> bool:
    """Whether a shared variable is the launch's dynamic shared block: extern or of size zero."""
    return variable.linkage == "extern" or size_of(variable) == 0


def dynamic_align(variable: ptx.Variable) -> int:
    """The alignment that a dynamic shared variable asks of the dynamic block."""
    return max(align_of(variable), _DEFAULT_DYNAMIC_ALIGN)


def _image(variable: ptx.Variable, symbols: Mapping[str, Symbol]) -> GlobalVariable:
    if variable.linkage == "extern":
        raise _unsupported(variable, "extern variables of another module are not supported")
    size = size_of(variable)
    element = TYPES[variable.type].bits // 8
    data = bytearray(size)
    relocations: list[tuple[int, int, int]] = []
    for index, value in enumerate(_scalars(variable.initializer)):
        at = index * element
        if at + element > size:
            raise _unsupported(variable, "the initialiser is longer than the variable")
        if isinstance(value, ptx.Immediate):
            data[at : at + element] = _bits(variable, value).to_bytes(element, "little")
            continue
        name, addend = (value.base.text, value.offset) if isinstance(value, ptx.Offset) else (value.text, 0)
        symbol = symbols.get(name)
        if symbol is None or element != 8:
            raise _unsupported(variable, f"the address of {name} cannot initialise it")
        relocations.append((at, symbol.at, addend))
    return GlobalVariable(
        variable.name, align_of(variable), bytes(data), variable.space == "const", tuple(relocations)
    )


def _scalars(initializer: ptx.Operand | None) -> Iterator[ptx.Immediate | ptx.Name | ptx.Offset]:
    pending = [initializer] if initializer is not None else []
    while pending:
        value = pending.pop()
        if isinstance(value, ptx.Vector):
            pending.extend(reversed(value.elements))
        elif isinstance(value, ptx.Immediate | ptx.Name | ptx.Offset):
            yield value


def _bits(variable: ptx.Variable, value: ptx.Immediate) -> int:
    expected = TYPES[variable.type]
    if value.kind != "int" and value.kind != f"f{expected.bits}":
        raise _unsupported(variable, f"a .{value.kind} constant cannot initialise .{variable.type}")
    return value.value & ((1 << expected.bits) - 1)


def _unsupported(variable: ptx.Variable, why: str) -> UnsupportedError:
    return UnsupportedError(f".{variable.space} variable {variable.name} at PTX line {variable.line}: {why}")
