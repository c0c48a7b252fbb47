"""The instruction forms of ``isa_forms.txt``: read, spelled out, and made into PTX."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

FILE = Path(__file__).with_name("isa_forms.txt")
_CHOICE = re.compile(r"\{([^{}]*)\}|<<([^<>]*)>>|<([^<>]*)>")
VECTOR = re.compile(r"(\d+)\*(\w+)")
SELECTED = re.compile(r"([us]32)\.([bh]\d+)")
_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
# Registers by the type of an operand where a register of that very type does not exist.
REGISTERS = {
    "f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32", "f32x2": "b64", "u16x2": "b32", "s16x2": "b32",
    "e4m3x2": "b16", "e5m2x2": "b16", "e2m3x2": "b16", "e3m2x2": "b16", "e2m1x2": "b8", "ue8m0x2": "b16",
    "e4m3x4": "b32", "e5m2x4": "b32", "e2m3x4": "b32", "e3m2x4": "b32", "e2m1x4": "b16",
    "u8": "u16", "s8": "s16", "b8": "b16",
}  # fmt: skip

_TEXTURES = ".global .texref texture; .global .surfref surface;"


@dataclass(frozen=True)
class Form:
    """One instruction with the types of its operands, and the pattern and section that it comes from."""

    section: str
    pattern: str
    opcode: str
    operands: tuple[str, ...]


@dataclass
class Section:
    """A heading of the file. ``computes``: its instructions work on registers alone."""

    title: str
    computes: bool
    patterns: list[str] = field(default_factory=lambda: list[str]())

    def forms(self) -> Iterator[Form]:
        """Every form of the section."""
        for pattern in self.patterns:
            yield from _spelled_out(self.title, pattern)


def read_sections() -> list[Section]:
    """The sections of the file, in its order."""
    found: list[Section] = []
    for line in FILE.read_text().splitlines():
        if line.startswith("["):
            title = line.rstrip("* ").strip("[]")
            found.append(Section(title, line.endswith("*")))
        elif line and not line.startswith("#"):
            found[-1].patterns.append(line)
    return found


def _spelled_out(section: str, pattern: str) -> Iterator[Form]:
    opcode, _, operands = (part.strip() for part in pattern.partition("|"))
    options = [
        [(kind, choice) for choice in match.group(kind).split(",")]
        for match in _CHOICE.finditer(opcode)
        for kind in (1, 2, 3)
        if match.group(kind) is not None
    ]
    text = _CHOICE.sub("\0", opcode)
    for chosen in product(*options):
        types = {"T" if kind == 3 else "U": choice for kind, choice in chosen if kind != 1}
        types["W"] = _WIDER.get(types.get("T", ""), "")
        spelled = text
        for _, choice in chosen:
            spelled = spelled.replace("\0", choice, 1)
        typed = operands
        for letter, type_name in types.items():
            typed = re.sub(rf"\b{letter}\b", type_name, typed)
        yield Form(section, pattern, spelled, tuple(typed.split()))


class Text:
    """The text of one instruction, with the registers it names."""

    def __init__(self, form: Form) -> None:
        self.registers: list[tuple[str, str]] = []
        self._shared = ".shared" in form.opcode  # without it the address is a generic one
        operands = ", ".join(self._operand(operand) for operand in form.operands)
        self.instruction = f"{form.opcode} {operands};".replace(" ,", "").replace(", ,", ",")

    @property
    def declarations(self) -> str:
        """``.reg`` statements, one a register."""
        return "".join(f".reg .{register} {name}; " for name, register in self.registers)

    def _register(self, type_name: str) -> str:
        name = f"x{len(self.registers)}"
        self.registers.append((name, REGISTERS.get(type_name, type_name)))
        return name

    def _address_type(self, base: str) -> str:
        if base == "t":
            return "b32"
        return "u32" if base == "s" and self._shared else "u64"

    def _operand(self, operand: str) -> str:
        if operand.startswith("="):
            return operand[1:].lstrip(",")
        if operand.startswith("["):
            base, _, coordinates = operand[1:-1].partition(",")
            address = self._register(self._address_type(base))
            return f"[{address}, {self._operand(coordinates)}]" if coordinates else f"[{address}]"
        if "|" in operand:
            return "|".join(self._operand(half) for half in operand.split("|"))
        if found := VECTOR.fullmatch(operand):
            return "{" + ", ".join(self._register(found[2]) for _ in range(int(found[1]))) + "}"
        if found := SELECTED.fullmatch(operand):
            return f"{self._register(found[1])}.{found[2]}"
        if operand.startswith("!"):
            return "!" + self._register(operand[1:])
        if re.fullmatch(r"-?[\d.]+", operand):
            return operand
        return self._register(operand)


def module(forms: list[Form], target: str) -> str:
    """A module with one entry for each form, each on a line of its own: form ``i`` on line ``i + 5``."""
    textures = any(form.section.startswith("Texture") for form in forms)
    lines = [".version 9.0", f".target {target}", ".address_size 64", _TEXTURES if textures else ""]
    for index, form in enumerate(forms):
        text = Text(form)
        extra = ".reg .s32 index; .reg .f32 x; .reg .f32 y; " if form.section.startswith("Texture") else ""
        lines.append(
            f".visible .entry k{index}() .maxntid 128 {{ {text.declarations}{extra}{text.instruction} L: ret; }}"
        )
    return "\n".join(lines) + "\n"
