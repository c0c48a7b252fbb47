"""Kernels of C++ libraries: a source of ours that instantiates them, compiled outside of the sandbox."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ptxbench.build import COMPILE_LIMITS, Toolchain
from ptxbench.build.cubin import kernel_facts
from ptxbench.build.sass import parse_sass
from ptxbench.core import Artifact, Target
from ptxbench.native import Cache

LIBRARIES = Path(__file__).with_name("libraries")
_OPTIONS = (
    "-shared", "--cudart=none", "-std=c++17", "-O3", "-lineinfo", "--no-compress", "--expt-relaxed-constexpr",
    "-Xcompiler", "-fPIC", "-Xlinker", "--build-id=none", "--keep", "-DNDEBUG", "-w",
)  # fmt: skip
_FILES = ("unit.so", "unit.ptx", "unit.cubin")


def compiled(
    name: str, target: Target, includes: Sequence[Path], macros: Mapping[str, str | int], toolchain: Toolchain,
    cache: Cache,
) -> Artifact:
    """The artifact of ``libraries/NAME``, kept in ``cache``; `CalledProcessError` where it does not compile."""
    source = LIBRARIES / name
    defined = [f"-D{macro}={value}" for macro, value in macros.items()]
    places = [option for include in includes for option in ("-I", str(include))]
    architecture = f"arch=compute_{target[3:]},code=[compute_{target[3:]},{target}]"
    command = [str(toolchain.cuda / "bin" / "nvcc"), *_OPTIONS, "-ccbin", str(toolchain.compiler)]
    command += ["-gencode", architecture, *places, *defined, "-o", "unit.so", "unit.cu"]
    key = hashlib.sha256(repr((source.read_text(), command, sorted(toolchain.versions.items()))).encode()).hexdigest()

    def make(folder: Path) -> None:
        (folder / "unit.cu").write_text(source.read_text())
        subprocess.run(command, cwd=folder, check=True)
        for kind in ("ptx", "cubin"):  # named by the architecture, too
            (made,) = folder.glob(f"unit*.{kind}")
            made.rename(folder / f"unit.{kind}")
        for path in folder.iterdir():
            if path.name not in _FILES:
                path.unlink()

    return _artifact(cache.folder("oracle", key, make), target, toolchain)


def _artifact(folder: Path, target: Target, toolchain: Toolchain) -> Artifact:
    library, text, cubin = ((folder / name).read_bytes() for name in _FILES)
    ptx = text.decode()
    listed = toolchain.sandbox.run(
        toolchain.nvdisasm("unit.cubin"), read_only=toolchain.mounts(), inputs={"unit.cubin": cubin},
        limits=COMPILE_LIMITS,
    )
    return Artifact(
        digest=hashlib.sha256(cubin + text).hexdigest(), source_digest="", target=target, ptx=ptx, cubin=cubin,
        host_library=library, kernels=kernel_facts(cubin, ptx), sass=parse_sass(listed.stdout.decode(), str),
        remarks=(), versions=toolchain.versions,
    )  # fmt: skip
