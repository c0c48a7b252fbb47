"""A module's device variables: found in the cubin, kept as they were loaded, put back before every replay."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from ptxbench.core import DeviceError
from ptxbench.devices.cuda.driver import Driver, Handle

_SECTIONS = (".nv.global", ".nv.constant3")
"""Where nvcc puts ``__device__`` (with and without an initial value) and ``__constant__`` variables."""


def variable_names(cubin: bytes) -> tuple[str, ...]:
    """Mangled names of all device variables, local ones included; string literals (``$str``) are none.

    `DeviceError` if it is no cubin.
    """
    try:
        elf = ELFFile(io.BytesIO(cubin))
        table: Any = elf.get_section_by_name(".symtab")
        symbols: list[Any] = list(table.iter_symbols()) if table is not None else []
    except ELFError as error:
        raise DeviceError(f"The artifact's machine code is no cubin ({error}); build it again.") from error
    sections = {index for index, section in enumerate(elf.iter_sections()) if section.name.startswith(_SECTIONS)}
    return tuple(
        str(symbol.name)
        for symbol in symbols
        if symbol["st_info"]["type"] == "STT_OBJECT"
        and symbol["st_shndx"] in sections
        and symbol["st_size"]
        and not symbol.name.startswith("$")
    )


class _Variable(NamedTuple):
    address: int
    copy: int
    bytes: int


class Variables:
    """The variables of a loaded module, with copies of their initial content in device memory."""

    def __init__(self, driver: Driver, module: Handle, cubin: bytes) -> None:
        """Makes the copies; nothing of the module may have run yet."""
        self._driver = driver
        self._variables: list[_Variable] = []
        for name in variable_names(cubin):
            address, count = driver.symbol(module, name)
            self._variables.append(_Variable(address, driver.allocate(count), count))
        for variable in self._variables:
            driver.call("cuMemcpyDtoD", variable.copy, variable.address, variable.bytes)

    def restore(self, stream: Handle) -> None:
        """Enqueues putting every initial value back."""
        for variable in self._variables:
            self._driver.call("cuMemcpyDtoDAsync", variable.address, variable.copy, variable.bytes, stream)

    def close(self) -> None:
        """Gives the copies back."""
        for variable in self._variables:
            self._driver.free(variable.copy)
        self._variables.clear()
