"""The test GEMMs of both targets: compiled once per session, run on NumPy matrices, and mutated as PTX text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from simulator_launch import Array, Launch, run, tiled
from simulator_nvcc import compile_ptx

from ptxbench.core import Observation, RunOptions, Schedule, Target
from ptxbench.simulator import load

KERNELS = Path(__file__).parent / "kernels"
BFLOAT16 = ml_dtypes.bfloat16
TILE, DEPTH = 128, 64
SCHEDULES = tuple(
    Schedule(copies=copies, products=products, reverse=reverse, seed=seed)
    for copies, products, reverse, seed in (
        ("eager", "eager", False, 0), ("late", "eager", False, 0), ("eager", "late", False, 0),
        ("late", "late", False, 0), ("eager", "eager", True, 0), ("late", "late", True, 0), ("eager", "late", True, 0),
        ("late", "late", False, 7),
    )
)  # fmt: skip


@dataclass(frozen=True)
class Gemm:
    """A kernel of one of the sources. ``ranks`` is the cluster size; ``b_box`` the rows of B one CTA loads."""

    source: str
    kernel: str
    target: Target
    ranks: int
    b_box: int
    threads: int
    shared: int
    bf16_output: bool = False

    def text(self, folder: Path, *options: str) -> str:
        """The PTX of its source."""
        return compile_ptx(KERNELS / self.source, self.target, folder, *options)

    def run(self, text: str, problem: Problem, options: RunOptions | None = None) -> tuple[Observation, Array]:
        """The observation and C, as fp32, of one run."""
        a, b = problem.a, problem.b
        (m, k), n = a.shape, b.shape[0]
        c = np.full((m, n), np.nan, BFLOAT16 if self.bf16_output else np.float32)
        a_map = tiled("in_a", (k, m), (DEPTH, TILE), swizzle="128b")
        b_map = tiled("in_b", (k, n), (DEPTH, self.b_box), swizzle="128b")
        c_parameters = [tiled("c", (n, m), (64, 64), swizzle="128b"), k] if self.bf16_output else ["c", n, k]
        launch = Launch(
            self.kernel, [a_map, b_map, *c_parameters], grid=(m // TILE, n // TILE, 1), block=(self.threads, 1, 1),
            cluster=(self.ranks, 1, 1), shared=self.shared,
        )  # fmt: skip
        observation = run(load(text, [self.kernel]), launch, options, registers=168, in_a=a, in_b=b, c=c)
        return observation, c.astype(np.float32)

    def line(self, pattern: str) -> int:
        """The last line of the first statement that contains ``pattern``: where nvcc puts an asm statement."""
        lines = (KERNELS / self.source).read_text().splitlines()
        first = next(number for number, line in enumerate(lines) if pattern in line)
        return next(number for number in range(first, len(lines)) if lines[number].endswith(";")) + 1


@dataclass(frozen=True)
class Problem:
    a: Array
    b: Array

    @property
    def truth(self) -> Array:
        return self.a.astype(np.float64) @ self.b.astype(np.float64).T

    @classmethod
    def random(cls, m: int, n: int, k: int) -> Problem:
        rng = np.random.default_rng(m + n + k)
        return cls(rng.standard_normal((m, k)).astype(BFLOAT16), rng.standard_normal((n, k)).astype(BFLOAT16))


_HOPPER_SHARED = 4 * 2 * TILE * DEPTH * 2 + TILE * TILE * 2 + 64 + 1024
_BLACKWELL_SHARED = 3 * 2 * TILE * DEPTH * 2 + 128 + 1024
PLAIN = Gemm("hopper_gemm.cu", "gemm_plain", Target.SM_90A, 1, 128, 384, _HOPPER_SHARED)
CLUSTER = Gemm("hopper_gemm.cu", "gemm_cluster", Target.SM_90A, 2, 64, 384, _HOPPER_SHARED, bf16_output=True)
SINGLE = Gemm("blackwell_gemm.cu", "gemm_single", Target.SM_100A, 1, 128, 192, _BLACKWELL_SHARED)
PAIR = Gemm("blackwell_gemm.cu", "gemm_pair", Target.SM_100A, 2, 64, 192, _BLACKWELL_SHARED)
GEMMS = (PLAIN, CLUSTER, SINGLE, PAIR)


def without(text: str, opcode: str) -> str:
    """The text with every instruction of that opcode prefix removed, line numbers unchanged."""
    changed = re.sub(rf"^(\s*(?:@!?%?\w+\s+)?){re.escape(opcode)}[^;]*;", r"\1", text, flags=re.MULTILINE)
    changed = re.sub(r"^\s*@!?%?\w+\s*$", "", changed, flags=re.MULTILINE)
    assert changed != text, f"the text has no {opcode}"
    return changed


def without_waits(text: str) -> str:
    """The text with every wait on an mbarrier removed."""
    return replaced(without(text, "mbarrier.try_wait"), r"@!done bra AGAIN[^;]*;", "")


def replaced(text: str, pattern: str, replacement: str) -> str:
    """The text with every match of a regular expression replaced."""
    changed = re.sub(pattern, replacement, text)
    assert changed != text, f"the text has nothing like {pattern}"
    return changed
