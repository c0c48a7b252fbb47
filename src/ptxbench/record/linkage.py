"""What a host library asks of others, read from its symbol table before anything of it runs."""

from __future__ import annotations

import io
import re
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from ptxbench.record.advice import rule_and_advice
from ptxbench.record.refusal import contract_error

# Part of the C and C++ libraries, and yet no business of a launcher.
_FORBIDDEN = re.compile(
    r"dl(m?open|v?sym|info|_iterate_phdr)|pthread_create|thrd_create|v?fork|exec[lv]p?e?|fexecve|posix_spawnp?|system|popen|"
    r"socket|ptrace|clone|kill|signal|sigaction|setitimer|alarm|timer_create"
)
_LIBRARIES = re.compile(r"lib(c|m|stdc\+\+|gcc_s|pthread|dl|rt)\.so(\.\d+)*|ld-linux-x86-64\.so\.\d+")


def exported_symbols(program: Path) -> frozenset[str]:
    """Names that a program offers to the libraries it loads."""
    with program.open("rb") as file:
        table = _dynamic_symbols(ELFFile(file))
        return frozenset(str(s.name) for s in table.iter_symbols() if s.entry["st_shndx"] != "SHN_UNDEF") if table else frozenset()


def check_linkage(library: bytes, exports: frozenset[str], launcher: str) -> None:
    """Raises `Refusal` if the library has no launcher, or needs what neither the recorder nor the C++ library gives."""
    try:
        elf = ELFFile(io.BytesIO(library))
        table = _dynamic_symbols(elf)
        versions = elf.get_section_by_name(".gnu.version")
    except ELFError as error:
        raise contract_error(f"The host library is no ELF file ({error}).", "Write a plain CUDA C++ source.") from error
    defined: set[str] = set()
    for number, symbol in enumerate(table.iter_symbols() if table else ()):
        name = str(symbol.name)
        if symbol.entry["st_shndx"] != "SHN_UNDEF":
            defined.add(name)
        elif name and symbol.entry["st_info"]["bind"] == "STB_GLOBAL":
            # The linker notes a version for what a library of the system provides; other names are the recorder's.
            version = versions.get_symbol(number)["ndx"] if versions else "VER_NDX_GLOBAL"
            from_system = isinstance(version, int) and version > 1
            _check_needed(name, name in exports or (from_system and not _FORBIDDEN.fullmatch(name)))
    if launcher not in defined:
        raise contract_error(
            f"The source defines no function {launcher} with C linkage.",
            f'Write `extern "C" int {launcher}(...)` with the parameters of the task.',
        )
    for needed in _needed_libraries(elf):
        if not _LIBRARIES.fullmatch(needed):
            raise contract_error(f"The host library needs {needed}.", "Write no code that needs another library.")


def _check_needed(name: str, available: bool) -> None:
    if not available:
        rule, advice = rule_and_advice(name)
        raise contract_error(f"The source calls {name}, and {rule}.", advice)


def _dynamic_symbols(elf: ELFFile) -> SymbolTableSection | None:
    section = elf.get_section_by_name(".dynsym")
    return section if isinstance(section, SymbolTableSection) else None


def _needed_libraries(elf: ELFFile) -> list[str]:
    section = elf.get_section_by_name(".dynamic")
    if not isinstance(section, DynamicSection):
        return []
    return [str(tag.needed) for tag in section.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]
