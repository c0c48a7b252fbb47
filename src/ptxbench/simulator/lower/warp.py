"""Exchange between the lanes of a warp. All of them name the participating lanes in a mask."""

from __future__ import annotations

from typing import Final

from ptxbench.simulator.lower.image import LoweredInstruction
from ptxbench.simulator.lower.site import NONE, Rules, Site
from ptxbench.simulator.lower.types import TYPES, plain


def _shfl(site: Site) -> LoweredInstruction:
    """Machine op ``shfl.<mode>``: d, p, a, b, c, mask."""
    site.expect("sync")
    mode = site.choose(("up", "down", "bfly", "idx"))
    site.expect("b32")
    destination, a, b, c, mask = site.arguments(5)
    d, p = site.pair(destination)
    return site.emit(
        f"shfl.{mode}",
        site.destination(d, "b32"), site.destination(p, "pred") if p else NONE,
        site.source(a, "b32"), site.source(b, "b32"), site.source(c, "b32"), site.source(mask, "b32"),
    )  # fmt: skip


def _vote(site: Site) -> LoweredInstruction:
    """Machine op ``vote.<mode>``: d, p, mask."""
    site.expect("sync")
    mode = site.choose(("all", "any", "uni", "ballot"))
    type_name = site.choose(("b32",) if mode == "ballot" else ("pred",))
    d, p, mask = site.arguments(3)
    return site.emit(
        f"vote.{mode}", site.destination(d, type_name), site.source(p, "pred"), site.source(mask, "b32")
    )


def _match(site: Site) -> LoweredInstruction:
    """Machine op ``match.<mode>.<type>``: d, p, a, mask."""
    mode = site.choose(("any", "all"))
    site.expect("sync")
    type_name = site.choose(("b32", "b64"))
    destination, a, mask = site.arguments(3)
    d, p = site.pair(destination)
    if p is not None and mode == "any":
        site.refuse("only match.all has a predicate result")
    return site.emit(
        f"match.{mode}.{type_name}",
        site.destination(d, "b32"), site.destination(p, "pred") if p else NONE,
        site.source(a, type_name), site.source(mask, "b32"),
    )  # fmt: skip


def _redux(site: Site) -> LoweredInstruction:
    """Machine op ``redux.<operation>.<type>``: d, a, mask; attributes for floats: magnitudes only, NaN wins."""
    site.expect("sync")
    operation = site.choose(("add", "min", "max", "and", "or", "xor"))
    if operation in ("and", "or", "xor"):
        type_name = site.choose(("b32",))
    else:
        type_name = site.choose(("u32", "s32", "f32") if operation != "add" else ("u32", "s32"))
    floats = type_name == "f32"
    attributes = [site.take("abs"), site.take("NaN")] if floats else []
    kind = plain(TYPES[type_name].bits) if operation == "add" else type_name
    d, a, mask = site.arguments(3)
    return site.emit(
        f"redux.{operation}.{kind}", site.destination(d, type_name), site.source(a, type_name),
        site.source(mask, "b32"), attributes=attributes,
    )  # fmt: skip


def _elect(site: Site) -> LoweredInstruction:
    """Machine op ``elect``: d, p, mask."""
    site.expect("sync")
    destination, mask = site.arguments(2)
    d, p = site.pair(destination)
    if p is None:
        site.refuse("needs a destination d|p")
    return site.emit("elect", site.destination(d, "b32"), site.destination(p, "pred"), site.source(mask, "b32"))


def _movmatrix(site: Site) -> LoweredInstruction:
    """Machine op ``movmatrix``: d, a; the transpose of an 8x8 matrix of 16-bit elements that the warp holds."""
    site.expect("sync", "aligned", "m8n8", "trans", "b16")
    d, a = site.arguments(2)
    return site.emit("movmatrix", site.destination(d, "b32"), site.source(a, "b32"))


def _activemask(site: Site) -> LoweredInstruction:
    site.expect("b32")
    (d,) = site.arguments(1)
    return site.emit("activemask", site.destination(d, "b32"))


def _nanosleep(site: Site) -> LoweredInstruction:
    """Machine op ``nanosleep``: ends the warp's time slice."""
    site.expect("u32")
    (duration,) = site.arguments(1)
    return site.emit("nanosleep", site.source(duration, "u32"))


RULES: Final[Rules] = {
    "activemask": _activemask,
    "elect": _elect,
    "match": _match,
    "movmatrix": _movmatrix,
    "nanosleep": _nanosleep,
    "redux": _redux,
    "shfl": _shfl,
    "vote": _vote,
}
