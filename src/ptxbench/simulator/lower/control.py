"""Branches and ends. The scheduler executes them; targets are instruction indices.

Calls are inlined before lowering: a ``call`` is left as a jump over the body, for the lanes whose guard is false, and a
``ret`` inside the body as a jump to its end.
"""

from __future__ import annotations

from typing import Final

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


def _exit(site: Site) -> LoweredInstruction:
    site.arguments(0)
    return site.emit("exit")


def _ret(site: Site) -> LoweredInstruction:
    """``ret`` of a kernel ends the thread, like ``exit``."""
    site.take("uni")
    target = site.arguments(0, 1)
    return site.emit("bra", site.label(target[0])) if target else site.emit("exit")


def _call(site: Site) -> LoweredInstruction:
    site.take("uni")
    target = site.arguments(0, 1)
    return site.emit("bra", site.label(target[0])) if target else site.emit("nop")


def _trap(site: Site) -> LoweredInstruction:
    site.arguments(0)
    return site.emit("trap")


def _nop(site: Site) -> LoweredInstruction:
    site.arguments(0)
    return site.emit("nop")


def _pmevent(site: Site) -> LoweredInstruction:
    """Triggers events of a profiler, which does not exist here."""
    site.take("mask")
    (event,) = site.arguments(1)
    site.integer(event)
    return site.emit("nop")


RULES: Final[Rules] = {
    "bra": _bra,
    "brkpt": _trap,
    "brx": _brx,
    "call": _call,
    "exit": _exit,
    "nop": _nop,
    "pmevent": _pmevent,
    "ret": _ret,
    "trap": _trap,
}
