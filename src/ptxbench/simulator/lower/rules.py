"""Every lowering rule by base opcode."""

from __future__ import annotations

from typing import Final

from ptxbench.simulator.lower import (
    asynchronous,
    compare,
    control,
    convert,
    matrix,
    memory,
    move,
    scalar,
    stack,
    synchronisation,
    tensormap,
    video,
    warp,
    warp_matrix,
)
from ptxbench.simulator.lower.site import Rules

RULES: Final[Rules] = {
    **scalar.RULES,
    **compare.RULES,
    **move.RULES,
    **convert.RULES,
    **warp.RULES,
    **control.RULES,
    **memory.RULES,
    **stack.RULES,
    **synchronisation.RULES,
    **asynchronous.RULES,
    **matrix.RULES,
    **tensormap.RULES,
    **video.RULES,
    **warp_matrix.RULES,
}
