"""The probes of arithmetic in memory: atomics on a cell of each thread, and bulk copies that reduce into a row.

A cell is 16 bytes, so that what an instruction must leave alone shows too; its content behind the instruction takes two
rows of the results. Half of the compare-and-swaps find what they compare with.
"""

from __future__ import annotations

import re

from golden_inputs import LANES, SLOTS, of_class
from golden_writer import CLASSES, ROW_BYTES, Result, Writer, parts_of
from isa_forms import Form

_CELL = 16
_WAIT = (
    "W: mbarrier.try_wait.parity.shared.b64 done, [object], 0; @!done bra W; bar.sync 0; "
    "@lead mbarrier.inval.shared.b64 [object]; bar.sync 0;"
)


class MemoryWriter(Writer):
    """Writes a probe of instructions with one address that they read and write."""

    declarations = (
        f".shared .align 16 .b8 cells[{_CELL * LANES}]; .shared .align 16 .b8 source[{ROW_BYTES}]; "
        ".shared .align 8 .b64 object;"
    )

    def add(self, form: Form) -> None:
        """Adds one instruction: memory filled, executed, what it returned and what memory holds stored."""
        self.begin()
        self.lines.append(
            ".reg .u64 cell, value; .reg .u32 place; .reg .pred lead, done; setp.eq.u32 lead, thread, 0;"
        )
        if form.opcode.startswith("cp."):
            self._bulk(form)
        else:
            self._atomic(form)
        self.end()

    def _atomic(self, form: Form) -> None:
        returned = [] if form.operands[0].startswith("[") else parts_of(form.operands[0])
        outputs = [self.declare(part) for part in returned]
        sources = list(form.operands[bool(returned) :])
        shared, asynchronous = "[s]" in sources, ".async." in form.opcode
        kind = next(operand for operand in sources if not operand.startswith("["))
        held = sum(2 if part == "b128" else 1 for part in returned)
        row = len(self.results) + held
        to = "place" if shared else "cell"
        self.lines.append(
            f"mad.wide.u32 cell, thread, {_CELL}, out; add.u64 cell, cell, {row * ROW_BYTES}; mov.u32 place, cells; "
            f"mad.lo.u32 place, thread, {_CELL}, place;"
        )
        self._fill(f"st.{'shared' if shared else 'global'}", to, kind, compared=".cas." in form.opcode)
        operands = [f"{{{', '.join(outputs)}}}" if "*" in form.operands[0] else outputs[0]] if outputs else []
        for place, operand in enumerate(sources):
            if operand.startswith("["):
                operands.append(f"[{to}]" if place == 0 else "[object]")
            elif operand == "b128":
                operands.append(self._wide(place))
            else:
                operands.append(self.source(form, place, operand))
        if asynchronous:
            self._expect(LANES * self._bytes_of(kind))
        self.lines.append(f"{form.opcode} {', '.join(operands)};")
        if asynchronous:
            self.lines.append(_WAIT)
        for number, (register, part) in enumerate(zip(outputs, returned, strict=True)):
            self._returned(form, register, part, number)
        if shared:
            for at in (0, 8):
                self.lines.append(f"ld.shared.b64 value, [place+{at}]; st.global.b64 [cell+{at}], value;")
        self.results += [Result(form.opcode, form.operands, held + half, "b64") for half in (0, 1)]

    def _fill(self, store: str, to: str, kind: str, *, compared: bool) -> None:
        """Elements of the type that the instruction works on; ``compared``: of odd threads, the one it looks for."""
        cls = self.class_of(kind)
        size = of_class(cls).itemsize
        register = self.declare(f"b{8 * size}")
        self.classes.add(cls)
        self.lines.append(".reg .u32 from; .reg .pred odd; and.b32 from, thread, 1; setp.eq.u32 odd, from, 1;")
        for number in range(_CELL // size):
            self.lines.append(f"add.u32 from, thread, {29 + 43 * number};")
            if compared:
                self.lines.append(f"@odd add.u32 from, thread, {LANES * ((number + 1) % SLOTS)};")
            self.lines.append(
                f"mad.wide.u32 at, from, {size}, in_{cls}; ld.global.b{8 * size} {register}, [at]; "
                f"{store}.b{8 * size} [{to}+{number * size}], {register};"
            )

    def _wide(self, place: int) -> str:
        wide, halves = self.declare("b128"), [self.declare("b64"), self.declare("b64")]
        for number, register in enumerate(halves):
            self.load(register, "b64", "b64", place + number)
        self.lines.append(f"mov.b128 {wide}, {{{', '.join(halves)}}};")
        return wide

    def _returned(self, form: Form, register: str, part: str, number: int) -> None:
        registers = [register]
        if part == "b128":
            registers, part = [self.declare("b64"), self.declare("b64")], "b64"
            self.lines.append(f"mov.b128 {{{', '.join(registers)}}}, {register};")
        for half, held in enumerate(registers):
            self.store(held, part)
            self.results.append(Result(form.opcode, form.operands, number + half, part))

    def _expect(self, size: int) -> None:
        self.lines.append(
            "@lead mbarrier.init.shared.b64 [object], 1; fence.proxy.async; bar.sync 0; "
            f"@lead mbarrier.arrive.expect_tx.shared.b64 _, [object], {size}; bar.sync 0;"
        )

    def class_of(self, kind: str) -> str:
        """The class of the elements of an operand."""
        cls = "b64" if kind == "b128" else parts_of(kind)[0]
        return CLASSES.get(cls, cls)

    def _bytes_of(self, kind: str) -> int:
        return of_class(self.class_of(kind)).itemsize * len(parts_of(kind))

    def _bulk(self, form: Form) -> None:
        cls = self.class_of((re.findall(r"\.([usbf]\d+|bf16)$", form.opcode) or ["b64"])[0])
        self.classes.add(cls)
        shared = "bulk_group" not in form.opcode
        row = len(self.results) * ROW_BYTES
        self.lines.append(
            f".reg .u32 from; mad.wide.s32 at, thread, -8, in_{cls}; ld.global.b64 value, [at+{ROW_BYTES - 8}]; "
            "mov.u32 from, source; mad.lo.u32 place, thread, 8, from; st.shared.b64 [place], value; "
            f"mad.wide.u32 at, thread, 8, in_{cls}; ld.global.b64 value, [at]; mad.wide.u32 cell, thread, 8, out; "
            f"mov.u32 place, cells; mad.lo.u32 place, thread, 8, place; st.shared.b64 [place], value; "
            f"st.global.b64 [cell+{row}], value; fence.proxy.async; bar.sync 0;"
        )
        if shared:
            self._expect(ROW_BYTES)
            self.lines.append(f"@lead {form.opcode} [cells], [from], {ROW_BYTES}, [object]; {_WAIT}")
            self.lines.append(f"ld.shared.b64 value, [place]; st.global.b64 [cell+{row}], value;")
        else:
            self.lines.append(
                f"@lead {form.opcode} [cell+{row}], [from], {ROW_BYTES}; @lead cp.async.bulk.commit_group; "
                "@lead cp.async.bulk.wait_group 0;"
            )
        self.lines.append("bar.sync 0;")
        self.results.append(Result(form.opcode, form.operands, 0, "b64"))


class ClusterWriter(MemoryWriter):
    """Writes a probe of instructions that a kernel without a cluster must not execute: its own has one, of one CTA."""

    directives = ".explicitcluster .reqnctapercluster 1"


class SubnormalWriter(MemoryWriter):
    """Writes a probe of sums of subnormal numbers."""

    def class_of(self, kind: str) -> str:
        cls = super().class_of(kind)
        return f"sub_{cls}" if "f" in cls else cls

    def load(self, register: str, part: str, cls: str, slot: int) -> None:
        super().load(register, part, self.class_of(cls), slot)
