"""Runs nvcc of the toolchain on a file, without the sandbox: these sources are our own."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from ptxbench.build import find_toolchain
from ptxbench.core import Target
from ptxbench.solutions import include_dir


def nvcc(source: Path, target: Target, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Compiles ``source`` to ``output`` (``.ptx`` or ``.cubin`` by its name)."""
    number = target.removeprefix("sm_")
    kind, code = ("-ptx", f"compute_{number}") if output.suffix == ".ptx" else ("-cubin", f"sm_{number}")
    command = [
        str(find_toolchain().cuda / "bin" / "nvcc"), kind, "-std=c++17", "-O3", "-I", str(include_dir()),
        "-gencode", f"arch=compute_{number},code={code}", *options, "-o", str(output), str(source),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def complaints(log: str) -> list[str]:
    """What ptxas and the front end found fault with: warnings, ignored setmaxnreg, serialised wgmma, spills."""
    spills = [line for line in re.findall(r"\d+ bytes stack frame.*", log) if set(re.findall(r"\d+", line)) != {"0"}]
    return re.findall(r".*\b(?:warning|C75\d\d|error)\b.*", log) + spills
