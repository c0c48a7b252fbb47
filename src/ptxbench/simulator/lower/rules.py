"""Every lowering rule by base opcode."""

from __future__ import annotations

from typing import Final

from ptxbench.simulator.lower import control, scalar
from ptxbench.simulator.lower.site import Rules

RULES: Final[Rules] = {
    **scalar.RULES,
    **control.RULES,
}
