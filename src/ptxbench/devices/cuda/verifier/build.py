"""The verifier's kernels, compiled once into the cache."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ptxbench.core import Target, ToolchainError, digest_of, file_parts
from ptxbench.native import Cache, host_compiler, scrubbed_environment

KERNELS = Path(__file__).with_name("kernels")
CUBIN = "verifier.cubin"

_FLAGS = ("-std=c++17", "-O3", "-Wno-deprecated-gpu-targets")


def verifier_cubin(nvcc: Path, target: Target, cache: Cache | None = None) -> Path:
    """Compiles the kernels for the target's architecture, and returns the cubin's path.

    ``nvcc`` is the compiler (of `build.find_toolchain`, ``cuda / "bin" / "nvcc"``). The file may be copied to a machine
    that has none. `ToolchainError` if nvcc or g++ is missing or fails, `CacheError` if the cache cannot be written.
    """
    return compiled(nvcc, cache, CUBIN, "-cubin", f"-arch={plain(target)}")


def compiled(nvcc: Path, cache: Cache | None, output: str, *options: str) -> Path:
    """Everything in `KERNELS` as one module, by nvcc with these options."""
    flags = (*_FLAGS, *options)
    key = _key(flags, _version(nvcc))
    unit = "".join(f'#include "{source.name}"\n' for source in sorted(KERNELS.glob("*.cu")))

    def make(folder: Path) -> None:
        source = folder / "verifier.cu"
        source.write_text(unit)
        command = [str(nvcc), *flags, "-ccbin", str(host_compiler()), "-I", str(KERNELS), "-o", output, source.name]
        done = _run(command, folder)
        source.unlink()
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:400])
            raise ToolchainError(f"The verifier's kernels do not compile: {first} (reinstall the CUDA toolchain).")

    return (cache or Cache()).folder("verifier", key, make) / output


def plain(target: Target) -> str:
    """The architecture without the instructions of its own, which nothing here uses: sm_90 of sm_90a."""
    return target.removesuffix("a")


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = scrubbed_environment() | {"TMPDIR": str(folder)}
    try:
        return subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ToolchainError(f"{command[0]} does not run ({error}); reinstall the CUDA toolchain.") from error


def _version(nvcc: Path) -> str:
    done = _run([str(nvcc), "--version"], KERNELS)
    if done.returncode != 0:
        raise ToolchainError(f"{nvcc} does not run ({done.stderr.strip()[:200]}); reinstall the CUDA toolchain.")
    return done.stdout


def _key(flags: tuple[str, ...], version: str) -> str:
    return digest_of((*(flag.encode() for flag in flags), version.encode(), *file_parts(KERNELS, KERNELS.iterdir())))
