"""Branches and ends. The scheduler executes them; targets are instruction indices."""

from __future__ import annotations

from typing import Final

from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import LoweredInstruction
from ptxbench.simulator.lower.site import Rules, Site


def _bra(site: Site) -> LoweredInstruction:
    site.take("uni")
    (target,) = site.arguments(1)
    return site.emit("bra", site.label(target))


def _brx(site: Site) -> LoweredInstruction:
    site.expect("idx")
    site.take("uni")
    index, targets = site.arguments(2)
    return site.emit("brx", site.source(index, "u32"), site.branch_targets(targets))


def _end(site: Site) -> LoweredInstruction:
    """``ret`` of a kernel ends the thread, like ``exit``."""
    site.take("uni")
    site.arguments(0)
    return site.emit("exit")


def _trap(site: Site) -> LoweredInstruction:
    site.arguments(0)
    return site.emit("trap")


def _call(site: Site) -> LoweredInstruction:
    callees = [operand.text for operand in site.operands if isinstance(operand, ptx.Name)]
    site.refuse(f"calls are not supported (callee {callees[0] if callees else 'unknown'})")


RULES: Final[Rules] = {
    "bra": _bra,
    "brx": _brx,
    "call": _call,
    "exit": _end,
    "ret": _end,
    "trap": _trap,
}
