"""The machine's C interface: builds the library once, and wraps its handles.

Each run has a context of its own, and calls release the interpreter lock, so runs may proceed in parallel threads.
"""

from __future__ import annotations

import ctypes
import functools
import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ptxbench.core import DeviceError
from ptxbench.native import build_library

_MACHINE = Path(__file__).with_name("machine")
_FLAGS = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fno-strict-aliasing")
_MACHINE_FAILED = 2


class MachineOptions(ctypes.Structure):
    """``PtxOptions``."""

    _fields_ = [
        ("late_copies", ctypes.c_uint8),
        ("late_products", ctypes.c_uint8),
        ("reverse", ctypes.c_uint8),
        ("races", ctypes.c_uint8),
        ("perturbation", ctypes.c_float),
        ("seed", ctypes.c_uint64),
        ("step_limit", ctypes.c_uint64),
        ("time_limit_s", ctypes.c_double),
        ("sm_count", ctypes.c_uint32),
        ("tensor_memory_columns", ctypes.c_uint32),
    ]


class MachineLaunch(ctypes.Structure):
    """``PtxLaunch``."""

    _fields_ = [
        ("kernel", ctypes.c_uint32),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("cluster", ctypes.c_uint32 * 3),
        ("dynamic_shared", ctypes.c_uint32),
        ("registers", ctypes.c_uint32),
        ("resident_clusters", ctypes.c_uint32),
        ("cooperative", ctypes.c_uint32),
        ("explicit_cluster", ctypes.c_uint32),
    ]


@dataclass(frozen=True)
class MachineBuild:
    """How the library is built: further sources, and flags of every compile and of the link line."""

    name: str = "ptxmachine"
    sources: tuple[Path, ...] = ()
    flags: tuple[str, ...] = ()
    link: tuple[str, ...] = ()


_PLAIN: Final = MachineBuild()


@functools.cache
def machine_library(build: MachineBuild = _PLAIN) -> ctypes.CDLL:
    """The loaded library; compiles it on first use. Raises `ToolchainError` or `CacheError`."""
    path = build_library(
        build.name,
        [*sorted(_MACHINE.glob("*.cpp")), *build.sources],
        headers=sorted(_MACHINE.glob("*.hpp")),
        flags=(*_FLAGS, *build.flags),
        link=build.link,
    )
    library = ctypes.CDLL(str(path))
    pointer, text, u64 = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64
    for name, result, arguments in (
        ("ptx_load", pointer, [text, u64, ctypes.POINTER(pointer)]),
        ("ptx_unload", None, [pointer]),
        ("ptx_free_text", None, [pointer]),
        ("ptx_begin", pointer, [pointer, ctypes.POINTER(MachineOptions), ctypes.POINTER(ctypes.c_int)]),
        ("ptx_end", None, [pointer]),
        ("ptx_map", None, [pointer, u64, u64, pointer, ctypes.c_int, text]),
        ("ptx_place_global", None, [pointer, u64]),
        ("ptx_launch", ctypes.c_int, [pointer, ctypes.POINTER(MachineLaunch), pointer]),
        ("ptx_fault", text, [pointer]),
        ("ptx_report", text, [pointer]),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


class LoadedModule:
    """A decoded image in the machine, whose library is ``library``, or the plain one."""

    def __init__(self, image: bytes, library: ctypes.CDLL | None = None) -> None:
        self.library = library or machine_library()
        error = ctypes.c_void_p()
        self.handle: int | None = self.library.ptx_load(image, len(image), ctypes.byref(error))
        if self.handle is None:
            message = ctypes.string_at(error.value or 0).decode()
            self.library.ptx_free_text(error)
            raise DeviceError(f"The simulator's machine refused a lowered program: {message}.")

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:
            self.library.ptx_unload(self.handle)


class MachineRun:
    """A run's context: mapped memory, counts and hazards. It keeps the memory that is mapped into it alive.

    ``stop`` is for whoever waits for a launch: once it is set, the run is to be cancelled.
    """

    def __init__(self, module: LoadedModule, options: MachineOptions, stop: threading.Event | None = None) -> None:
        self.stop = stop or threading.Event()
        self._library = module.library
        self._module = module
        self._cancel = ctypes.c_int(0)
        self._mapped: list[ctypes.Array[ctypes.c_char]] = []
        self._busy = threading.Lock()
        self._handle: int | None = self._library.ptx_begin(
            module.handle, ctypes.byref(options), ctypes.byref(self._cancel)
        )

    def close(self) -> None:
        """Frees the context, after a launch in progress."""
        with self._busy:
            if self._handle is not None:
                self._library.ptx_end(self._handle)
                self._handle = None

    def cancel(self) -> None:
        """Lets a launch in progress end within milliseconds; may be called from any thread."""
        self._cancel.value = 1

    def map(self, address: int, data: memoryview, *, writable: bool, name: str) -> None:
        """Maps host bytes at a device address."""
        block = (ctypes.c_char * data.nbytes).from_buffer(data)
        self._mapped.append(block)
        self._library.ptx_map(
            self._handle, address, data.nbytes, ctypes.addressof(block), writable, name.encode()
        )

    def place_global(self, address: int) -> None:
        """Says where the module's next global variable lies."""
        self._library.ptx_place_global(self._handle, address)

    def launch(self, launch: MachineLaunch, parameters: bytearray) -> dict[str, Any] | None:
        """Runs a kernel to its end; the fault that ended it, or ``None``."""
        block = (ctypes.c_char * len(parameters)).from_buffer(parameters)
        with self._busy:
            status = self._library.ptx_launch(self._handle, ctypes.byref(launch), ctypes.addressof(block))
            text = self._library.ptx_fault(self._handle).decode() if status else ""
        if status == _MACHINE_FAILED:
            raise DeviceError(f"The simulator's machine failed: {text}.")
        return json.loads(text) if status else None

    def report(self) -> dict[str, Any]:
        """Counts, hazards and totals so far."""
        return json.loads(self._library.ptx_report(self._handle))
