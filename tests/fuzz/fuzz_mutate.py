"""Mutations of a case: of the intermediate representation of its PTX, of the text, and of its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from fuzz_case import Case
from fuzz_synthesis import EXTREMES, Rng, forms

from ptxbench.core import (
    Address,
    Block,
    CopyNode,
    KernelNode,
    LaunchPlan,
    MemsetNode,
    PointerPatch,
    TensorMap,
    TensorMapPatch,
    UnsupportedError,
)
from ptxbench.simulator import ptx

Path = tuple[int, ...]
LARGEST_BUFFER = 1 << 22
_FARTHEST = 1 << 40  # of an address from its buffer
_LONGEST_FILL = 1 << 24  # elements, or bytes
# What the fields of an encoded tensor map hold; the recorder refuses much less.
_LARGEST = {
    "dims": 2**64 - 1, "strides": 2**64 - 1, "box": 65535, "element_strides": 255, "lower_corner": 2**15 - 1,
    "upper_corner": 2**15 - 1,
}  # fmt: skip


def mutate(rng: Rng, case: Case) -> Case:
    """The case with one to three changes."""
    for _ in range(int(rng.choice((1, 1, 2, 3)))):
        pick = rng.random()
        if pick < 0.7:
            case = case.model_copy(update={"ptx": _changed_program(rng, case.ptx)})
        elif pick < 0.75:
            case = case.model_copy(update={"ptx": _changed_text(rng, case.ptx)})
        elif pick < 0.8:
            case = case.model_copy(update={"registers": _extreme(rng) % 256, "moves_registers": rng.random() < 0.5})
        else:
            case = case.model_copy(update={"plan": _changed_plan(rng, case.plan)})
    return case


def _extreme(rng: Rng) -> int:
    return EXTREMES[rng.integers(len(EXTREMES))]


def _one(rng: Rng, values: Sequence[Any]) -> Any:
    return values[rng.integers(len(values))]


# The program


def _changed_program(rng: Rng, text: str) -> str:
    try:
        module = ptx.parse(text)
    except UnsupportedError:
        return _changed_text(rng, text)
    bodies = [i for i, item in enumerate(module.items) if isinstance(item, ptx.Function) and item.body]
    if not bodies or rng.random() < 0.05:
        return ptx.emit(_changed_declaration(rng, module))
    chosen = int(_one(rng, bodies))
    function = module.items[chosen]
    assert isinstance(function, ptx.Function)
    if rng.random() < 0.05:
        function = _changed_head(rng, function)
    else:
        function = replace(function, body=_changed_body(rng, function.body or ()))
    return ptx.emit(replace(module, items=(*module.items[:chosen], function, *module.items[chosen + 1 :])))


def _changed_declaration(rng: Rng, module: ptx.Module) -> ptx.Module:
    items = list(module.items)
    places = [i for i, item in enumerate(items) if isinstance(item, ptx.Variable)]
    if places:
        at = int(_one(rng, places))
        items[at] = _changed_variable(rng, items[at])
    return replace(module, items=tuple(items))


def _changed_variable(rng: Rng, variable: Any) -> Any:
    types = ("b8", "u16", "b32", "f32", "u64", "f64", "b128", "pred")
    change = (
        {"dims": (_extreme(rng),)}, {"type": _one(rng, types)}, {"align": _extreme(rng)}, {"dims": ()},
        {"space": _one(rng, ("global", "const", "shared", "local"))}, {"vector": _one(rng, (1, 2, 4, 8))},
    )  # fmt: skip
    changes: dict[str, Any] = _one(rng, change)
    if any(isinstance(value, tuple) and any(n < 0 for n in value) for value in changes.values()):
        changes = {"dims": (0,)}
    return replace(variable, **changes)


def _changed_head(rng: Rng, function: ptx.Function) -> ptx.Function:
    parameters, directives = list(function.parameters), list(function.directives)
    pick = rng.random()
    if parameters and pick < 0.4:
        at = int(rng.integers(len(parameters)))
        if isinstance(parameters[at], ptx.Variable):
            parameters[at] = _changed_variable(rng, parameters[at])
    elif parameters and pick < 0.6:
        del parameters[rng.integers(len(parameters))]
    elif directives and pick < 0.8:
        at = int(rng.integers(len(directives)))
        directives[at] = replace(directives[at], text=str(_extreme(rng)))
    else:
        names = (".maxntid", ".reqntid", ".reqnctapercluster", ".maxnreg", ".explicitcluster", ".minnctapersm")
        directives.append(ptx.Directive(_one(rng, names), str(abs(_extreme(rng)))))
    return replace(function, parameters=tuple(parameters), directives=tuple(directives))


def _paths(body: tuple[ptx.Statement, ...], above: Path = ()) -> Iterator[tuple[Path, ptx.Statement]]:
    for index, statement in enumerate(body):
        if isinstance(statement, ptx.Scope):
            yield from _paths(statement.body, (*above, index))
        elif not isinstance(statement, ptx.Location):
            yield (*above, index), statement


def _put(body: tuple[ptx.Statement, ...], path: Path, by: tuple[ptx.Statement, ...]) -> tuple[ptx.Statement, ...]:
    at, *inner = path
    if inner:
        scope = body[at]
        assert isinstance(scope, ptx.Scope)
        by = (ptx.Scope(_put(scope.body, tuple(inner), by)),)
    return (*body[:at], *by, *body[at + 1 :])


def _changed_body(rng: Rng, body: tuple[ptx.Statement, ...]) -> tuple[ptx.Statement, ...]:
    every = list(_paths(body))
    if not every:
        return body
    path, statement = every[rng.integers(len(every))]
    other_path, other = every[rng.integers(len(every))]
    pick = rng.random()
    if pick < 0.1:
        return _put(body, path, ())
    if pick < 0.2:
        return _put(body, path, (statement, other))
    if pick < 0.3 and path != other_path:
        return _put(_put(body, path, (other,)), other_path, (statement,))
    if isinstance(statement, ptx.Instruction):
        donor = other if isinstance(other, ptx.Instruction) else statement
        labels = [found.name for _, found in every if isinstance(found, ptx.Label)]
        return _put(body, path, (_changed_instruction(rng, statement, donor, labels),))
    if isinstance(statement, ptx.Registers):
        types = ("pred", "b8", "b16", "b32", "f32", "b64", "f64", "b128")
        return _put(body, path, (replace(statement, type=_one(rng, types)),))
    if isinstance(statement, ptx.Variable):
        return _put(body, path, (_changed_variable(rng, statement),))
    return body


def _changed_instruction(
    rng: Rng, own: ptx.Instruction, donor: ptx.Instruction, labels: Sequence[str]
) -> ptx.Instruction:
    pick = rng.random()
    if labels and own.opcode.startswith("bra"):
        return replace(own, operands=(ptx.Name(_one(rng, labels)),))
    if pick < 0.08:
        return replace(own, guard=donor.guard)
    if pick < 0.3:
        return replace(own, opcode=_changed_opcode(rng, own.opcode, donor.opcode))
    operands = list(own.operands)
    if not operands:
        return replace(own, opcode=donor.opcode, operands=donor.operands)
    at = int(rng.integers(len(operands)))
    if pick < 0.4:
        to = int(rng.integers(len(operands)))
        operands[at], operands[to] = operands[to], operands[at]
    elif pick < 0.5 and donor.operands:
        operands[at] = _one(rng, donor.operands)
    elif pick < 0.53:
        del operands[at]
    elif pick < 0.56:
        operands.insert(at, operands[at])
    else:
        operands[at] = _changed_operand(rng, operands[at])
    return replace(own, operands=tuple(operands))


def _changed_opcode(rng: Rng, own: str, donor: str) -> str:
    parts, others = own.split("."), donor.split(".")
    at = int(rng.integers(len(parts)))
    pick = rng.random()
    if pick < 0.3:
        parts[at] = _one(rng, others)
    elif pick < 0.5 and len(parts) > 1:
        del parts[at]
    elif pick < 0.6:
        parts.insert(at, _one(rng, others))
    else:
        form = _one(rng, [form for form in forms() if form.opcode.startswith(parts[0] + ".")] or forms())
        return form.opcode
    return ".".join(part for part in parts if part) or own


def _changed_operand(rng: Rng, operand: ptx.Operand) -> ptx.Operand:
    match operand:
        case ptx.Immediate() if rng.random() < 0.3:
            return replace(operand, value=operand.value ^ 1 << int(rng.integers(64)))
        case ptx.Address():
            if rng.random() < 0.7:
                return replace(operand, offset=operand.offset + _extreme(rng))
            return replace(operand, extra=operand.extra[:-1] if operand.extra else (ptx.Immediate(_extreme(rng)),))
        case ptx.Vector() if operand.elements:
            elements = list(operand.elements)
            at = int(rng.integers(len(elements)))
            pick = rng.random()
            if pick < 0.4:
                elements[at] = _one(rng, elements)
            elif pick < 0.7:
                del elements[at]
            else:
                elements[at] = _changed_operand(rng, elements[at])
            return ptx.Vector(tuple(elements))
        case ptx.Pair():
            return replace(operand, second=operand.first)
        case ptx.Offset():
            return replace(operand, offset=_extreme(rng))
        case _:
            return ptx.Immediate(_extreme(rng))


def _changed_text(rng: Rng, text: str) -> str:
    """A few characters deleted, repeated or replaced."""
    at, length = int(rng.integers(len(text) + 1)), int(rng.integers(1, 20))
    noise = "".join(_one(rng, "{}[]();,.:@!%<>+-0x9a$_\n \"'/*é\0") for _ in range(int(rng.integers(4))))
    pick = rng.random()
    if pick < 0.3:
        return text[:at] + text[at + length :]
    if pick < 0.6:
        return text[:at] + text[at : at + length] * int(rng.integers(2, 4)) + text[at + length :]
    return text[:at] + noise + text[at + (length if pick < 0.8 else 0) :]


# The plan


def _changed_plan(rng: Rng, plan: LaunchPlan) -> LaunchPlan:
    nodes = list(plan.nodes)
    pick = rng.random()
    if pick < 0.15:
        nodes.insert(int(rng.integers(len(nodes) + 1)), _filler(rng, plan))
    elif pick < 0.2 and len(nodes) > 1:
        del nodes[rng.integers(len(nodes))]
    elif pick < 0.3:
        buffers = list(plan.buffers)
        at = int(rng.integers(len(buffers)))
        size = max(0, min(_extreme(rng), LARGEST_BUFFER))
        buffers[at] = buffers[at].model_copy(update={"bytes": size})
        return plan.model_copy(update={"buffers": tuple(buffers)})
    elif nodes:
        at = int(rng.integers(len(nodes)))
        node = nodes[at]
        nodes[at] = _changed_launch(rng, plan, node) if isinstance(node, KernelNode) else _filler(rng, plan)
    return plan.model_copy(update={"nodes": tuple(nodes)})


def _place(rng: Rng, plan: LaunchPlan) -> Address:
    offset = max(-_FARTHEST, min(_extreme(rng), _FARTHEST)) if rng.random() < 0.5 else 0
    return Address(buffer=_one(rng, plan.buffers).name, offset=offset)


def _filler(rng: Rng, plan: LaunchPlan) -> MemsetNode | CopyNode:
    # What the recorder would refuse is left out: negative counts, and copies longer than their payload.
    to, count = _place(rng, plan), min(abs(_extreme(rng)), _LONGEST_FILL)
    if rng.random() < 0.5:
        return MemsetNode(to=to, value=_extreme(rng), width=_one(rng, (1, 2, 4)), count=count)
    if rng.random() < 0.5:
        return CopyNode(to=to, source=_place(rng, plan), bytes=count)
    return CopyNode(to=to, source=Block(data=rng.bytes(64)), bytes=64)


def _changed_launch(rng: Rng, plan: LaunchPlan, node: KernelNode) -> KernelNode:
    change: Callable[[], dict[str, Any]] = _one(
        rng,
        (
            lambda: {"grid": _changed_extent(rng, node.grid)}, lambda: {"block": _changed_extent(rng, node.block)},
            lambda: {"cluster": _changed_extent(rng, node.cluster)}, lambda: {"dynamic_shared": abs(_extreme(rng))},
            lambda: {"cooperative": not node.cooperative},
            lambda: {"parameters": _changed_block(rng, plan, node.parameters)},
            lambda: {"parameters": _changed_block(rng, plan, node.parameters)},
        ),
    )  # fmt: skip
    return node.model_copy(update=change())


def _changed_extent(rng: Rng, extent: tuple[int, int, int]) -> tuple[int, ...]:
    changed = list(extent)
    usual = rng.random() < 0.6
    changed[rng.integers(3)] = _one(rng, (1, 2, 3, 4, 8, 31, 32, 64, 128, 1024)) if usual else _extreme(rng)
    return tuple(changed)


def _changed_block(rng: Rng, plan: LaunchPlan, block: Block) -> Block:
    if block.patches and rng.random() < 0.7:
        patches = list(block.patches)
        at = int(rng.integers(len(patches)))
        patch = patches[at]
        if isinstance(patch, TensorMapPatch):
            patches[at] = patch.model_copy(update={"map": _changed_map(rng, plan, patch.map)})
        elif isinstance(patch, PointerPatch):
            patches[at] = patch.model_copy(update={"to": _place(rng, plan)})
        return block.model_copy(update={"patches": tuple(patches)})
    data = bytearray(block.data)
    if data:
        value = (_extreme(rng) % 2**64).to_bytes(8, "little")
        at = int(rng.integers(len(data)))
        data[at : at + 8] = value[: len(data) - at]
    return block.model_copy(update={"data": bytes(data)})


_MAP_FIELDS = ("dims", "strides", "box", "box", "element_strides", "swizzle", "dtype", "base", "oob_fill")


def _changed_map(rng: Rng, plan: LaunchPlan, tensor_map: TensorMap) -> TensorMap:
    corners = ("lower_corner", "upper_corner", "upper_corner")
    name = _one(rng, (*_MAP_FIELDS, *(corners if tensor_map.lower_corner else ())))
    values: Any = getattr(tensor_map, name)
    if isinstance(values, tuple) and values:
        changed = list(values)
        least = -(2**15) if name in corners else 1
        changed[rng.integers(len(changed))] = min(max(least, _extreme(rng)), _LARGEST[name])
        return tensor_map.model_copy(update={name: tuple(changed)})
    choices = {
        "swizzle": ("none", "32b", "64b", "128b"), "oob_fill": ("none", "nan_request_zero_fma"),
        "dtype": ("uint8", "uint16", "uint32", "int64", "float16", "float32", "float64", "bfloat16", "tfloat32"),
    }  # fmt: skip
    value = _place(rng, plan) if name == "base" else _one(rng, choices.get(name, ((),)))
    return tensor_map.model_copy(update={name: value})
