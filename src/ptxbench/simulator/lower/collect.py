"""The first walk over a kernel: declares names, places variables, inlines calls, lists the instructions in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from ptxbench.core import UnsupportedError
from ptxbench.simulator import ptx
from ptxbench.simulator.lower.locations import Frames, Locations
from ptxbench.simulator.lower.scope import Rows, Scope, Symbol
from ptxbench.simulator.lower.types import TYPES
from ptxbench.simulator.lower.variables import Block, ModuleVariables, align_of, dynamic_align, is_dynamic, size_of

_MAX_INSTRUCTIONS = 100_000
_MAX_CALL_DEPTH = 64

# Functions that the system provides. Printing has no effect here; a failed assertion traps.
_SYSTEM_CALLS = {"vprintf": "nop", "__assertfail": "trap"}


@dataclass(slots=True)
class Collector:
    """What the walk has found so far. ``found`` holds (instruction, its scope, its source frames) in order."""

    module: ptx.Module
    variables: ModuleVariables
    locations: Locations
    rows: Rows
    outermost: Scope
    shared: Block = field(default_factory=Block)
    local: Block = field(default_factory=Block)
    dynamic_align: int = 16
    found: list[tuple[ptx.Instruction, Scope, Frames]] = field(
        default_factory=lambda: list[tuple[ptx.Instruction, Scope, Frames]]()
    )
    _callers: list[str] = field(default_factory=lambda: list[str]())

    def walk(self, body: tuple[ptx.Statement, ...], scope: Scope) -> None:
        """Walks one scope. The parser bounds the nesting of scopes."""
        for statement in body:
            match statement:
                case ptx.Instruction():
                    self._instruction(statement, scope)
                case ptx.Location():
                    self.locations.follow(statement)
                case ptx.Label():
                    scope.labels[statement.name] = len(self.found)
                case ptx.Scope():
                    self.walk(statement.body, Scope(self.rows, scope))
                case ptx.Registers():
                    _declare_registers(statement, scope)
                case ptx.Variable():
                    scope.symbols[statement.name] = self._place(statement)
                case ptx.Directive():
                    _note_directive(statement, scope)

    def place_module_shared(self) -> None:
        """Places the module's shared variables that the kernel names."""
        if not self.variables.shared:
            return
        operands = (operand for instruction, _, _ in self.found for operand in instruction.operands)
        named = {name for operand in operands for name in _names(operand)}
        for name, variable in self.variables.shared.items():
            if name in named:
                self.outermost.symbols[name] = self._place(variable)

    def _instruction(self, instruction: ptx.Instruction, scope: Scope) -> None:
        if len(self.found) >= _MAX_INSTRUCTIONS:
            raise _refusal(instruction, "with its calls inlined, the kernel is too long")
        base = instruction.opcode.split(".")[0]
        if base == "call":
            self._call(instruction, scope)
        elif base == "ret" and self._callers:
            end = ptx.Name(_end_label(len(self._callers)))
            self._append(ptx.Instruction(instruction.opcode, (end,), instruction.guard, instruction.line), scope)
        else:
            self._append(instruction, scope)

    def _append(self, instruction: ptx.Instruction, scope: Scope) -> None:
        self.found.append((instruction, scope, self.locations.current))

    def _call(self, call: ptx.Instruction, scope: Scope) -> None:
        """Inlines a call. ``call`` itself becomes a jump over the body for the lanes whose guard is false."""
        results, name, arguments = _split_call(call)
        if name in _SYSTEM_CALLS:
            self._append(ptx.Instruction(_SYSTEM_CALLS[name], (), call.guard, call.line), scope)
            return
        function = self._callee(call, name, len(results), len(arguments))
        inner = Scope(self.rows, self.outermost)
        for parameter, argument in zip(function.results + function.parameters, results + arguments, strict=True):
            symbol = scope.symbol(argument.text)
            if isinstance(parameter, ptx.Registers) or symbol is None:
                raise _refusal(call, f"{name} takes its parameters in registers, which is not supported")
            inner.symbols[parameter.name] = symbol
        guard = ptx.Guard(call.guard.name, not call.guard.negated) if call.guard else None
        self._callers.append(name)
        end = _end_label(len(self._callers))
        jump = Scope(self.rows, scope)
        self._append(ptx.Instruction(call.opcode, (ptx.Name(end),) if guard else (), guard, call.line), jump)
        with self.locations.called():
            self.walk(function.body or (), inner)
        self._callers.pop()
        inner.labels[end] = jump.labels[end] = len(self.found)

    def _callee(self, call: ptx.Instruction, name: str, results: int, arguments: int) -> ptx.Function:
        try:
            function = self.module.function(name)
        except KeyError:
            raise _refusal(call, f"indirect calls are not supported ({name} is not a function)") from None
        if function.body is None or function.kind != "func":
            raise _refusal(call, f"{name} is not defined in the PTX")
        if name in self._callers or len(self._callers) == _MAX_CALL_DEPTH:
            raise _refusal(call, f"recursive calls are not supported ({name})")
        if (len(function.results), len(function.parameters)) != (results, arguments):
            raise _refusal(call, f"{name} takes other parameters")
        return function

    def _place(self, variable: ptx.Variable) -> Symbol:
        if variable.space == "shared":
            if is_dynamic(variable):
                self.dynamic_align = max(self.dynamic_align, dynamic_align(variable))
                return Symbol("dynamic", 0)
            return Symbol("shared", self.shared.place(size_of(variable), align_of(variable)))
        if variable.space in ("local", "param"):  # arguments of a call pass through local memory
            return Symbol("local", self.local.place(size_of(variable), align_of(variable)))
        raise UnsupportedError(
            f".{variable.space} variable {variable.name} at PTX line {variable.line}: not supported inside a function"
        )


def _end_label(depth: int) -> str:
    """The label behind an inlined body; no PTX name has a space."""
    return f"end of call {depth}"


def _split_call(call: ptx.Instruction) -> tuple[tuple[ptx.Name, ...], str, tuple[ptx.Name, ...]]:
    """The results, the function and the arguments of ``call (results), function, (arguments)``."""
    before: tuple[ptx.Operand, ...] = ()
    operands = call.operands
    if operands and isinstance(operands[0], ptx.Group):
        before, operands = operands[0].elements, operands[1:]
    after: tuple[ptx.Operand, ...] = ()
    if len(operands) == 2 and isinstance(operands[1], ptx.Group):
        after, operands = operands[1].elements, operands[:1]
    if len(operands) != 1 or not isinstance(operands[0], ptx.Name):
        raise _refusal(call, "indirect calls are not supported")
    results = tuple(operand for operand in before if isinstance(operand, ptx.Name))
    arguments = tuple(operand for operand in after if isinstance(operand, ptx.Name))
    if len(results) != len(before) or len(arguments) != len(after):
        raise _refusal(call, "constants as arguments are not supported")
    return results, operands[0].text, arguments


def _names(operand: ptx.Operand) -> list[str]:
    match operand:
        case ptx.Name():
            return [operand.text]
        case ptx.Offset():
            return [operand.base.text]
        case ptx.Address():
            return _names(operand.base) + [name for extra in operand.extra for name in _names(extra)]
        case ptx.Vector() | ptx.Group():
            return [name for element in operand.elements for name in _names(element)]
        case ptx.Pair():
            return _names(operand.first) + _names(operand.second)
        case _:
            return []


def _declare_registers(registers: ptx.Registers, scope: Scope) -> None:
    if registers.type not in TYPES or registers.vector != 1:
        vector = f".v{registers.vector} " if registers.vector != 1 else ""
        raise UnsupportedError(f".reg {vector}.{registers.type} at PTX line {registers.line} is not supported")
    for name, count in registers.names:
        scope.declare(name, count, registers.type)


def _note_directive(directive: ptx.Directive, scope: Scope) -> None:
    if directive.name == ".branchtargets":
        scope.branch_targets[directive.label] = tuple(name.strip() for name in directive.text.split(","))
    elif directive.name not in (".pragma", ".callprototype", ".calltargets"):
        raise UnsupportedError(f"{directive.name} at PTX line {directive.line} is not supported inside a function")


def _refusal(instruction: ptx.Instruction, why: str) -> UnsupportedError:
    return UnsupportedError(f"{instruction.opcode} at PTX line {instruction.line}: {why}")
