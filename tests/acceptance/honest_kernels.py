"""The honest kernels: rows of data, and their sources as one file each, as an author would hand them in."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from ptxbench.core import Candidate, Target, make_candidate
from ptxbench.solutions import solutions

KERNELS = Path(__file__).parent / "kernels"
TASKS = {"gemm": "gemm_n7168_k5120", "forward": "mha_fwd_d128", "backward": "mha_bwd_d128"}


@dataclass(frozen=True)
class HonestKernel:
    """A row of ``kernels/rows.toml``. ``constants`` replace values of the source's own; ``quick`` is for the tests."""

    name: str
    file: str
    style: str
    constants: dict[str, int] = field(default_factory=dict)
    quick: bool = False

    @property
    def target(self) -> Target:
        return Target("sm_90a" if "sm_90a" in self.file else "sm_100a")

    @property
    def task(self) -> str:
        """The causal task where the source is told to be causal."""
        return TASKS[self.name.split("-")[0]] + ("_causal" if self.constants.get("CAUSAL") else "")

    def source(self) -> str:
        """The text: parts included in place, constants set."""
        text = re.sub(r'#include "(parts/\w+\.cuh)"\n', lambda found: read(found[1]), read(self.file))
        for constant, value in self.constants.items():
            text, changed = re.subn(rf"\b({constant} = )\d+(?=[,;])", rf"\g<1>{value}", text)
            if changed != 1:
                raise ValueError(f"{self.file} sets {constant} {changed} times, not once")
        return text

    def candidate(self) -> Candidate:
        return make_candidate(self.source(), task=self.task, target=self.target, origin=self.name)


def read(name: str) -> str:
    return (KERNELS / name).read_text(encoding="utf-8")


def honest_kernels() -> list[HonestKernel]:
    return [HonestKernel(**row) for row in tomllib.loads(read("rows.toml"))["kernels"]]


def known_good() -> list[Candidate]:
    """The package's own solutions, which are honest kernels too."""
    return [
        make_candidate(row.source(), task=row.task, target=row.target, origin=row.file.removesuffix(".cu"))
        for row in solutions()
    ]
