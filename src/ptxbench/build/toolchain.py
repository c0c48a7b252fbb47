"""The CUDA tools of the PyPI packages, the host compiler, and the one recipe that compiles a candidate.

A CUDA installation of the system is used only where the variable ``PTXBENCH_CUDA`` names it; otherwise the tools are
those that lie beside this package's dependencies.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ptxbench.build.confine import Mount
from ptxbench.build.sandbox import Limits, Sandbox, find_sandbox
from ptxbench.core import Target, ToolchainError
from ptxbench.native import compiler_version, host_compiler, scrubbed_environment

_REQUIREMENTS = ("cuda-toolkit[nvcc,crt,nvvm,cudart,cccl]==13.0.2", "nvidia-cuda-nvdisasm==13.2.86")

# (file below nvidia/cu13, distribution that brings it)
_PARTS = (
    ("bin/nvcc", "nvidia-cuda-nvcc"),
    ("bin/ptxas", "nvidia-cuda-nvcc"),
    ("nvvm/bin/cicc", "nvidia-nvvm"),
    ("include/crt/host_config.h", "nvidia-cuda-crt"),
    ("include/cuda_runtime.h", "nvidia-cuda-runtime"),
    ("include/cccl/cuda/std/cstdint", "nvidia-cuda-cccl"),
    ("bin/nvdisasm", "nvidia-cuda-nvdisasm"),
)

# PTX for the simulator and machine code for the GPU, of the same compile.
_GENCODE = {
    Target.SM_90A: "arch=compute_90a,code=[compute_90a,sm_90a]",
    Target.SM_100A: "arch=compute_100a,code=[compute_100a,sm_100a]",
}
_OPTIONS = (
    "-shared", "--cudart=none", "-std=c++17", "-O3", "-lineinfo", "--no-compress", "-Xcompiler", "-fPIC",
    "-Xlinker", "--build-id=none", "-Xptxas", "-v", "--keep",
)

UNIT = "unit"
"""Base name of the translation unit; ``--keep`` leaves its PTX and cubin beside the library."""

COMPILE_LIMITS = Limits(seconds=60.0, memory=4 << 30, disk=1 << 30, output=64 << 20, processes=64)

_SMALLEST = b"__global__ void probe(int* out) { out[threadIdx.x] = 1; }\n"


@dataclass(frozen=True)
class Toolchain:
    """Where the tools are and what they are. ``versions`` goes into every artifact and every cache key."""

    cuda: Path
    compiler: Path
    versions: dict[str, str]
    sandbox: Sandbox

    @property
    def mount(self) -> Mount:
        """The CUDA tools as programs in the sandbox see them."""
        return Mount(self.cuda, "/cuda")

    def mounts(self, include: Path | None = None) -> list[Path | Mount]:
        """Everything the compiler reads, apart from what every sandbox has."""
        places: list[Path | Mount] = [self.mount]
        prefix = self.compiler.parent.parent
        if prefix != Path("/usr"):
            places.append(prefix)
        if include is not None:
            places.append(_include_mount(include))
        return places

    def nvcc(self, target: Target, include: Path | None = None) -> list[str]:
        """The command that turns ``unit.cu`` in the work folder into ``unit.so``, `ptx_name` and `cubin_name`."""
        command = [f"{self.sandbox.seen(self.mount)}/bin/nvcc", *_OPTIONS, "-ccbin", str(self.compiler)]
        command += ["-gencode", _GENCODE[target]]
        if include is not None:
            command += ["-I", self.sandbox.seen(_include_mount(include))]
        return [*command, "-o", f"{UNIT}.so", f"{UNIT}.cu"]

    def nvdisasm(self, cubin: str) -> list[str]:
        """The command that lists ``cubin`` with source positions on standard output."""
        return [f"{self.sandbox.seen(self.mount)}/bin/nvdisasm", "-c", "-ndf", "-gi", cubin]

    def check(self) -> None:
        """Compiles and disassembles a kernel of one line; `ToolchainError` if the tools do not work here."""
        target = Target.SM_90A
        cubin = cubin_name(target)
        compiled = self.sandbox.run(
            self.nvcc(target), read_only=self.mounts(), inputs={f"{UNIT}.cu": _SMALLEST}, outputs=[cubin],
            limits=COMPILE_LIMITS,
        )
        said = compiled.stdout + compiled.stderr
        if compiled.returncode == 0:
            listed = self.sandbox.run(
                self.nvdisasm(cubin), read_only=self.mounts(), inputs=compiled.outputs, limits=COMPILE_LIMITS
            )
            if listed.returncode == 0 and b"EXIT" in listed.stdout:
                return
            said = listed.stderr
        first = said.decode(errors="replace").strip().partition("\n")[0]
        raise ToolchainError(
            f"The CUDA toolchain in {self.cuda} cannot compile a one-line kernel ({first or 'no message'}); "
            f"reinstall it: {_remedy()}."
        )


def find_toolchain() -> Toolchain:
    """Finds the CUDA packages of this Python and g++ on ``PATH``, and tries the sandbox (about 20 ms).

    ``PTXBENCH_CUDA`` names the folder of a CUDA toolkit to take instead of the packages. Raises `ToolchainError` with
    the remedy if a part is missing.
    """
    chosen = os.environ.get("PTXBENCH_CUDA", "")
    if chosen:
        return _installed_toolkit(Path(chosen))
    cuda = _cuda_folder()
    versions: dict[str, str] = {}
    for file, package in _PARTS:
        if not (cuda / file).is_file():
            raise ToolchainError(f"{package} is not installed ({cuda / file} is missing); run {_remedy()}.")
        try:
            versions[package.removeprefix("nvidia-")] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError as error:
            raise ToolchainError(f"The package {package} in {cuda} has lost its metadata; run {_remedy()}.") from error
    compiler = host_compiler()
    versions["g++"] = compiler_version(compiler)
    return Toolchain(cuda=cuda, compiler=compiler, versions=versions, sandbox=find_sandbox())


def _installed_toolkit(folder: Path) -> Toolchain:
    """The tools of a CUDA toolkit, whose versions they tell themselves."""
    cuda, compiler = folder.resolve(), host_compiler()
    for file, _ in _PARTS:
        if not (cuda / file).is_file():
            raise ToolchainError(f"PTXBENCH_CUDA names {folder}, which is no whole CUDA 13 toolkit: it lacks {file}.")
    versions = {f"cuda-{tool}": _told_version(cuda / "bin" / tool) for tool in ("nvcc", "nvdisasm")}
    versions["g++"] = compiler_version(compiler)
    return Toolchain(cuda=cuda, compiler=compiler, versions=versions, sandbox=find_sandbox())


def _told_version(tool: Path) -> str:
    """The version in a CUDA tool's answer to ``--version``, such as 13.0.88."""
    try:
        done = subprocess.run(
            [str(tool), "--version"], env=scrubbed_environment(), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        raise ToolchainError(f"{tool} does not run ({error}); reinstall the CUDA toolkit.") from error
    found = re.search(r"\bV(\d+(?:\.\d+)+)", done.stdout)
    if found is None:
        raise ToolchainError(f"{tool} does not tell its version; reinstall the CUDA toolkit.")
    return found[1]


def ptx_name() -> str:
    """The PTX file that a compile leaves."""
    return f"{UNIT}.ptx"


def cubin_name(target: Target) -> str:
    """The cubin that a compile leaves."""
    return f"{UNIT}.{target}.cubin"


def _include_mount(include: Path) -> Mount:
    return Mount(include, "/include")


def _cuda_folder() -> Path:
    spec = importlib.util.find_spec("nvidia")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / "cu13" / "bin").is_dir():
            return Path(place) / "cu13"
    raise ToolchainError(f"The CUDA compiler packages are not installed in this Python; run {_remedy()}.")


def _remedy() -> str:
    return "pip install " + " ".join(f"'{requirement}'" for requirement in _REQUIREMENTS)
