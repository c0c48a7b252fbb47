"""What a host library asks of others, read from its symbol table before anything of it runs."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from ptxbench.record.advice import rule_and_advice
from ptxbench.record.refusal import contract_error

# Part of the C and C++ libraries, and yet no business of a launcher.
_FORBIDDEN = re.compile(
    r"dl(m?open|v?sym|info|_iterate_phdr)|pthread_create|_ZNSt6thread\w+|thrd_create|v?fork|exec[lv]p?e?|fexecve|posix_spawnp?|system|popen|"
    r"socket|ptrace|clone|kill|signal|sigaction|setitimer|alarm|timer_create"
)
_LIBRARIES = re.compile(r"lib(c|m|stdc\+\+|gcc_s|pthread|dl|rt)\.so(\.\d+)*|ld-linux-x86-64\.so\.\d+")


def exported_symbols(program: Path) -> frozenset[str]:
    """Names that a program offers to the libraries it loads."""
    with program.open("rb") as file:
        symbols = _dynamic_symbols(ELFFile(file))
    return frozenset(name for name, symbol in symbols if symbol.defined)


def check_linkage(library: bytes, exports: frozenset[str], launcher: str) -> None:
    """Raises `Refusal` if the library has no launcher, or needs what neither the recorder nor the C++ library gives."""
    try:
        elf = ELFFile(io.BytesIO(library))
        symbols = _dynamic_symbols(elf)
        needed = _needed_libraries(elf)
    except ELFError as error:
        raise contract_error(f"The host library is no ELF file ({error}).", "Write a plain CUDA C++ source.") from error
    for name, symbol in symbols:
        # The linker notes a version for what a library of the system provides; all else must be the recorder's. A weak
        # symbol may stay without a definition, but what the system defines it gets.
        foreign = symbol.versioned or symbol.weak
        available = name in exports or (foreign and not _FORBIDDEN.fullmatch(name))
        if not (symbol.defined or available):
            rule, advice = rule_and_advice(name)
            raise contract_error(f"The source calls {name}, and {rule}.", advice)
    if not any(name == launcher and symbol.defined for name, symbol in symbols):
        raise contract_error(
            f"The source defines no function {launcher} with C linkage.",
            f'Write `extern "C" int {launcher}(...)` with the parameters of the task.',
        )
    for name in needed:
        if not _LIBRARIES.fullmatch(name):
            raise contract_error(f"The host library needs {name}.", "Write no code that needs another library.")


def device_variables(cubin: bytes) -> dict[str, int]:
    """The ``__device__`` and ``__constant__`` variables of a cubin and their sizes in bytes."""
    table = ELFFile(io.BytesIO(cubin)).get_section_by_name(".symtab")
    symbols = table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
    return {
        str(symbol.name): int(symbol.entry["st_size"])
        for symbol in symbols
        if symbol.entry["st_info"]["type"] == "STT_OBJECT"
    }


class _Symbol(NamedTuple):
    defined: bool
    weak: bool
    versioned: bool


def _dynamic_symbols(elf: ELFFile) -> list[tuple[str, _Symbol]]:
    table, versions = elf.get_section_by_name(".dynsym"), elf.get_section_by_name(".gnu.version")
    result: list[tuple[str, _Symbol]] = []
    for number, symbol in enumerate(table.iter_symbols() if isinstance(table, SymbolTableSection) else ()):
        # An index of 0 or 1 means no version; pyelftools spells those two as names.
        index = versions.get_symbol(number)["ndx"] if isinstance(versions, GNUVerSymSection) else "VER_NDX_GLOBAL"
        if symbol.name:
            defined = symbol.entry["st_shndx"] != "SHN_UNDEF"
            weak = symbol.entry["st_info"]["bind"] == "STB_WEAK"
            result.append((str(symbol.name), _Symbol(defined, weak, isinstance(index, int))))
    return result


def _needed_libraries(elf: ELFFile) -> list[str]:
    section = elf.get_section_by_name(".dynamic")
    if not isinstance(section, DynamicSection):
        return []
    # `needed` is set by pyelftools on the tags that have it.
    return [str(getattr(tag, "needed", "")) for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
