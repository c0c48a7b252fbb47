"""Makes equal sources compile to equal bytes: takes the modification times of files out of a cubin's line table."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

# DWARF 2 line number program header: unit length, version, header length, five single bytes, then the
# standard opcode lengths (opcode base - 1 bytes), include directories and file entries.
_START = struct.Struct("<IHI")
_FIXED = 5
_VERSION = 2


def without_file_times(cubin: bytes) -> bytes:
    """``cubin`` with every modification time in ``.debug_line`` set to 0, at unchanged length.

    ptxas writes those of the source and of every header there, so that two runs never made the same bytes.
    `ValueError` if the table is not understood.
    """
    try:
        section = ELFFile(io.BytesIO(cubin)).get_section_by_name(".debug_line")
    except ELFError as error:
        raise ValueError(f"not a cubin ({error})") from error
    if section is None:
        return cubin
    start, size = int(section["sh_offset"]), int(section["sh_size"])
    table = bytearray(cubin[start : start + size])
    try:
        for first, end in _file_times(table):
            # A LEB128 number of the same length: continuation bits stay, digits go.
            for position in range(first, end):
                table[position] &= 0x80
    except (IndexError, struct.error) as error:
        raise ValueError("the line table of the cubin is cut short") from error
    return cubin[:start] + bytes(table) + cubin[start + size :]


def _file_times(table: bytearray) -> Iterator[tuple[int, int]]:
    """Where the modification time of every file entry begins and ends."""
    unit = 0
    while unit < len(table):
        length, version, _ = _START.unpack_from(table, unit)
        if version != _VERSION:
            raise ValueError(f"the line table of the cubin has version {version}, expected {_VERSION}")
        position = unit + _START.size + _FIXED
        position += table[position - 1] - 1
        while table[position]:
            position = table.index(0, position) + 1
        position += 1
        while table[position]:
            # An entry: name, folder number, modification time, size.
            time = _leb128_end(table, table.index(0, position) + 1)
            size = _leb128_end(table, time)
            yield time, size
            position = _leb128_end(table, size)
        unit += length + 4


def _leb128_end(table: bytearray, position: int) -> int:
    while table[position] & 0x80:
        position += 1
    return position + 1
