"""The program image: lowered kernels as plain data, and their binary form for the machine.

Layout rules are stated once, in ``machine/insn.hpp``. The binary form is little-endian, strings are u32 length + UTF-8.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum

IMAGE_MAGIC = 0x49585450  # "PTXI"
IMAGE_VERSION = 1


class OperandKind(IntEnum):
    """Mirrors ``ptx::Operand::Kind``."""

    NONE = 0
    ROW = 1
    ROW64 = 2
    ROW128 = 3
    PRED = 4
    MEM = 5
    MEM64 = 6
    PARAM = 7
    LABEL = 8


class ConstantKind(IntEnum):
    """How the machine fills a constant row when a warp starts; ``value`` is what each needs."""

    IMMEDIATE = 0  # value itself
    SPECIAL = 1  # a special register: index into SPECIAL_REGISTERS
    PARAM_ADDRESS = 2  # generic address of byte `value` of the parameter block
    SHARED = 3  # shared-window address (32-bit) of a static shared variable at byte `value`
    DYNAMIC_SHARED = 4  # shared-window address of the dynamic shared block
    LOCAL = 5  # generic address of byte `value` of the lane's local memory
    GLOBAL = 6  # generic address of global variable number `value` (plus `addend`)


# Special registers that stay constant for a warp. Clocks and timers are instructions of their own.
SPECIAL_REGISTERS: tuple[str, ...] = (
    "tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ntid.z", "ctaid.x", "ctaid.y", "ctaid.z",
    "nctaid.x", "nctaid.y", "nctaid.z", "laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid",
    "clusterid.x", "clusterid.y", "clusterid.z", "nclusterid.x", "nclusterid.y", "nclusterid.z",
    "cluster_ctaid.x", "cluster_ctaid.y", "cluster_ctaid.z", "cluster_nctaid.x", "cluster_nctaid.y", "cluster_nctaid.z",
    "cluster_ctarank", "cluster_nctarank", "is_explicit_cluster",
    "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge",
    "dynamic_smem_size", "total_smem_size", "aggr_smem_size", "envreg1", "envreg2",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slot:
    """A lowered operand."""

    kind: OperandKind
    slot: int = -1
    imm: int = 0


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant row: ``width`` is 1, 32 or 64 bits."""

    slot: int
    width: int
    kind: ConstantKind
    value: int
    addend: int = 0


@dataclass(frozen=True, slots=True)
class LoweredInstruction:
    """One machine instruction, made from exactly one PTX instruction.

    ``op`` names the handler; ``text`` is the full PTX opcode. ``frames`` is the source chain, innermost first.
    """

    op: str
    text: str
    operands: tuple[Slot, ...]
    attributes: tuple[int, ...] = ()
    guard: int = -1
    guard_negated: bool = False
    ptx_line: int = 0
    frames: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GlobalVariable:
    """A module-scope ``.global`` or ``.const`` variable. ``relocations`` are (byte offset, variable index, addend) of
    addresses inside the initialiser."""

    name: str
    align: int
    data: bytes
    constant: bool
    relocations: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class LoweredKernel:
    """One entry point. Sizes in bytes; ``rows`` is the number of register rows of a warp.

    ``static_shared`` counts from byte 0 of the kernel's static block; the machine adds the 1 KiB the system reserves.
    """

    name: str
    param_bytes: int
    static_shared: int
    dynamic_align: int
    local_bytes: int
    rows: int
    constants: tuple[Constant, ...]
    code: tuple[LoweredInstruction, ...]
    required_cluster: tuple[int, int, int] | None = None
    max_threads: int | None = None
    max_registers: int | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """A whole PTX module, lowered. ``target`` is the PTX ``.target`` (``sm_90a``)."""

    target: str
    globals: tuple[GlobalVariable, ...]
    kernels: tuple[LoweredKernel, ...]

    def encode(self) -> bytes:
        """The binary form that the machine reads."""
        out = _Writer()
        out.pack("IIII", IMAGE_MAGIC, IMAGE_VERSION, len(self.globals), len(self.kernels))
        out.text(self.target)
        for variable in self.globals:
            _write_global(out, variable)
        for kernel in self.kernels:
            _write_kernel(out, kernel)
        return bytes(out.data)


@dataclass(slots=True)
class _Writer:
    data: bytearray = field(default_factory=bytearray)

    def pack(self, layout: str, *values: int) -> None:
        self.data += struct.pack("<" + layout, *values)

    def text(self, value: str) -> None:
        encoded = value.encode()
        self.pack("I", len(encoded))
        self.data += encoded


def _write_global(out: _Writer, variable: GlobalVariable) -> None:
    out.text(variable.name)
    out.pack("IBQI", variable.align, variable.constant, len(variable.data), len(variable.relocations))
    out.data += variable.data
    for at, index, addend in variable.relocations:
        out.pack("QIq", at, index, addend)


def _write_kernel(out: _Writer, kernel: LoweredKernel) -> None:
    out.text(kernel.name)
    out.pack("IIIII", kernel.param_bytes, kernel.static_shared, kernel.dynamic_align, kernel.local_bytes, kernel.rows)
    out.pack("III", *(kernel.required_cluster or (0, 0, 0)))
    out.pack("II", kernel.max_threads or 0, kernel.max_registers or 0)
    out.pack("I", len(kernel.constants))
    for constant in kernel.constants:
        out.pack("IBBQq", constant.slot, constant.width, constant.kind, constant.value & (2**64 - 1), constant.addend)
    out.pack("I", len(kernel.code))
    for instruction in kernel.code:
        out.text(instruction.op)
        out.text(instruction.text)
        out.pack("iBI", instruction.guard, instruction.guard_negated, instruction.ptx_line)
        out.pack(f"H{len(instruction.attributes)}i", len(instruction.attributes), *instruction.attributes)
        out.pack("H", len(instruction.operands))
        for operand in instruction.operands:
            out.pack("Biq", operand.kind, operand.slot, operand.imm)
