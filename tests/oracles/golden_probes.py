"""Probe kernels for golden vectors: every sm_90a instruction that computes on registers, and the matrix products.

A probe runs the instructions of one section one after another; each thread reads operands from arrays by operand type
and writes every result, as 64 bits, to a row of its own: ``out[row][thread]``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import golden_copies
import numpy as np
from golden_inputs import LANES, MATRIX_SLOTS, SLOTS, Array, of_class
from isa_forms import REGISTERS, SELECTED, Form, Section, read_sections
from isa_probe import accepted, refusal
from oracles_run import Kernel, Parameter, assembled

from ptxbench.core import Target, TensorMap

TARGET = Target.SM_90A
_VECTOR = re.compile(r"(\d+)\*(\w+)")
_SIZES = {"16": "u16", "32": "b32", "64": "b64"}
# Matrix products by the beginning of the opcode; those of doubles apart, for they have inputs of their own.
_PRODUCTS = {
    "mma_sync": r"mma\.sync\.(?!.*\.f64)", "mma_sync_f64": r"mma\.sync\..*\.f64", "wgmma": r"wgmma\.mma_async\.",
}  # fmt: skip
# Integers of one width share their patterns.
_CLASSES = {
    "u8": "b16", "s8": "b16", "u16": "b16", "s16": "b16", "u32": "b32", "s32": "b32", "u64": "b64", "s64": "b64",
    "u16x2": "b32", "s16x2": "b32",
}  # fmt: skip
_BIT_PATTERNS = ("u8", "s4", "u4", "b1")  # they read what elements of s8 do
_TILE_BYTES = 16384
_SHARED_CLASSES = ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8")
# Descriptors without swizzle: 8 x 16-byte core matrices, 128 bytes apart along K and 256 along M or N.
_DESCRIPTOR = (128 >> 4) << 16 | (256 >> 4) << 32


@dataclass(frozen=True)
class Result:
    """One row of the output: the instruction, which of its destinations, and that one's type."""

    opcode: str
    operands: tuple[str, ...]
    part: int
    type: str


@dataclass(frozen=True)
class Probe:
    """A kernel with its inputs by buffer name, and what each row of its output is."""

    name: str
    kernel: Kernel
    inputs: dict[str, Array]
    results: tuple[Result, ...]
    maps: tuple[TensorMap, ...] = ()

    def output(self) -> Array:
        """The zeroed output array."""
        return np.zeros((len(self.results), LANES), np.uint64)

    @property
    def parameters(self) -> list[Parameter]:
        """Buffer names and tensor maps in the order of the kernel's parameters."""
        return [*self.inputs, *self.maps, "out"]


def _sections() -> dict[str, tuple[Section, str]]:
    """The section of each probe, and how the opcodes begin that it takes from there."""
    found: dict[str, tuple[Section, str]] = {}
    for section in read_sections():
        if section.computes:
            found["_".join(re.findall(r"[a-z]+", section.title.lower()))] = (section, "")
        for name, base in _PRODUCTS.items():
            if any(re.match(base, pattern) for pattern in section.patterns):
                found[name] = (section, base)
    return found


def probe_names() -> list[str]:
    """The names of all probes."""
    return [*_sections(), *golden_copies.GROUPS]


def probe_of(name: str) -> Probe:
    """The probe of that name: every form of its section that sm_90a has and the simulator executes."""
    if name in golden_copies.GROUPS:
        return _copies(name, golden_copies.GROUPS[name])
    section, base = _sections()[name]
    forms = [form for form in section.forms() if re.match(base, form.opcode)]
    numbers = accepted(forms, TARGET)
    return _probe(name, [form for number, form in enumerate(forms) if number in numbers and not refusal(form, TARGET)])


def _probe(name: str, forms: Sequence[Form]) -> Probe:
    writer = _Writer()
    for form in forms:
        writer.add(form)
    names = sorted(writer.classes)
    inputs = {f"in_{cls}": of_class(cls) for cls in names}
    if writer.shared:
        inputs |= {f"in_tile_{cls}": _tile(cls) for cls in _SHARED_CLASSES}
    text = writer.module(name, list(inputs))
    kernel = Kernel(name=name, target=TARGET, ptx=text, cubin=assembled(text, TARGET), threads=LANES, shared=0)
    return Probe(name, kernel, inputs, tuple(writer.results))


def _copies(name: str, copies: Sequence[golden_copies.Copy]) -> Probe:
    text = golden_copies.module(name, TARGET, copies)
    kernel = Kernel(name=name, target=TARGET, ptx=text, cubin=assembled(text, TARGET), threads=LANES, shared=0)
    results: list[Result] = []
    maps: list[TensorMap] = []
    for copy in copies:
        maps.append(copy.map(len(results)))
        results += [Result(copy.opcode, copy.operands, part, "b64") for part in range(copy.rows)]
    results.append(Result("mbarrier.test_wait.parity.shared.b64", (), 0, "b64"))
    return Probe(name, kernel, golden_copies.tensors(copies), tuple(results), tuple(maps))


def _tile(cls: str) -> Array:
    return of_class(f"m_{cls}").reshape(-1)[: _TILE_BYTES // 4].copy()


class _Writer:
    """Writes the body of a probe."""

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.classes: set[str] = set()
        self.shared = False
        self._body: list[str] = []

    def add(self, form: Form) -> None:
        """Adds one instruction: operands loaded, executed, results stored."""
        self._lines: list[str] = []
        self._names = 0
        destination, *sources = form.operands
        destination, _, chosen = destination.partition(".")
        parts = _parts(destination)
        wgmma = form.opcode.startswith("wgmma")
        outputs = [self._declare(part) for part in parts]
        if wgmma:  # accumulators are read as well
            kind = "s32" if ".s32." in form.opcode else "f32" if ".f32." in form.opcode else "f16"
            for number, register in enumerate(outputs):
                self._load(register, parts[number], f"m_{kind}", number)
        operands = [self._source(form, place, operand) for place, operand in enumerate(sources)]
        joined = "{" + ", ".join(outputs) + "}" if "*" in destination else "|".join(outputs)
        joined += f".{chosen}" if chosen else ""
        instruction = f"{form.opcode} {', '.join([joined, *operands])};"
        if wgmma:
            instruction = (
                f"wgmma.fence.sync.aligned; {instruction} wgmma.commit_group.sync.aligned; "
                "wgmma.wait_group.sync.aligned 0;"
            )
        if form.opcode[:4] in ("addc", "subc", "madc"):
            self._lines.append(f"{self._carry_in()} {instruction}")
        else:
            self._lines.append(instruction)
        if ".cc." in form.opcode:
            outputs.append(self._declare("u32"))
            parts.append("u32")
            self._lines.append(f"addc.u32 {outputs[-1]}, 0, 0;")
        for number, (register, part) in enumerate(zip(outputs, parts, strict=True)):
            self._store(register, part)
            self.results.append(Result(form.opcode, form.operands, number, part))
        self._body.append("{ " + "\n".join(self._lines) + " }")

    def module(self, name: str, buffers: Sequence[str]) -> str:
        """The text of the module; parameters are the buffers, then the output."""
        parameters = ", ".join(f".param .u64 p{number}" for number in range(len(buffers) + 1))
        bases = "\n".join(
            f".reg .u64 {buffer}; ld.param.u64 {buffer}, [p{number}];"
            for number, buffer in enumerate([*buffers, "out"])
        )
        shared = f".shared .align 1024 .b8 tile[{_TILE_BYTES}];" if self.shared else ""
        return (
            f".version 9.0\n.target {TARGET}\n.address_size 64\n{shared}\n"
            f".visible .entry {name}({parameters}) .maxntid {LANES} .minnctapersm 1 {{\n"
            ".reg .u32 thread; .reg .u64 lane8, at, where;\n"
            f"mov.u32 thread, %tid.x; mul.wide.u32 lane8, thread, 8;\n{bases}\n"
            + "\n".join(self._body)
            + "\nret;\n}\n"
        )

    def _declare(self, part: str) -> str:
        self._names += 1
        register = f"x{self._names}"
        self._lines.append(f".reg .{REGISTERS.get(part, part)} {register};")
        return register

    def _source(self, form: Form, place: int, operand: str) -> str:
        if re.fullmatch(r"-?\d+", operand):
            return operand
        if operand.startswith("!"):
            return "!" + self._source(form, place, operand[1:])
        if found := SELECTED.fullmatch(operand):
            return f"{self._source(form, place, found[1])}.{found[2]}"
        product = _element(form, place)
        if product and operand == "b64":
            return self._descriptor(product, place)
        if found := _VECTOR.fullmatch(operand):
            registers = [self._declare(found[2]) for _ in range(int(found[1]))]
            for number, register in enumerate(registers):
                self._load(register, found[2], f"m_{product}" if product else found[2], 16 * place + number)
            return "{" + ", ".join(registers) + "}"
        register = self._declare(operand)
        if product and operand == "pred":  # scale-d is one for the whole warp; which depends on the instruction alone
            self._lines.append(f"setp.ne.u32 {register}, {len(form.opcode) % 2}, 0;")
            return register
        self._load(register, operand, f"oob_{operand}" if ".oob" in form.opcode else operand, place)
        if form.opcode.startswith(("div.", "rem.")) and operand[0] in "us" and place == 1:
            self._lines.append(f"or.b{operand[1:]} {register}, {register}, 1;")  # division by zero is undefined
        return register

    def _load(self, register: str, part: str, cls: str, slot: int) -> None:
        if part == "pred":
            scratch = self._declare("b32")
            self._load(scratch, "b32", "b32", slot)
            self._lines.append(f"and.b32 {scratch}, {scratch}, 1; setp.ne.u32 {register}, {scratch}, 0;")
            return
        cls = _CLASSES.get(cls, cls)
        self.classes.add(cls)
        size = of_class(cls).dtype.itemsize
        slots = MATRIX_SLOTS if cls.startswith("m_") else SLOTS
        self._lines.append(
            f"mad.wide.u32 at, thread, {size}, in_{cls}; "
            f"ld.global.{_SIZES[str(8 * size)]} {register}, [at+{slot % slots * LANES * size}];"
        )

    def _store(self, register: str, part: str) -> None:
        row = len(self.results)
        wide = self._declare("b64")
        held = REGISTERS.get(part, part)
        if part == "pred":
            self._lines.append(f"selp.b64 {wide}, 1, 0, {register};")
        elif held[1:] != "64":
            low = self._declare(f"b{held[1:]}")
            self._lines.append(f"mov.b{held[1:]} {low}, {register}; cvt.u64.u{held[1:]} {wide}, {low};")
        else:
            self._lines.append(f"mov.b64 {wide}, {register};")
        self._lines.append(f"add.u64 where, out, lane8; st.global.b64 [where+{row * LANES * 8}], {wide};")

    def _carry_in(self) -> str:
        a, b = self._declare("b32"), self._declare("b32")
        self._load(a, "b32", "b32", 2)
        self._load(b, "b32", "b32", 3)
        return f"add.cc.u32 {a}, {a}, {b};"

    def _descriptor(self, element: str, place: int) -> str:
        """Fills the tile in shared memory with elements of the type, and describes A or B in it."""
        self.shared = True
        cls = "s8" if element in _BIT_PATTERNS else element
        if place == 0 or not any("bar.sync" in line for line in self._lines):
            steps = [step * LANES * 16 for step in range(_TILE_BYTES // LANES // 16)]
            copies = "\n".join(
                f"ld.global.v4.b32 {{q0, q1, q2, q3}}, [at+{step}]; st.shared.v4.b32 [to+{step}], {{q0, q1, q2, q3}};"
                for step in steps
            )
            self._lines.append(
                f".reg .b32 q0, q1, q2, q3, to; bar.sync 0; mad.wide.u32 at, thread, 16, in_tile_{cls}; "
                f"mov.u32 to, tile; mad.lo.u32 to, thread, 16, to;\n{copies}\nfence.proxy.async; bar.sync 0;"
            )
        register = self._declare("b64")
        self._lines.append(
            f"mov.u32 to, tile; add.u32 to, to, {0 if place == 0 else _TILE_BYTES // 4}; cvt.u64.u32 {register}, to; "
            f"shr.u64 {register}, {register}, 4; or.b64 {register}, {register}, {_DESCRIPTOR};"
        )
        return register


def _parts(destination: str) -> list[str]:
    if found := _VECTOR.fullmatch(destination):
        return [found[2]] * int(found[1])
    return destination.split("|")


def _element(form: Form, place: int) -> str:
    """The element type of a matrix operand: accumulators, A, B and C in the order of the opcode."""
    if not form.opcode.startswith(("mma.sync", "wgmma.mma_async")):
        return ""
    types = re.findall(r"\.(f16|bf16|tf32|f32|f64|e4m3|e5m2|s8|u8|s4|u4|b1|s32)(?=\.|$)", form.opcode)
    element = types[min(place + 1, len(types) - 1)]
    return "s8" if element in _BIT_PATTERNS[1:] else element
