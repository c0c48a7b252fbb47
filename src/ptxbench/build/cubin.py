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

from ptxbench.build.parameters import entry_parameters
from ptxbench.core import KernelFacts

_ENTRY = 0x10
"""`STO_CUDA_ENTRY` in a symbol's ``st_other``: the function is a kernel. pyelftools drops the bit; it is read raw."""

_SYMBOL_BYTES, _SYMBOL_OTHER = 24, 5
"""`Elf64_Sym`: its size and the offset of ``st_other``."""

_RESERVED_SHARED = 1024
"""The system's share of a block's shared memory (compute capability 9 and 10); ``.nv.shared`` sections include it."""

_MAX_THREADS, _REQUIRED_THREADS = 0x05, 0x10
_MIN_STACK, _REGISTERS = 0x12, 0x2F
_PARAMETER, _PARAMETER_V2 = 0x17, 0x45
_CLUSTER = 0x3D
_SIZED = 0x04


class _Attribute(NamedTuple):
    code: int
    body: bytes


def kernel_facts(cubin: bytes, ptx: str) -> tuple[KernelFacts, ...]:
    """The facts of every kernel in ``cubin``, in the order of its symbol table.

    Parameter sizes are the cubin's; offsets are those of PTX's parameter space, which start at 0 for every kernel (the
    cubin's are shifted to suit its constant bank). `ValueError` if it is no cubin, or not of this PTX.
    """
    try:
        elf = ELFFile(io.BytesIO(cubin))
        data = {section.name: section for section in elf.iter_sections()}
        names, raw = _symbol_names(data[".symtab"]), data[".symtab"].data()
        common = list(_attributes(data[".nv.info"].data())) if ".nv.info" in data else []
    except (ELFError, KeyError) as error:
        raise ValueError(f"not a cubin ({error})") from error
    registers, stacks = _by_symbol(common, _REGISTERS), _by_symbol(common, _MIN_STACK)
    declared = entry_parameters(ptx)
    result: list[KernelFacts] = []
    for index, name in enumerate(names):
        if not raw[index * _SYMBOL_BYTES + _SYMBOL_OTHER] & _ENTRY:
            continue
        own, shared = data.get(f".nv.info.{name}"), data.get(f".nv.shared.{name}")
        attributes = list(_attributes(own.data())) if own else []
        slots = declared.get(name)
        if slots is None or [slot.size for slot in slots] != _parameter_sizes(attributes):
            raise ValueError(f"the parameters of {name} differ between PTX and cubin")
        threads = _triple(attributes, _REQUIRED_THREADS) or _triple(attributes, _MAX_THREADS)
        result.append(
            KernelFacts(
                name=name,
                parameters=slots,
                registers=registers.get(index, 0),
                static_shared=max(shared["sh_size"] - _RESERVED_SHARED, 0) if shared else 0,
                local=stacks.get(index, 0),
                max_threads=math.prod(threads) if threads else None,
                required_cluster=_triple(attributes, _CLUSTER),
            )
        )
    return tuple(result)


def exported_functions(library: bytes) -> frozenset[str]:
    """Names of the functions that a shared library defines for others; `ValueError` if it is no shared library."""
    try:
        table = ELFFile(io.BytesIO(library)).get_section_by_name(".dynsym")
        return _defined_functions(table) if table else frozenset()
    except ELFError as error:
        raise ValueError(f"not a shared library ({error})") from error


def _parameter_sizes(attributes: list[_Attribute]) -> list[int]:
    """Sizes in bytes by ordinal: the upper 14 bits of a word in the first form, its lower 16 in the second."""
    sizes: dict[int, int] = {}
    for code, body in attributes:
        if code in (_PARAMETER, _PARAMETER_V2):
            ordinal, _, word = struct.unpack_from("<HHI", body, 4)
            sizes[ordinal] = word >> 18 if code == _PARAMETER else word & 0xFFFF
    return [sizes[ordinal] for ordinal in sorted(sizes)]


def _triple(attributes: list[_Attribute], wanted: int) -> tuple[int, int, int] | None:
    for code, body in attributes:
        if code == wanted:
            x, y, z = struct.unpack("<3I", body)
            return x, y, z
    return None


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


def _symbol_names(table: Any) -> list[str]:
    return [symbol.name for symbol in table.iter_symbols()]


def _defined_functions(table: Any) -> frozenset[str]:
    return frozenset(
        symbol.name
        for symbol in table.iter_symbols()
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF"
    )
