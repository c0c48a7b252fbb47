"""Outputs and executed counts of the simulator and of a GPU side by side, in numbers that mean the same on both."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from silicon_store import Output, SiliconCase

from ptxbench.core import Artifact, SiteCount, Target, families_of

Array = np.ndarray

EQUAL = ("wgmma", "tma_load", "tma_store", "stmatrix", "ldmatrix")
"""Families whose executions must be equal: products, bulk copies, matrix moves."""

_LANES = 32
_SHAPE = re.compile(r"\bm?(\d+)[xn](\d+)[xk](\d+)\b")
_BULK = ("tma_load", "tma_store")


@dataclass(frozen=True)
class Errors:
    """Largest errors of one output, over what is allowed of each element: of both, and of one against the other, of
    which twice as much is allowed.
    """

    device: float
    simulator: float
    between: float
    bits_equal: float
    """Share of elements whose bits are the same on both."""


@dataclass(frozen=True)
class Comparison:
    """One case on both; ``sites`` are those of `measured_sites`."""

    errors: dict[str, Errors]
    device: dict[str, int]
    simulator: dict[str, int]
    sites: dict[str, str]

    def disagreements(self) -> list[str]:
        """A line for each output that is outside of its bound and each count that differs."""
        lines = [
            f"{name}: {vars(errors)}" for name, errors in self.errors.items()
            if not max(errors.device, errors.simulator, errors.between) <= 1
        ]  # fmt: skip
        names = sorted(self.device.keys() | self.simulator.keys())
        pairs = [(name, self.device.get(name, 0), self.simulator.get(name, 0)) for name in names]
        return lines + [f"{name}: {left} on the GPU, {right} simulated" for name, left, right in pairs if left != right]

    def report(self) -> dict[str, Any]:
        """For the file of results."""
        return {
            "errors": {name: vars(errors) for name, errors in self.errors.items()}, "executed_device": self.device,
            "executed_simulator": self.simulator, "sites": self.sites,
        }  # fmt: skip


def comparison(case: SiliconCase, outputs: Mapping[str, Array], counts: Iterable[SiteCount]) -> Comparison:
    """``outputs`` and ``counts`` are the GPU's."""
    sites = tuple(counts)
    return Comparison(
        {name: errors_of(case.outputs[name], array) for name, array in outputs.items()},
        executions(sites, sass=True), executions(case.observation.counts, sass=False),
        measured_sites(case.artifact, sites),
    )  # fmt: skip


def errors_of(output: Output, found: Array) -> Errors:
    """The errors of one output, ``found`` on the GPU."""
    truth, simulated, device = (array.astype(np.float64) for array in (output.truth, output.simulated, found))
    allowed = output.allowed.astype(np.float64)
    pairs = ((device - truth, allowed), (simulated - truth, allowed), (device - simulated, 2 * allowed))
    ratios = [largest_ratio(error, bound) for error, bound in pairs]
    return Errors(*ratios, bits_equal=float(((device == simulated) | np.isnan(device) & np.isnan(simulated)).mean()))


def largest_ratio(error: Array, allowed: Array) -> float:
    """max |error| / allowed; no error at all is 0 where nothing is allowed."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error == 0, 0.0, np.abs(error) / allowed)
    return float(np.where(np.isnan(ratio), np.inf, ratio).max())


def compared(counts: Iterable[SiteCount], *, sass: bool) -> tuple[SiteCount, ...]:
    """The sites that belong to the families `EQUAL`, without the dummy product of a lone ``commit_group``."""
    named = ((site, _family(site.opcode, sass=sass)) for site in counts)
    return tuple(site for site, family in named if family in EQUAL and (family != "wgmma" or site.flops))


def executions(counts: Iterable[SiteCount], *, sass: bool) -> dict[str, int]:
    """How often each of the families `EQUAL` did its work: products by shape and per warp, copies, moves per warp."""
    found: Counter[str] = Counter()
    for site in compared(counts, sass=sass):
        family = _family(site.opcode, sass=sass)
        shape = _SHAPE.search(site.opcode) if family == "wgmma" else None
        name = f"{family} {'x'.join(shape.groups())}" if shape else family
        found[name] += _copies(site) if family in _BULK else site.threads // _LANES
    return {name: count for name, count in sorted(found.items()) if count}


def measured_sites(artifact: Artifact, counts: Iterable[SiteCount]) -> dict[str, str]:
    """What was measured at the compared sites: sites, issues by warps and lanes, by opcode and kind of predicate."""
    predicates = {(sass.kernel, one.offset): one.predicate for sass in artifact.sass for one in sass.instructions}
    found: dict[str, list[int]] = {}
    for site in compared(counts, sass=True):
        kind = predicates[site.kernel, site.position].rstrip("0123456789T")
        entry = found.setdefault(f"@{kind} {site.opcode}" if kind else site.opcode, [0, 0, 0])
        for place, value in enumerate((1, site.executed, site.threads)):
            entry[place] += value
    return {name: "{} sites, {} warps, {} lanes".format(*numbers) for name, numbers in sorted(found.items())}


def _family(opcode: str, *, sass: bool) -> str:
    for family in families_of(Target.SM_90A):
        if family.matches_sass(opcode) if sass else family.matches_ptx(opcode):
            return family.name
    return ""


def _copies(site: SiteCount) -> int:
    """Copies that were made, one for each active lane of PTX.

    Machine code has one instruction per warp for that, either in a branch of one lane, or in all lanes under a uniform
    predicate that is true in one warp of the CTA: then every lane of the warp counts, and more lanes than issues.
    """
    several = site.opcode.startswith("U") and site.threads > site.executed
    return site.threads // _LANES if several else site.threads
