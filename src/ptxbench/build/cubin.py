"""Kernel facts out of a cubin: an ELF file whose ``.nv.info`` sections hold attributes of kernels.

The attribute numbers and layouts were read off ``cuobjdump -elf`` and checked against ``cuobjdump -res-usage`` and
``ptxas -v`` (CUDA 13.0, sm_90a and sm_100a).
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from ptxbench.core import KernelFacts, ParameterSlot

_ENTRY = 0x10
"""`STO_CUDA_ENTRY` in a symbol's ``st_other``: the function is a kernel."""

_RESERVED_SHARED = 1024
"""The system's share of a block's shared memory on compute capability 9 and 10; ``.nv.shared`` sections begin with it."""

_MAX_THREADS, _REQUIRED_THREADS = 0x05, 0x10
_MIN_STACK, _REGISTERS = 0x12, 0x2F
_PARAMETER, _PARAMETER_V2 = 0x17, 0x45
_CLUSTER = 0x3D
_SIZED = 0x04


class _Attribute(NamedTuple):
    code: int
    body: bytes


def kernel_facts(cubin: bytes) -> tuple[KernelFacts, ...]:
    """The facts of every kernel in ``cubin``, in the order of its symbol table; `ValueError` if it is no cubin."""
    try:
        elf = ELFFile(io.BytesIO(cubin))
        sections = {section.name: section for section in elf.iter_sections()}
        symbols = list(enumerate(sections[".symtab"].iter_symbols()))
        common = list(_attributes(sections[".nv.info"].data()))
    except (ELFError, KeyError) as error:
        raise ValueError(f"not a cubin: {error}") from error
    registers = _by_symbol(common, _REGISTERS)
    stacks = _by_symbol(common, _MIN_STACK)
    result: list[KernelFacts] = []
    for index, symbol in symbols:
        if symbol["st_info"]["type"] != "STT_FUNC" or not _is_entry(symbol):
            continue
        name: str = symbol.name
        own = sections.get(f".nv.info.{name}")
        shared = sections.get(f".nv.shared.{name}")
        result.append(
            _facts(
                name, list(_attributes(own.data())) if own else [], registers.get(index, 0), stacks.get(index, 0),
                max(shared["sh_size"] - _RESERVED_SHARED, 0) if shared else 0,
            )
        )
    return tuple(result)


def exported_functions(library: bytes) -> frozenset[str]:
    """Names of the functions that a shared library defines for others; `ValueError` if it is no shared library."""
    try:
        table = ELFFile(io.BytesIO(library)).get_section_by_name(".dynsym")
        if table is None:
            return frozenset()
        return frozenset(
            symbol.name for symbol in table.iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF"
        )
    except ELFError as error:
        raise ValueError(f"not a shared library: {error}") from error


def _facts(name: str, attributes: list[_Attribute], registers: int, stack: int, shared: int) -> KernelFacts:
    slots: dict[int, ParameterSlot] = {}
    max_threads: int | None = None
    cluster: tuple[int, int, int] | None = None
    for code, body in attributes:
        if code in (_PARAMETER, _PARAMETER_V2):
            ordinal, offset, word = struct.unpack_from("<HHI", body, 4)
            slots[ordinal] = ParameterSlot(offset=offset, size=word >> 18 if code == _PARAMETER else word & 0xFFFF)
        elif code in (_MAX_THREADS, _REQUIRED_THREADS):
            max_threads = math.prod(struct.unpack("<3I", body))
        elif code == _CLUSTER:
            x, y, z = struct.unpack("<3I", body)
            cluster = (x, y, z)
    return KernelFacts(
        name=name, parameters=tuple(slots[ordinal] for ordinal in sorted(slots)), registers=registers,
        static_shared=shared, local=stack, max_threads=max_threads, required_cluster=cluster,
    )


def _attributes(data: bytes) -> Iterator[_Attribute]:
    """Each attribute: format, code, then either a 16-bit size and that many bytes, or 16 bits of value."""
    position = 0
    while position + 4 <= len(data):
        form, code, word = struct.unpack_from("<BBH", data, position)
        position += 4
        if form == _SIZED:
            yield _Attribute(code, data[position : position + word])
            position += word
        else:
            yield _Attribute(code, word.to_bytes(2, "little"))


def _by_symbol(attributes: list[_Attribute], code: int) -> dict[int, int]:
    """Attributes of the common section that say (symbol index, value)."""
    return dict(struct.unpack("<II", body) for found, body in attributes if found == code)


def _is_entry(symbol: Any) -> bool:
    # pyelftools splits st_other into fields; the CUDA bits are in `local`, the upper three of eight, and beyond them.
    return bool(symbol.entry["st_other"])
