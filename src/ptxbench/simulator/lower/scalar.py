"""Base opcodes that exist for integers and for floats: the last modifier decides."""

from __future__ import annotations

from typing import Final

from ptxbench.simulator.lower import floating, integer
from ptxbench.simulator.lower.image import LoweredInstruction
from ptxbench.simulator.lower.site import Rule, Rules, Site


def _by_type(integers: Rule, floats: Rule) -> Rule:
    def rule(site: Site) -> LoweredInstruction:
        modifiers = site.modifiers
        return (floats if modifiers and floating.is_float(modifiers[-1]) else integers)(site)

    return rule


RULES: Final[Rules] = {
    **integer.RULES,
    **floating.RULES,
    "abs": _by_type(integer.abs_, floating.abs_neg),
    "add": _by_type(integer.add_or_sub, floating.add_sub_mul),
    "div": _by_type(integer.div_or_rem, floating.div),
    "mad": _by_type(integer.mad, floating.fma),
    "max": _by_type(integer.min_or_max, floating.min_max),
    "min": _by_type(integer.min_or_max, floating.min_max),
    "mul": _by_type(integer.mul, floating.add_sub_mul),
    "neg": _by_type(integer.neg, floating.abs_neg),
    "sub": _by_type(integer.add_or_sub, floating.add_sub_mul),
}
