"""One entry function, lowered: scopes opened, variables placed, every instruction passed to its rule."""

from __future__ import annotations

from dataclasses import dataclass, field

from ptxbench.core import UnsupportedError
from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import LoweredInstruction, LoweredKernel
from ptxbench.simulator.lower.scope import CARRY, Rows, Scope, Symbol
from ptxbench.simulator.lower.site import Rules, Site
from ptxbench.simulator.lower.types import TYPES
from ptxbench.simulator.lower.variables import Block, ModuleVariables, align_of, dynamic_align, is_dynamic, size_of

Frames = tuple[tuple[str, int], ...]


@dataclass(slots=True)
class _Locations:
    """Follows ``.loc`` and builds chains of frames, innermost first.

    ``inlined_at`` names the position of an earlier ``.loc``; the chain goes on with what that one was inlined at.
    """

    files: dict[int, str]
    current: Frames = ()
    chains: dict[tuple[int, int, int], Frames] = field(default_factory=lambda: dict[tuple[int, int, int], Frames]())

    def follow(self, location: ptx.Location) -> None:
        frame = (self.files.get(location.file, ""), location.line)
        outer: Frames = ()
        if location.inlined_at is not None:
            file, line, _ = location.inlined_at
            outer = self.chains.get(location.inlined_at, ((self.files.get(file, ""), line),))
        self.current = (frame, *outer)
        self.chains[location.file, location.line, location.column] = self.current


@dataclass(slots=True)
class _Kernel:
    """A kernel while it is lowered: its blocks of memory and its instructions with their scopes."""

    module: ModuleVariables
    locations: _Locations
    rows: Rows = field(default_factory=Rows)
    shared: Block = field(default_factory=Block)
    local: Block = field(default_factory=Block)
    dynamic_align: int = 16
    found: list[tuple[ptx.Instruction, Scope, Frames]] = field(
        default_factory=lambda: list[tuple[ptx.Instruction, Scope, Frames]]()
    )

    def collect(self, body: tuple[ptx.Statement, ...], scope: Scope) -> None:
        """Walks a scope: declares its names, and notes its instructions in order. The parser bounds the nesting."""
        for statement in body:
            match statement:
                case ptx.Instruction():
                    self.found.append((statement, scope, self.locations.current))
                case ptx.Location():
                    self.locations.follow(statement)
                case ptx.Label():
                    scope.labels[statement.name] = len(self.found)
                case ptx.Scope():
                    self.collect(statement.body, Scope(self.rows, scope))
                case ptx.Registers():
                    declare_registers(statement, scope)
                case ptx.Variable():
                    scope.symbols[statement.name] = self._place(statement)
                case ptx.Directive():
                    _note_directive(statement, scope)

    def place_module_shared(self, outermost: Scope) -> None:
        """Places the module's shared variables that this kernel names."""
        if not self.module.shared:
            return
        operands = (operand for instruction, _, _ in self.found for operand in instruction.operands)
        named = {name for operand in operands for name in names(operand)}
        for name, variable in self.module.shared.items():
            if name in named:
                outermost.symbols[name] = self._place(variable)

    def _place(self, variable: ptx.Variable) -> Symbol:
        if variable.space == "shared":
            if is_dynamic(variable):
                self.dynamic_align = max(self.dynamic_align, dynamic_align(variable))
                return Symbol("dynamic", 0)
            return Symbol("shared", self.shared.place(size_of(variable), align_of(variable)))
        if variable.space == "local":
            return Symbol("local", self.local.place(size_of(variable), align_of(variable)))
        raise UnsupportedError(
            f".{variable.space} variable {variable.name} at PTX line {variable.line}: not supported inside a function"
        )


def lower_kernel(module: ptx.Module, variables: ModuleVariables, name: str, rules: Rules) -> LoweredKernel:
    """Lowers one entry function; `UnsupportedError` names the first instruction that has no rule."""
    try:
        function = module.function(name)
    except KeyError:
        raise UnsupportedError(f"the PTX has no kernel {name}") from None
    if function.kind != "entry" or function.body is None:
        raise UnsupportedError(f"{name} at PTX line {function.line} is not the definition of a kernel")
    kernel = _Kernel(variables, _Locations(module.files()))
    outermost = Scope(kernel.rows)
    outermost.declare(CARRY, None, "pred")
    outermost.symbols.update(variables.symbols)
    parameters = _place_parameters(function, outermost)
    kernel.collect(function.body, Scope(kernel.rows, outermost))
    kernel.place_module_shared(outermost)
    code = tuple(_lower_instruction(instruction, scope, frames, rules) for instruction, scope, frames in kernel.found)
    return LoweredKernel(
        name=name,
        param_bytes=parameters,
        static_shared=kernel.shared.size,
        dynamic_align=kernel.dynamic_align,
        local_bytes=kernel.local.size,
        rows=kernel.rows.count,
        constants=tuple(kernel.rows.constants.values()),
        code=code,
        required_cluster=_dim3(function, ".reqnctapercluster"),
        max_threads=_max_threads(function),
        max_registers=_number(function, ".maxnreg"),
    )


def names(operand: ptx.Operand) -> list[str]:
    """Every name that an operand mentions."""
    match operand:
        case ptx.Name():
            return [operand.text]
        case ptx.Offset():
            return [operand.base.text]
        case ptx.Address():
            return names(operand.base) + [name for extra in operand.extra for name in names(extra)]
        case ptx.Vector() | ptx.Group():
            return [name for element in operand.elements for name in names(element)]
        case ptx.Pair():
            return names(operand.first) + names(operand.second)
        case _:
            return []


def declare_registers(registers: ptx.Registers, scope: Scope) -> None:
    """Declares what a ``.reg`` statement names."""
    if registers.type not in TYPES or registers.vector != 1:
        vector = f".v{registers.vector} " if registers.vector != 1 else ""
        raise UnsupportedError(f".reg {vector}.{registers.type} at PTX line {registers.line} is not supported")
    for name, count in registers.names:
        scope.declare(name, count, registers.type)


def _lower_instruction(instruction: ptx.Instruction, scope: Scope, frames: Frames, rules: Rules) -> LoweredInstruction:
    site = Site(instruction, scope, frames)
    rule = rules.get(site.base)
    if rule is None:
        site.refuse("the simulator does not implement this instruction")
    return rule(site)


def _place_parameters(function: ptx.Function, scope: Scope) -> int:
    block = Block()
    for parameter in function.parameters:
        if isinstance(parameter, ptx.Registers):
            raise UnsupportedError(f"{function.name} at PTX line {function.line} has register parameters")
        scope.symbols[parameter.name] = Symbol("param", block.place(size_of(parameter), align_of(parameter)))
    return block.size


def _note_directive(directive: ptx.Directive, scope: Scope) -> None:
    if directive.name == ".branchtargets":
        scope.branch_targets[directive.label] = tuple(name.strip() for name in directive.text.split(","))
    elif directive.name != ".pragma":
        raise UnsupportedError(f"{directive.name} at PTX line {directive.line} is not supported inside a function")


def _dim3(function: ptx.Function, name: str) -> tuple[int, int, int] | None:
    for directive in function.directives:
        if directive.name == name:
            x, y, z = ([int(part) for part in directive.text.split(",")] + [1, 1])[:3]
            return x, y, z
    return None


def _max_threads(function: ptx.Function) -> int | None:
    dims = _dim3(function, ".maxntid") or _dim3(function, ".reqntid")
    return dims[0] * dims[1] * dims[2] if dims else None


def _number(function: ptx.Function, name: str) -> int | None:
    return next((int(directive.text) for directive in function.directives if directive.name == name), None)
