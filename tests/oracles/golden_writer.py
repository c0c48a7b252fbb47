"""Writes the body of a probe: instructions on registers, whose results go to rows of the output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from golden_inputs import LANES, MATRIX_SLOTS, SLOTS, of_class
from isa_forms import REGISTERS, SELECTED, VECTOR, Form

from ptxbench.core import Target

TARGET = Target.SM_90A
TILE_BYTES = 16384
"""Of shared memory, where a probe uses it."""

ROW_BYTES = 8 * LANES
"""Of a row of the results."""

_SIZES = {"16": "u16", "32": "b32", "64": "b64"}
# Integers of one width share their patterns.
CLASSES = {
    "u8": "b16", "s8": "b16", "u16": "b16", "s16": "b16", "u32": "b32", "s32": "b32", "u64": "b64", "s64": "b64",
    "u16x2": "b32", "s16x2": "b32",
}  # fmt: skip
_BIT_PATTERNS = ("u8", "s4", "u4", "b1")  # they read what elements of s8 do
# Descriptors without swizzle: 8 x 16-byte core matrices, 128 bytes apart along K and 256 along M or N.
_DESCRIPTOR = (128 >> 4) << 16 | (256 >> 4) << 32


@dataclass(frozen=True)
class Result:
    """One row of the output: the instruction, which of its destinations, and that one's type."""

    opcode: str
    operands: tuple[str, ...]
    part: int
    type: str


class Writer:
    """Writes the body of a probe."""

    declarations = ""
    """Of shared memory."""

    directives = ""
    """Of the kernel."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.classes: set[str] = set()
        self.shared = False
        self._body: list[str] = []

    def add(self, form: Form) -> None:
        """Adds one instruction: operands loaded, executed, results stored."""
        self.begin()
        destination, *sources = form.operands
        destination, _, chosen = destination.partition(".")
        parts = parts_of(destination)
        wgmma = form.opcode.startswith("wgmma")
        outputs = [self.declare(part) for part in parts]
        if wgmma:  # accumulators are read as well
            kind = "s32" if ".s32." in form.opcode else "f32" if ".f32." in form.opcode else "f16"
            for number, register in enumerate(outputs):
                self.load(register, parts[number], f"m_{kind}", number)
        operands = [self.source(form, place, operand) for place, operand in enumerate(sources)]
        joined = "{" + ", ".join(outputs) + "}" if "*" in destination else "|".join(outputs)
        joined += f".{chosen}" if chosen else ""
        instruction = f"{form.opcode} {', '.join([joined, *operands])};"
        if wgmma:
            instruction = (
                f"wgmma.fence.sync.aligned; {instruction} wgmma.commit_group.sync.aligned; "
                "wgmma.wait_group.sync.aligned 0;"
            )
        if form.opcode[:4] in ("addc", "subc", "madc"):
            self.lines.append(f"{self._carry_in()} {instruction}")
        else:
            self.lines.append(instruction)
        if ".cc." in form.opcode:
            outputs.append(self.declare("u32"))
            parts.append("u32")
            self.lines.append(f"addc.u32 {outputs[-1]}, 0, 0;")
        for number, (register, part) in enumerate(zip(outputs, parts, strict=True)):
            self.store(register, part)
            self.results.append(Result(form.opcode, form.operands, number, part))
        self.end()

    def begin(self) -> None:
        """The next instruction gets lines and registers of its own."""
        self.lines: list[str] = []
        self._names = 0

    def end(self) -> None:
        """Its lines are complete."""
        self._body.append("{ " + "\n".join(self.lines) + " }")

    def module(self, name: str, buffers: Sequence[str]) -> str:
        """The text of the module; parameters are the buffers, then the output."""
        parameters = ", ".join(f".param .u64 p{number}" for number in range(len(buffers) + 1))
        bases = "\n".join(
            f".reg .u64 {buffer}; ld.param.u64 {buffer}, [p{number}];"
            for number, buffer in enumerate([*buffers, "out"])
        )
        tile = f".shared .align 1024 .b8 tile[{TILE_BYTES}];" if self.shared else ""
        return (
            f".version 9.0\n.target {TARGET}\n.address_size 64\n{tile}{self.declarations}\n"
            f".visible .entry {name}({parameters}) .maxntid {LANES} .minnctapersm 1 {self.directives} {{\n"
            ".reg .u32 thread; .reg .u64 lane8, at, where;\n"
            f"mov.u32 thread, %tid.x; mul.wide.u32 lane8, thread, 8;\n{bases}\n"
            + "\n".join(self._body)
            + "\nret;\n}\n"
        )

    def declare(self, part: str) -> str:
        self._names += 1
        register = f"x{self._names}"
        self.lines.append(f".reg .{REGISTERS.get(part, part)} {register};")
        return register

    def source(self, form: Form, place: int, operand: str) -> str:
        if re.fullmatch(r"-?\d+", operand):
            return operand
        if operand.startswith("!"):
            return "!" + self.source(form, place, operand[1:])
        if found := SELECTED.fullmatch(operand):
            return f"{self.source(form, place, found[1])}.{found[2]}"
        product = _element(form, place)
        if product and operand == "b64":
            return self._descriptor(product, place)
        if found := VECTOR.fullmatch(operand):
            registers = [self.declare(found[2]) for _ in range(int(found[1]))]
            for number, register in enumerate(registers):
                self.load(register, found[2], f"m_{product}" if product else found[2], 16 * place + number)
            return "{" + ", ".join(registers) + "}"
        register = self.declare(operand)
        if product and operand == "pred":  # scale-d is one for the whole warp; which depends on the instruction alone
            self.lines.append(f"setp.ne.u32 {register}, {len(form.opcode) % 2}, 0;")
            return register
        self.load(register, operand, f"oob_{operand}" if ".oob" in form.opcode else operand, place)
        if form.opcode.startswith(("div.", "rem.")) and operand[0] in "us" and place == 1:
            self.lines.append(f"or.b{operand[1:]} {register}, {register}, 1;")  # division by zero is undefined
        return register

    def load(self, register: str, part: str, cls: str, slot: int) -> None:
        if part == "pred":
            scratch = self.declare("b32")
            self.load(scratch, "b32", "b32", slot)
            self.lines.append(f"and.b32 {scratch}, {scratch}, 1; setp.ne.u32 {register}, {scratch}, 0;")
            return
        cls = CLASSES.get(cls, cls)
        self.classes.add(cls)
        size = of_class(cls).dtype.itemsize
        slots = MATRIX_SLOTS if cls.startswith("m_") else SLOTS
        self.lines.append(
            f"mad.wide.u32 at, thread, {size}, in_{cls}; "
            f"ld.global.{_SIZES[str(8 * size)]} {register}, [at+{slot % slots * LANES * size}];"
        )

    def store(self, register: str, part: str) -> None:
        row = len(self.results)
        wide = self.declare("b64")
        held = REGISTERS.get(part, part)
        if part == "pred":
            self.lines.append(f"selp.b64 {wide}, 1, 0, {register};")
        elif held[1:] != "64":
            low = self.declare(f"b{held[1:]}")
            self.lines.append(f"mov.b{held[1:]} {low}, {register}; cvt.u64.u{held[1:]} {wide}, {low};")
        else:
            self.lines.append(f"mov.b64 {wide}, {register};")
        self.lines.append(f"add.u64 where, out, lane8; st.global.b64 [where+{row * LANES * 8}], {wide};")

    def _carry_in(self) -> str:
        a, b = self.declare("b32"), self.declare("b32")
        self.load(a, "b32", "b32", 2)
        self.load(b, "b32", "b32", 3)
        return f"add.cc.u32 {a}, {a}, {b};"

    def _descriptor(self, element: str, place: int) -> str:
        """Fills the tile in shared memory with elements of the type, and describes A or B in it."""
        self.shared = True
        cls = "s8" if element in _BIT_PATTERNS else element
        if place == 0 or not any("bar.sync" in line for line in self.lines):
            steps = [step * LANES * 16 for step in range(TILE_BYTES // LANES // 16)]
            copies = "\n".join(
                f"ld.global.v4.b32 {{q0, q1, q2, q3}}, [at+{step}]; st.shared.v4.b32 [to+{step}], {{q0, q1, q2, q3}};"
                for step in steps
            )
            self.lines.append(
                f".reg .b32 q0, q1, q2, q3, to; bar.sync 0; mad.wide.u32 at, thread, 16, in_tile_{cls}; "
                f"mov.u32 to, tile; mad.lo.u32 to, thread, 16, to;\n{copies}\nfence.proxy.async; bar.sync 0;"
            )
        register = self.declare("b64")
        self.lines.append(
            f"mov.u32 to, tile; add.u32 to, to, {0 if place == 0 else TILE_BYTES // 4}; cvt.u64.u32 {register}, to; "
            f"shr.u64 {register}, {register}, 4; or.b64 {register}, {register}, {_DESCRIPTOR};"
        )
        return register


def parts_of(destination: str) -> list[str]:
    if found := VECTOR.fullmatch(destination):
        return [found[2]] * int(found[1])
    return destination.split("|")


def _element(form: Form, place: int) -> str:
    """The element type of a matrix operand: accumulators, A, B and C in the order of the opcode."""
    if not form.opcode.startswith(("mma.sync", "wgmma.mma_async")):
        return ""
    types = re.findall(r"\.(f16|bf16|tf32|f32|f64|e4m3|e5m2|s8|u8|s4|u4|b1|s32)(?=\.|$)", form.opcode)
    element = types[min(place + 1, len(types) - 1)]
    return "s8" if element in _BIT_PATTERNS[1:] else element
