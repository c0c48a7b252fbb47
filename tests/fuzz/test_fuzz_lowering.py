"""Every instruction with operands that it cannot have is refused by name: no exception of another kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fuzz_synthesis import executed, forms
from isa_forms import Form, module

from ptxbench.core import Target, UnsupportedError
from ptxbench.simulator import load, ptx

OTHERS = (
    ptx.Immediate(2**64 - 1), ptx.Immediate(-(2**63)), ptx.Immediate(2**70), ptx.Immediate(0x7FC00000, "f32"),
    ptx.Name("_"), ptx.Name("nothing"), ptx.Vector(()), ptx.Vector((ptx.Immediate(1),)), ptx.Address(ptx.Immediate(0)),
    ptx.Address(ptx.Name("nothing")), ptx.Address(ptx.Name("x0"), 2**65),
    ptx.Address(ptx.Name("x0"), 0, (ptx.Vector((ptx.Immediate(0),)),)), ptx.Pair(ptx.Name("x0"), ptx.Name("x0")),
    ptx.Not(ptx.Name("x0")), ptx.Offset(ptx.Name("x0"), 4), ptx.Group((ptx.Name("x0"),)),
)  # fmt: skip


def one_of_each_pattern() -> Iterator[tuple[Form, Target]]:
    seen: set[str] = set()
    for form in forms():
        for target in Target:
            if form.pattern not in seen and executed(form, target):
                seen.add(form.pattern)
                yield form, target


def variants(operands: tuple[ptx.Operand, ...]) -> Iterator[tuple[ptx.Operand, ...]]:
    """Each operand left out, given twice, or replaced."""
    yield ()
    for at, own in enumerate(operands):
        for instead in ((), (own, own), *((other,) for other in OTHERS)):
            yield (*operands[:at], *instead, *operands[at + 1 :])


def programs(form: Form, target: Target) -> Iterator[str]:
    parsed = ptx.parse(module([form], target))
    function = parsed.function("k0")
    body = function.body or ()
    at = next(i for i, s in enumerate(body) if isinstance(s, ptx.Instruction) and s.opcode == form.opcode)
    own = body[at]
    assert isinstance(own, ptx.Instruction)
    for operands in variants(own.operands):
        changed = replace(function, body=(*body[:at], replace(own, operands=operands), *body[at + 1 :]))
        yield ptx.emit(replace(parsed, items=tuple(changed if item is function else item for item in parsed.items)))


def test_operands_that_cannot_be_are_refused():
    tried, wrong = 0, dict[str, str]()
    for form, target in one_of_each_pattern():
        for text in programs(form, target):
            tried += 1
            try:
                load(text, ["k0"])
            except UnsupportedError:
                pass
            except Exception as error:  # what is looked for
                wrong[form.opcode] = repr(error)
    assert tried > 10_000
    assert wrong == {}
