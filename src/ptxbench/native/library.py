"""Compiles our own C++ sources once per machine into the cache.

The compiler is plain ``g++`` from ``PATH``; ``CXX``, ``CPATH`` and the like are not consulted, so that equal keys mean
equal builds.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from ptxbench.core import Cancelled, ToolchainError, digest_of
from ptxbench.native.cache import Cache

_POLL_S = 0.05

# Later flags win, so a caller may override any of these.
BASE_FLAGS = ("-std=c++20", "-O3", "-march=native", "-fPIC", "-Wall", "-Wextra")

# In the line of g++ or of the linker that tells why it failed.
_CAUSE = re.compile("error|undefined reference|multiple definition|cannot find", re.IGNORECASE)


def build_library(
    name: str,
    sources: Sequence[Path],
    *,
    headers: Sequence[Path] = (),
    flags: Sequence[str] = (),
    link: Sequence[str] = (),
    executable: bool = False,
    cache: Cache | None = None,
) -> Path:
    """Compiles ``sources`` (in parallel) and links ``lib<name>.so``, or the program ``<name>`` if ``executable``.

    ``flags`` follow `BASE_FLAGS` on every compile, ``link`` follows the objects on the link line. The result is kept
    under a key of the content of sources and headers, all flags, the compiler's version and this machine's CPU
    (``-march=native``). Headers are found by the compiler's own rules (quoted includes are relative to the source; add
    ``-I`` to ``flags`` otherwise); ``headers`` only says which files the key must cover.

    Returns the path of the finished file. Raises `ToolchainError` if g++ is missing or fails, `CacheError` if the cache
    cannot be written.
    """
    compiler = host_compiler()
    output = name if executable else f"lib{name}.so"
    compile_flags = (*BASE_FLAGS, *flags)
    parts = (output, *compile_flags, "--", *link, compiler_version(compiler), cpu_identity())
    key = digest_of(_chunks(parts, (*sources, *headers)))

    def make(folder: Path) -> None:
        objects = _compile(compiler, sources, compile_flags, folder)
        mode = () if executable else ("-shared",)
        _run([str(compiler), *mode, "-o", output, *objects, *link], folder, f"link {output}", threading.Event())
        for scratch in objects:
            (folder / scratch).unlink()

    return (cache or Cache()).folder("native", key, make) / output


def host_compiler() -> Path:
    """The host C++ compiler, ``g++`` from ``PATH``; `ToolchainError` if there is none."""
    found = shutil.which("g++")
    if found is None:
        raise ToolchainError(
            "The host C++ compiler g++ was not found on PATH; install it (apt-get install g++, or the like)."
        )
    return Path(found)


def compiler_version(compiler: Path) -> str:
    """The first line of ``--version``."""
    try:
        done = subprocess.run(
            [str(compiler), "--version"], env=scrubbed_environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ToolchainError(f"{compiler} does not run ({error}); reinstall g++.") from error
    return done.stdout.splitlines()[0]


def cpu_identity() -> str:
    """What ``-march=native`` depends on: vendor, model and feature flags of the first processor."""
    wanted = {
        "vendor_id", "cpu family", "model", "stepping", "flags",
        "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",
    }
    first = Path("/proc/cpuinfo").read_text().split("\n\n", 1)[0]
    rows = (line.partition(":") for line in first.splitlines())
    return ";".join(f"{name.strip()}={value.strip()}" for name, _, value in rows if name.strip() in wanted)


def scrubbed_environment() -> dict[str, str]:
    """``PATH`` and a fixed locale, nothing else of the user's environment."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _chunks(parts: Sequence[str], files: Sequence[Path]) -> Iterator[bytes]:
    yield from (part.encode() for part in parts)
    for path in files:
        yield path.name.encode()
        yield path.read_bytes()


def _compile(compiler: Path, sources: Sequence[Path], flags: Sequence[str], folder: Path) -> list[str]:
    stop = threading.Event()

    def one(job: tuple[int, Path]) -> str:
        number, source = job
        target = f"{number:03}-{source.stem}.o"
        command = [str(compiler), *flags, "-c", str(source.absolute()), "-o", target]
        _run(command, folder, f"compile {source.name}", stop)
        return target

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            return list(pool.map(one, enumerate(sources)))
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _run(command: Sequence[str], folder: Path, what: str, stop: threading.Event) -> None:
    """Runs one tool; an interrupt, or ``stop`` set by another thread, kills it with everything that it started."""
    environment = scrubbed_environment() | {"TMPDIR": str(folder)}
    with subprocess.Popen(
        list(command), cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            stderr = _until_end(process, stop)
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode == 0:
        return
    text = stderr.decode(errors="replace")
    causes = (line for line in text.splitlines() if _CAUSE.search(line) and not line.startswith("collect2"))
    first = next(causes, text.strip())[:400]
    remedy = "free space there, or set PTXBENCH_CACHE" if "No space left" in text else "g++ 12 or newer is needed"
    raise ToolchainError(f"g++ could not {what} in {folder.parent}: {first} ({remedy}).")


def _until_end(process: subprocess.Popen[bytes], stop: threading.Event) -> bytes:
    while True:
        try:
            return process.communicate(timeout=_POLL_S)[1]
        except subprocess.TimeoutExpired:
            if stop.is_set():
                raise Cancelled("The build was called off.") from None
