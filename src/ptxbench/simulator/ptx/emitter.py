"""The emitter: IR back to PTX text. ``parse(emit(module)) == module`` for every module that `parse` makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ptxbench.simulator.ptx.ir import (
    Address,
    Directive,
    Function,
    Group,
    Immediate,
    Instruction,
    Item,
    Label,
    Location,
    Module,
    Name,
    Not,
    Offset,
    Operand,
    Pair,
    Registers,
    Scope,
    Section,
    Statement,
    Variable,
    Vector,
)


def emit(module: Module) -> str:
    """The text of a module."""
    lines = [f".version {module.version}", f".target {module.target}", f".address_size {module.address_size}", ""]
    for item in module.items:
        lines.extend(_item(item))
    return "\n".join(lines) + "\n"


def emit_operand(operand: Operand) -> str:
    """The text of an operand."""
    match operand:
        case Name():
            return operand.text
        case Immediate():
            return _immediate(operand)
        case Not():
            return f"!{operand.operand.text}"
        case Offset():
            if operand.generic:
                return f"generic({operand.base.text})" + (f"+{operand.offset}" if operand.offset else "")
            return f"{operand.base.text}+{operand.offset}"
        case Vector():
            return "{" + _list(operand.elements) + "}"
        case Group():
            return "(" + _list(operand.elements) + ")"
        case Pair():
            return f"{emit_operand(operand.first)}|{emit_operand(operand.second)}"
        case Address():
            offset = f"+{operand.offset}" if operand.offset else ""
            return "[" + ", ".join([emit_operand(operand.base) + offset, *map(emit_operand, operand.extra)]) + "]"


def _list(operands: Iterable[Operand]) -> str:
    return ", ".join(map(emit_operand, operands))


def _immediate(value: Immediate) -> str:
    if value.kind == "f32":
        return f"0f{value.value:08X}"
    if value.kind == "f64":
        return f"0d{value.value:016X}"
    return str(value.value)


def _item(item: Item) -> Iterator[str]:
    match item:
        case Function():
            yield from _function(item)
        case Variable():
            yield _linkage(item) + _variable(item) + ";"
        case Directive():
            yield _directive(item)
        case Section():
            yield from (f".section {item.name}", "{", item.text, "}")


def _function(function: Function) -> Iterator[str]:
    linkage = f".{function.linkage} " if function.linkage else ""
    results = f" ({_parameters(function.results)})" if function.results else ""
    yield f"{linkage}.{function.kind}{results} {function.name}({_parameters(function.parameters)})"
    for directive in function.directives:
        yield f"{directive.name} {directive.text}".rstrip()
    if function.body is None:
        yield ";"
        return
    yield "{"
    yield from _statements(function.body)
    yield "}"


def _parameters(parameters: Iterable[Variable | Registers]) -> str:
    return ", ".join(
        _variable(parameter) if isinstance(parameter, Variable) else _registers(parameter) for parameter in parameters
    )


def _statements(body: Iterable[Statement]) -> Iterator[str]:
    for statement in body:
        match statement:
            case Instruction():
                yield _instruction(statement)
            case Location():
                yield _location(statement)
            case Label():
                yield f"{statement.name}:"
            case Scope():
                yield "{"
                yield from _statements(statement.body)
                yield "}"
            case Registers():
                yield _registers(statement) + ";"
            case Variable():
                yield _linkage(statement) + _variable(statement) + ";"
            case Directive():
                yield _directive(statement)


def _instruction(instruction: Instruction) -> str:
    guard = ""
    if instruction.guard is not None:
        guard = f"@{'!' if instruction.guard.negated else ''}{instruction.guard.name} "
    operands = f" {_list(instruction.operands)}" if instruction.operands else ""
    return f"{guard}{instruction.opcode}{operands};"


def _location(location: Location) -> str:
    text = f".loc {location.file} {location.line} {location.column}"
    if location.function:
        text += f", function_name {location.function}"
    if location.inlined_at is not None:
        text += ", inlined_at {} {} {}".format(*location.inlined_at)
    return text


def _registers(registers: Registers) -> str:
    vector = f".v{registers.vector} " if registers.vector != 1 else ""
    names = ", ".join(name if count is None else f"{name}<{count}>" for name, count in registers.names)
    return f".reg {vector}.{registers.type} {names}"


def _linkage(variable: Variable) -> str:
    return f".{variable.linkage} " if variable.linkage else ""


def _variable(variable: Variable) -> str:
    parts = [f".{variable.space}"]
    if variable.align is not None and variable.pointer is None:
        parts.append(f".align {variable.align}")
    if variable.vector != 1:
        parts.append(f".v{variable.vector}")
    parts.append(f".{variable.type}")
    if variable.pointer is not None:
        space, align = variable.pointer
        parts.append(".ptr" + (f" .{space}" if space != "generic" else "") + (f" .align {align}" if align else ""))
    dims = "".join(f"[{'' if dim is None else dim}]" for dim in variable.dims)
    initializer = f" = {emit_operand(variable.initializer)}" if variable.initializer is not None else ""
    return " ".join(parts) + f" {variable.name}{dims}{initializer}"


def _directive(directive: Directive) -> str:
    label = f"{directive.label}: " if directive.label else ""
    end = "" if directive.name == ".file" else ";"
    return f"{label}{directive.name} {directive.text}{end}"
