"""PTX of our own CUDA sources by the toolchain's nvcc, and ptxas for PTX text. No sandbox: the sources are ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ptxbench.build import find_toolchain
from ptxbench.core import Target

HERE = Path(__file__).parent


def compile_ptx(source: Path, target: Target, folder: Path, *options: str) -> str:
    """The PTX of a CUDA file as a candidate's is made (line information, -O3)."""
    output = folder / f"{source.stem}_{target}.ptx"
    architecture = target.removeprefix("sm_")
    command = [_tool("nvcc"), "-ptx", "-std=c++17", "-O3", "-lineinfo", f"-arch=compute_{architecture}", *options]
    _run([*command, "-o", str(output), str(source)])
    return output.read_text()


def assemble(text: str, target: Target, folder: Path) -> None:
    """Lets ptxas check PTX text; fails with its message."""
    source = folder / "text.ptx"
    source.write_text(text)
    _run([_tool("ptxas"), f"-arch={target}", str(source), "-o", str(folder / "text.cubin")])


def _tool(name: str) -> str:
    return str(find_toolchain().cuda / "bin" / name)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
