"""The machine's library with sanitizers and coverage, in place of the plain one of this process."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ptxbench.native import host_compiler
from ptxbench.simulator import MachineBuild

SANITIZERS = ("-fsanitize=address,undefined", "-fsanitize-recover=undefined")
_FLAGS = (*SANITIZERS, "-fsanitize-coverage=trace-pc", "-O1", "-g", "-fno-omit-frame-pointer")
LARGEST_MB = 3072  # of host memory at once; the machine's own bound for what a launch holds is 2 GiB
_COVERAGE = Path(__file__).with_name("coverage.cpp")


SANITIZED = MachineBuild("ptxmachine_sanitized", (_COVERAGE,), _FLAGS, SANITIZERS)
"""For `machine_library`, in a process with `preload`."""


def preload(*, halt: bool) -> dict[str, str]:
    """Environment variables under which a process of an ordinary Python can load the library. ``halt`` lets undefined
    behaviour end the process, as a wrong access to memory does; else it is only reported, each place once.
    """
    names = ("libasan.so", "libubsan.so", "libstdc++.so")
    found = [
        subprocess.check_output([str(host_compiler()), f"-print-file-name={name}"], text=True).strip() for name in names
    ]
    return {
        "LD_PRELOAD": ":".join(found),
        # Python keeps memory until it ends.
        "ASAN_OPTIONS": f"detect_leaks=0:max_allocation_size_mb={LARGEST_MB}:hard_rss_limit_mb={2 * LARGEST_MB}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:halt_on_error={int(halt)}",
    }


def prepare() -> None:
    """Builds the library if it is not in the cache, in a process of its own; takes minutes."""
    code = "from fuzz_build import *; from ptxbench.simulator import machine_library; machine_library(SANITIZED)"
    environment = {**os.environ, **preload(halt=True)}
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, env=environment, check=True)


class Coverage:
    """The basic blocks of a sanitized machine that have run in this process."""

    def __init__(self, machine: Any) -> None:
        machine.fuzz_blocks.restype = ctypes.c_void_p
        machine.fuzz_block_count.restype = ctypes.c_size_t
        count = machine.fuzz_block_count()
        view = (ctypes.c_uint8 * count).from_address(machine.fuzz_blocks())
        self._blocks = np.frombuffer(view, np.uint8)
        self._known = 0

    def gained(self) -> int:
        """How many blocks have run for the first time since the last call."""
        now = int(np.count_nonzero(self._blocks))
        gained, self._known = now - self._known, now
        return gained

    @property
    def total(self) -> int:
        """How many blocks have run."""
        return self._known
