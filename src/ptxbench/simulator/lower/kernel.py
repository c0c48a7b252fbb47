"""One entry function, lowered: its names resolved, then every instruction passed to its rule."""

from __future__ import annotations

import re
from typing import Final

from ptxbench.core import UnsupportedError
from ptxbench.simulator import ptx
from ptxbench.simulator.lower.collect import Collector
from ptxbench.simulator.lower.image import LoweredInstruction, LoweredKernel
from ptxbench.simulator.lower.locations import Frames, Locations
from ptxbench.simulator.lower.scope import CARRY, Rows, Scope, Symbol
from ptxbench.simulator.lower.site import Rules, Site
from ptxbench.simulator.lower.stack import OPCODES, STACK, STACK_ALIGN, STACK_BYTES
from ptxbench.simulator.lower.variables import Block, ModuleVariables, align_of, size_of

# What the simulator lacks, by the modifier that asks for it; anything else is refused where it is not understood.
_GAPS: Final = {
    "sp": "sparse products", "sp::ordered_metadata": "sparse products",
    "ashift": "shifted rows of A", "shift": "moves of rows in tensor memory",
}  # fmt: skip
_NUMBER = re.compile(r"[0-9]{1,9}")


def lower_kernel(module: ptx.Module, variables: ModuleVariables, name: str, rules: Rules) -> LoweredKernel:
    """Lowers one entry function; `UnsupportedError` names the first instruction that has no rule."""
    function = _entry(module, name)
    rows = Rows()
    outermost = Scope(rows)
    outermost.declare(CARRY, None, "pred")
    outermost.symbols.update(variables.symbols)
    scope = Scope(rows, outermost)
    parameters = _place_parameters(function, scope)
    collected = Collector(module, variables, Locations(module.files()), rows, outermost)
    collected.walk(function.body or (), scope)
    collected.place_module_shared()
    if any(instruction.opcode.startswith(OPCODES) for instruction, _, _ in collected.found):
        outermost.symbols[STACK] = Symbol("local", collected.local.place(STACK_BYTES, STACK_ALIGN))
    code = tuple(_lower_instruction(*found, rules) for found in collected.found)
    return LoweredKernel(
        name=name,
        param_bytes=parameters,
        static_shared=collected.shared.size,
        dynamic_align=collected.dynamic_align,
        local_bytes=collected.local.size,
        rows=rows.count,
        constants=tuple(rows.constants.values()),
        code=code,
        required_cluster=_dim3(function, ".reqnctapercluster"),
        max_threads=_max_threads(function),
        max_registers=_number(function, ".maxnreg"),
    )


def _entry(module: ptx.Module, name: str) -> ptx.Function:
    try:
        function = module.function(name)
    except KeyError:
        raise UnsupportedError(f"the PTX has no kernel {name}") from None
    if function.kind != "entry" or function.body is None:
        raise UnsupportedError(f"{name} at PTX line {function.line} is not the definition of a kernel")
    return function


def _lower_instruction(instruction: ptx.Instruction, scope: Scope, frames: Frames, rules: Rules) -> LoweredInstruction:
    site = Site(instruction, scope, frames)
    rule = rules.get(site.base)
    if rule is None:
        site.refuse("the simulator does not implement this instruction")
    for modifier in site.modifiers:
        if modifier in _GAPS:
            site.refuse(f".{modifier} ({_GAPS[modifier]}) is not supported")
    return rule(site)


def _place_parameters(function: ptx.Function, scope: Scope) -> int:
    block = Block()
    for parameter in function.parameters:
        if isinstance(parameter, ptx.Registers):
            raise UnsupportedError(f"{function.name} at PTX line {function.line} has register parameters")
        scope.symbols[parameter.name] = Symbol("param", block.place(size_of(parameter), align_of(parameter)))
    return block.size


def _numbers(function: ptx.Function, name: str) -> list[int]:
    """The numbers behind a directive of the function; none if it is absent."""
    for directive in function.directives:
        if directive.name == name:
            parts = [part.strip() for part in directive.text.split(",")]
            if not all(_NUMBER.fullmatch(part) for part in parts):
                raise UnsupportedError(f"{name} at PTX line {directive.line}: cannot read {directive.text!r}")
            return [int(part) for part in parts]
    return []


def _dim3(function: ptx.Function, name: str) -> tuple[int, int, int] | None:
    found = _numbers(function, name)
    if not found:
        return None
    x, y, z = [*found, 1, 1][:3]
    return x, y, z


def _max_threads(function: ptx.Function) -> int | None:
    dims = _dim3(function, ".maxntid") or _dim3(function, ".reqntid")
    return dims[0] * dims[1] * dims[2] if dims else None


def _number(function: ptx.Function, name: str) -> int | None:
    return next(iter(_numbers(function, name)), None)
