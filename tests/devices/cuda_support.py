"""What the early check shares: truth on the device, sums over families, descriptions of the machine and of samples."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from ptxbench.core import SiteCount, Target, families_of
from ptxbench.devices.cuda import Turns, paired_ratio


class Log:
    """Keeps what was measured even when the session is cut short."""

    def __init__(self, results: Any) -> None:
        self._results = results

    def __call__(self, section: str, **values: Any) -> None:
        self._results.record(section, **values)
        self._results.write()


class Judge:
    """Truth on the device in float64, in this process."""

    def __init__(self) -> None:
        self.torch: Any = pytest.importorskip("torch")
        self._problems: dict[tuple[int, ...], tuple[dict[str, bytes], Any]] = {}

    def tensor(self, content: bytes | bytearray, rows: int, columns: int) -> Any:
        return self.torch.frombuffer(bytearray(content), dtype=self.torch.bfloat16).view(rows, columns).cuda()

    def truth(self, sizes: dict[str, int], inputs: dict[str, bytes]) -> Any:
        a = self.tensor(inputs["A"], sizes["M"], sizes["K"])
        b = self.tensor(inputs["B"], sizes["N"], sizes["K"])
        return a.double() @ b.double().t()

    def problem(self, sizes: dict[str, int]) -> tuple[dict[str, bytes], Any]:
        """(inputs, truth) of fresh normal inputs, kept for the next kernel at these sizes."""
        key = tuple(sizes.values())
        if key not in self._problems:
            torch = self.torch
            drawn = {
                name: torch.randn(sizes[rows], sizes["K"], device="cuda").bfloat16()
                for name, rows in (("A", "M"), ("B", "N"))
            }
            inputs = {name: value.view(torch.uint8).cpu().numpy().tobytes() for name, value in drawn.items()}
            self._problems[key] = (inputs, self.truth(sizes, inputs))
        return self._problems[key]

    def errors(self, output: bytes | bytearray, truth: Any) -> dict[str, float]:
        """RMS and largest error, in units of those of merely rounding the truth to bf16."""
        error = self.tensor(output, *truth.shape).double() - truth
        rounding = truth.bfloat16().double() - truth
        return {
            "rms_ratio": float(error.pow(2).mean().sqrt() / rounding.pow(2).mean().sqrt()),
            "max_ratio": float(error.abs().max() / rounding.abs().max()),
        }


def by_family(counts: Iterable[SiteCount], *, sass: bool) -> dict[str, dict[str, int]]:
    """Executions and active lanes per family, first match first."""
    totals: dict[str, dict[str, int]] = {}
    for site in counts:
        for family in families_of(Target.SM_90A):
            if family.matches_sass(site.opcode) if sass else family.matches_ptx(site.opcode):
                entry = totals.setdefault(family.name, {"executed": 0, "threads": 0, "flops": 0})
                entry["executed"] += site.executed
                entry["threads"] += site.threads
                entry["flops"] += site.flops
                break
    return totals


def bit_equal_share(left: bytes | bytearray, right: bytes | bytearray) -> float:
    return float((np.frombuffer(left, np.uint16) == np.frombuffer(right, np.uint16)).mean())


def opcodes(counts: Iterable[SiteCount]) -> dict[str, list[int]]:
    """[executed, threads] of every opcode."""
    totals: dict[str, list[int]] = {}
    for site in counts:
        entry = totals.setdefault(site.opcode, [0, 0])
        entry[0] += site.executed
        entry[1] += site.threads
    return dict(sorted(totals.items()))


def nvidia_smi() -> list[str]:
    """Clocks, temperature, power and throttle reasons as they are now."""
    query = "driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw,power.limit,clocks_event_reasons.active"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().split(", ")
    except FileNotFoundError:
        return []


def which_device() -> str:
    """A short digest of the device's identity, which tells two of the same kind apart; empty without nvidia-smi."""
    command = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    try:
        uuid = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""
    return hashlib.sha256(uuid.encode()).hexdigest()[:8] if uuid else ""


def described(turns: Turns) -> dict[str, Any]:
    """The paired ratio A / B with its interval, the spread of single blocks, and both sides' median times."""
    ratios = np.asarray(turns.a).mean(axis=1) / np.asarray(turns.b).mean(axis=1)
    return {
        **paired_ratio(turns).model_dump(),
        "blocks": len(turns.a),
        "block_ratio_5_95": [float(q) for q in np.quantile(ratios, [0.05, 0.95])],
        "ms": [float(np.median(side)) for side in (turns.a, turns.b)],
    }
