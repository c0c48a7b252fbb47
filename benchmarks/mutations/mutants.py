"""Mutants of a kernel: one synchronisation instruction deleted, duplicated, moved or weakened, at PTX level."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from ptxbench.simulator.ptx import (
    Address,
    Directive,
    Group,
    Immediate,
    Instruction,
    Label,
    Location,
    Module,
    Name,
    Not,
    Offset,
    Operand,
    Pair,
    Scope,
    Statement,
    Vector,
)

CLASSES: tuple[tuple[str, str], ...] = (
    ("mbarrier wait", r"mbarrier\.(try|test)_wait"),
    ("mbarrier arrival", r"mbarrier\.(arrive|expect_tx|complete_tx)|cp\.async\.mbarrier"),
    ("mbarrier init", r"mbarrier\.init"),
    ("CTA barrier", r"(bar|barrier)\.(?!warp|cluster)"),
    ("warp barrier", r"bar\.warp"),
    ("cluster barrier", r"barrier\.cluster"),
    ("proxy fence", r"fence\.proxy"),
    ("mbarrier_init fence", r"fence\.mbarrier_init"),
    ("memory fence", r"fence\.(?!proxy|mbarrier_init)|membar"),
    ("wgmma order", r"wgmma\.(fence|commit_group|wait_group)"),
    ("tcgen05 commit", r"tcgen05\.commit"),
    ("tcgen05 wait", r"tcgen05\.wait"),
    ("tcgen05 fence", r"tcgen05\.fence"),
    ("copy group", r"cp\.async\.(bulk\.)?(commit_group|wait_group|wait_all)"),
)
"""Classes of synchronisation instructions, with the opcodes that belong to each; the first match counts."""

OPERATIONS = ("delete", "duplicate", "earlier", "later", "weaken")
REPEAT = "repeat"
"""The duplicate of what only waits, orders or initialises: it adds order and takes none away, so that a right kernel
stays right. What is reported of it, other than a deadlock, would be a false alarm.
"""

_ORDERS = re.compile(
    r"mbarrier\.(try_wait|test_wait|init)|fence|membar|(bar|barrier)\.(warp\.|cta\.)?sync|wgmma\.(fence|commit|wait)"
    r"|tcgen05\.(wait|fence)|cp\.async\.(bulk\.)?(commit|wait)"
)
_EFFECT = re.compile(r"(ld|st|atom|red|cp|mbarrier|bar|barrier|fence|membar|wgmma|tcgen05|mma|ldmatrix|stmatrix)\.")
# What other threads and engines cannot see.
_PRIVATE = re.compile(r"(ld|st)\.(param|const|local)|cp\.async\.bulk\.prefetch")
_FLOW = re.compile(r"bra|brx|ret|exit|call")

Path = tuple[int, ...]
"""Where a statement stands: an index for each scope."""


@dataclass(frozen=True)
class Mutant:
    """One change; ``number`` counts the mutants of the kernel. ``line`` is the source line of the instruction,
    innermost in the candidate's own file, 0 if unknown; ``place`` is its number among the kernel's synchronisation
    instructions.
    """

    kernel: str
    number: int
    place: int
    group: str
    operation: str
    opcode: str
    line: int
    module: Module


def mutants(module: Module, kernel: str) -> Iterator[Mutant]:
    """All mutants of a kernel's own synchronisation instructions, in their order."""
    function = module.function(kernel)
    body = function.body or ()
    sites = [site for site in _instructions(body) if class_of(site[1].opcode)]
    # The compiler unrolls loops: of the copies of a line, the first and the last are mutated.
    ends = {(line, instruction.opcode): path for path, instruction, line in sites}
    begun: set[tuple[int, str]] = set()
    number = 0
    for place, (path, instruction, line) in enumerate(sites):
        group, copy = class_of(instruction.opcode), (line, instruction.opcode)
        if group is None or (copy in begun and ends[copy] != path):
            continue
        begun.add(copy)
        for operation, changed in _changes(body, path, instruction):
            items = tuple(replace(function, body=changed) if item is function else item for item in module.items)
            changed_module = replace(module, items=items)
            yield Mutant(kernel, number, place, group, operation, instruction.opcode, line, changed_module)
            number += 1


def class_of(opcode: str) -> str | None:
    """The class of an opcode, or None."""
    return next((name for name, pattern in CLASSES if re.match(pattern, opcode)), None)


def _instructions(body: tuple[Statement, ...]) -> Iterator[tuple[Path, Instruction, int]]:
    line = 0

    def walk(statements: tuple[Statement, ...], above: Path) -> Iterator[tuple[Path, Instruction, int]]:
        nonlocal line
        for index, statement in enumerate(statements):
            if isinstance(statement, Location):
                # Inlined code belongs to the place that it was inlined at.
                line = statement.inlined_at[1] if statement.inlined_at else statement.line
            elif isinstance(statement, Scope):
                yield from walk(statement.body, (*above, index))
            elif isinstance(statement, Instruction):
                yield (*above, index), statement, line

    yield from walk(body, ())


def _changes(
    body: tuple[Statement, ...], path: Path, instruction: Instruction
) -> Iterator[tuple[str, tuple[Statement, ...]]]:
    yield "delete", _replaced(body, path, _deleted(instruction))
    twice = REPEAT if _ORDERS.match(instruction.opcode) else "duplicate"
    yield twice, _replaced(body, path, (instruction, instruction))
    for name, step in (("earlier", -1), ("later", 1)):
        moved = _moved(_siblings(body, path), path[-1], step)
        if moved is not None:
            yield name, _with_siblings(body, path, moved)
    for weaker in _weaker(instruction):
        yield "weaken", _replaced(body, path, (weaker,))


def _deleted(instruction: Instruction) -> tuple[Statement, ...]:
    """Nothing; of a wait remains that it succeeded."""
    if re.match(r"mbarrier\.(try|test)_wait", instruction.opcode):
        zero = Immediate(0)
        return (replace(instruction, opcode="setp.eq.u32", operands=(instruction.operands[0], zero, zero)),)
    return ()


def _moved(siblings: tuple[Statement, ...], at: int, step: int) -> tuple[Statement, ...] | None:
    """The instruction moved past its next neighbour with an effect that others can see, and that does not commute with
    it; None if control flow comes first.
    """
    to, own = at + step, siblings[at]
    assert isinstance(own, Instruction)
    while 0 <= to < len(siblings):
        other = siblings[to]
        if isinstance(other, Instruction) and _depends(*((own, other) if step > 0 else (other, own))):
            return None
        if isinstance(other, Label | Scope | Directive) or (
            isinstance(other, Instruction) and _FLOW.match(other.opcode)
        ):
            return None
        if isinstance(other, Instruction) and _EFFECT.match(other.opcode) and not _commute(own, other):
            rest = [*siblings[:at], *siblings[at + 1 :]]
            rest.insert(to, siblings[at])
            return tuple(rest)
        to += step
    return None


def _commute(own: Instruction, other: Instruction) -> bool:
    """Whether the order of two neighbours cannot matter: private memory, and the initialisation of two mbarriers."""
    return bool(_PRIVATE.match(other.opcode)) or (
        own.opcode.startswith("mbarrier.init") and other.opcode.startswith("mbarrier.init")
    )


def _depends(first: Instruction, second: Instruction) -> bool:
    """Whether the second reads a register that the first, by its first operand, writes. The PTX of a compiler writes
    registers once.
    """
    written = _names(first.operands[:1]) if first.operands and not isinstance(first.operands[0], Address) else set()
    guard = {second.guard.name} if second.guard else set[str]()
    return bool(written & (_names(second.operands) | guard))


def _names(operands: Iterable[Operand]) -> set[str]:
    found: set[str] = set()
    for operand in operands:
        match operand:
            case Name():
                found.add(operand.text)
            case Not():
                found.add(operand.operand.text)
            case Vector() | Group():
                found |= _names(operand.elements)
            case Pair():
                found |= _names((operand.first, operand.second))
            case Address():
                found |= _names((operand.base, *operand.extra))
            case Offset():
                found.add(operand.base.text)
            case _:
                pass
    return found


def _weaker(instruction: Instruction) -> Iterator[Instruction]:
    opcode, operands = instruction.opcode, instruction.operands
    if ".wait_group" in opcode and isinstance(operands[0], Immediate):
        more = Immediate(operands[0].value + 1)
        yield replace(instruction, operands=(more, *operands[1:]))
    if opcode == "cp.async.bulk.wait_group":
        yield replace(instruction, opcode=f"{opcode}.read")
    if opcode.startswith("barrier.cluster.arrive") and ".relaxed" not in opcode:
        yield replace(instruction, opcode=opcode.replace(".release", "").replace(".arrive", ".arrive.relaxed"))
    if opcode == "fence.proxy.async" or opcode.startswith("fence.proxy.async.shared"):
        yield replace(instruction, opcode="fence.proxy.async.global")
    if opcode.startswith("mbarrier.init") and isinstance(operands[1], Immediate) and operands[1].value > 1:
        yield replace(instruction, operands=(operands[0], Immediate(operands[1].value - 1)))
    if re.match(r"mbarrier\.try_wait\.parity", opcode) and isinstance(operands[2], Immediate):
        flipped = Immediate(operands[2].value ^ 1)
        yield replace(instruction, operands=(*operands[:2], flipped, *operands[3:]))


def _siblings(body: tuple[Statement, ...], path: Path) -> tuple[Statement, ...]:
    for index in path[:-1]:
        scope = body[index]
        assert isinstance(scope, Scope)
        body = scope.body
    return body


def _replaced(body: tuple[Statement, ...], path: Path, by: tuple[Statement, ...]) -> tuple[Statement, ...]:
    siblings = _siblings(body, path)
    return _with_siblings(body, path, (*siblings[: path[-1]], *by, *siblings[path[-1] + 1 :]))


def _with_siblings(body: tuple[Statement, ...], path: Path, siblings: tuple[Statement, ...]) -> tuple[Statement, ...]:
    if len(path) == 1:
        return siblings
    scope = body[path[0]]
    assert isinstance(scope, Scope)
    inner = Scope(_with_siblings(scope.body, path[1:], siblings))
    return (*body[: path[0]], inner, *body[path[0] + 1 :])


__all__ = ["CLASSES", "OPERATIONS", "REPEAT", "Mutant", "class_of", "mutants"]
