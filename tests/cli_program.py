"""The command line as a user meets it: a process with arguments, an environment, signals and an exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

GEMM = ("--task", "gemm_n7168_k5120", "--target", "sm_90a")
PROGRAM = (sys.executable, "-m", "ptxbench")

SIGNATURE = (
    "const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K, void* workspace, "
    "cudaStream_t stream"
)

# Each keeps one stage busy for far longer than a test waits. The loop of the simulated kernel changes memory, so that
# it is no deadlock.
ENDLESS_KERNEL = f"""
#include <cuda_bf16.h>
__global__ void kernel(__nv_bfloat16* C) {{
  for (volatile unsigned i = 0;; ++i)  // atomics, so that it is simulated for seconds before its work limit ends it
    for (int k = 0; k < 8; ++k) atomicAdd(reinterpret_cast<float*>(C) + threadIdx.x * 33 + k, float(i));
}}
extern "C" int launch({SIGNATURE}) {{ kernel<<<1, 32, 0, stream>>>(C); return 0; }}
"""
ENDLESS_LAUNCHER = f"""
#include <cuda_bf16.h>
__global__ void kernel(__nv_bfloat16* C) {{ C[threadIdx.x] = C[0]; }}
extern "C" int launch({SIGNATURE}) {{
  for (volatile unsigned i = 0;; ++i) {{}}
  kernel<<<1, 32, 0, stream>>>(C);
  return 0;
}}
"""
ENDLESS_COMPILE = f"""
#include <cuda_bf16.h>
constexpr long spin(long n) {{ long s = 0; for (long i = 0; i < n; ++i) s += i % 7; return s; }}
template <int N> struct Chain {{ static constexpr long value = spin(4000000) + Chain<N - 1>::value; }};
template <> struct Chain<0> {{ static constexpr long value = 1; }};
__global__ void kernel(__nv_bfloat16* C) {{ C[threadIdx.x] = __float2bfloat16(float(Chain<150>::value)); }}
extern "C" int launch({SIGNATURE}) {{ kernel<<<1, 32, 0, stream>>>(C); return 0; }}
"""


@dataclass(frozen=True)
class Ended:
    """A program that ended by itself."""

    code: int
    out: str
    err: str
    seconds: float = 0.0

    @property
    def sentence(self) -> str:
        """The last line of standard error, which is the program's own word on why it failed."""
        assert "Traceback" not in self.err, self.err
        lines = self.err.strip().splitlines()
        return lines[-1] if lines else ""


def environment(cache: Path, **changes: str) -> dict[str, str]:
    return os.environ | {"PTXBENCH_CACHE": str(cache)} | changes


def run(*arguments: str | Path, cache: Path, prefix: Sequence[str] = (), **options: object) -> Ended:
    """Runs the program to its end (at most two minutes)."""
    variables = options.pop("env", {})
    assert isinstance(variables, dict)
    begin = time.monotonic()
    done = subprocess.run(
        [*prefix, *PROGRAM, *map(str, arguments)], env=environment(cache, **variables), text=True, timeout=120,
        check=False, **({"capture_output": True} | options),  # type: ignore[call-overload]
    )  # fmt: skip
    return Ended(done.returncode, done.stdout or "", done.stderr or "", time.monotonic() - begin)


class Running:
    """A program in progress, in a session of its own, so that a signal reaches it and nothing else."""

    def __init__(self, *arguments: str | Path, cache: Path, folder: Path) -> None:
        self._log = folder / "stderr"
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [*PROGRAM, *map(str, arguments)], env=environment(cache), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder, start_new_session=True,
                preexec_fn=_default_signals,
            )  # fmt: skip

    def wait_for(self, text: str, seconds: float = 100) -> None:
        """Waits until standard error holds ``text``."""
        deadline = time.monotonic() + seconds
        while text not in self._log.read_text():
            assert self.process.poll() is None, f"ended before it said {text!r}: {self._log.read_text()}"
            assert time.monotonic() < deadline, f"never said {text!r}: {self._log.read_text()}"
            time.sleep(0.02)

    def end(self, number: int, *, pause: float = 0.2) -> Ended:
        """Sends a signal a moment from now and waits for the end; seconds are counted from the signal."""
        time.sleep(pause)
        begin = time.monotonic()
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=60)
        return Ended(self.process.returncode, out, self._log.read_text(), time.monotonic() - begin)


def _default_signals() -> None:
    # A test run in the background ignores interrupts, and its children would inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def unfinished(*folders: Path) -> list[Path]:
    """What a program must never leave: temporary files and folders, and empty JSON or HTML files."""
    files = [path for folder in folders for path in folder.rglob("*")]
    return [
        path for path in files
        if path.suffix == ".tmp" or (path.suffix in {".json", ".html"} and path.is_file() and not path.stat().st_size)
        or (path.name.startswith(".") and path.suffix not in {".lock", ".json"})
    ]  # fmt: skip
