"""A probe of named barriers: do an arrival and a wait of the same thread count as two?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from oracles_expected import Expected, Oracle
from oracles_run import Kernel, Launch, assembled

from ptxbench.core import Target

_SOURCE = Path(__file__).parent / "probes" / "arrived_twice.ptx"


def arrived_twice() -> Oracle:
    """The probe: its first 128 threads read a zero if they count as two, and a one otherwise."""
    text, target = _SOURCE.read_text(), Target.SM_90A
    kernel = Kernel(name="probe", target=target, ptx=text, cubin=assembled(text, target), threads=256, shared=0)
    truth = np.repeat([0.0, 1.0], 128)
    launch = Launch(kernel, ["c"], (1, 1, 1), {"c": np.zeros(256, np.int32)})
    return Oracle(launch, {"c": Expected(truth, np.zeros_like(truth))})
