"""The video instructions. Machine ops ``video.scalar``, ``video.simd`` and ``video.mad``; see ``machine/video.cpp``.

GPUs have no such instructions any more: ``ptxas`` makes sequences of others. Some of these sequences compute on an H200
what the ISA does not say (a sum wraps in place of being saturated, the larger one is the minimum, the upper half of a
result is merged in place of the lower one); those forms are refused.
"""

from __future__ import annotations

import re
from typing import Final

from ptxbench.simulator import ptx
from ptxbench.simulator.lower.image import LoweredInstruction
from ptxbench.simulator.lower.site import NONE, Rules, Site

_WORDS: Final = ("u32", "s32")
_COMPARISONS: Final = {"eq": 10, "ne": 11, "lt": 12, "le": 13, "gt": 14, "ge": 15}
_OPERATIONS: Final = {"vadd": 0, "vsub": 1, "vabsdiff": 2, "vmin": 3, "vmax": 4, "vavrg": 5}
_WRAPPING: Final = ("vadd", "vsub", "vmin")
# With which type of the result the secondary minimum and maximum are right; that of vset is a's.
_COMPARED: Final = {"vadd": True, "vsub": True, "vabsdiff": False, "vmin": True, "vmax": False, "vset": False}
_SHIFTS: Final = {"vshl": {"clamp": 6, "wrap": 7}, "vshr": {"clamp": 8, "wrap": 9}}
_PARTS: Final = {"": 0, "b0": 1, "b1": 2, "b2": 3, "b3": 4, "h0": 5, "h1": 6}
_COMBINATIONS: Final = {"add": 1, "min": 2, "max": 3}
_MERGE: Final = 4
_SCALES: Final = ("sat", "shr7", "shr15")
_WRONG: Final = "what ptxas makes of it computes something else than the ISA says"
_SELECTED = re.compile(r"(.+)\.([bh][0-7]{1,4})")
_UNIT: Final = {2: "h", 4: "b"}


def _split(operand: ptx.Operand) -> tuple[ptx.Operand, str]:
    """The register of ``r.h1``, and what is selected of it."""
    found = _SELECTED.fullmatch(operand.text) if isinstance(operand, ptx.Name) else None
    return (ptx.Name(found[1]), found[2]) if found else (operand, "")


def _signed(site: Site) -> bool:
    return site.choose(_WORDS) == "s32"


def _part(site: Site, operand: ptx.Operand) -> tuple[ptx.Operand, int]:
    register, name = _split(operand)
    if name not in _PARTS:
        site.refuse(f".{name} is no part of a word")
    return register, _PARTS[name]


def _scalar(site: Site) -> LoweredInstruction:
    """One operation, then the sum, minimum or maximum with c, or its merge into a part of c."""
    d_signed = False if site.base == "vset" else _signed(site)
    a_signed, b_signed = _signed(site), _signed(site)
    saturate = site.base != "vset" and site.take("sat")
    if site.base in _SHIFTS:
        operation = site.pick(_SHIFTS[site.base])
        if b_signed:
            site.refuse("the shift amount is .u32")
    else:
        operation = site.pick(_COMPARISONS) if site.base == "vset" else _OPERATIONS[site.base]
    combination = site.pick(_COMBINATIONS, 0)
    d, a, b, *c = site.arguments(3, 4)
    to, d_part = _part(site, d)
    if bool(c) != bool(combination or d_part) or (combination and d_part):
        site.refuse("takes a third operand to combine with or to merge into, not both")
    wraps = saturate and (site.base == "vshl" or (site.base in _WRAPPING and (d_part or not d_signed)))
    compared = a_signed if site.base == "vset" else d_signed
    chooses = combination > _COMBINATIONS["add"] and _COMPARED.get(site.base) is not compared
    if wraps or chooses or d_part == _PARTS["h1"]:
        site.refuse(_WRONG)
    (a, a_part), (b, b_part) = _part(site, a), _part(site, b)
    return site.emit(
        "video.scalar",
        site.destination(to, "b32"), site.source(a, "b32"), site.source(b, "b32"),
        site.source(c[0], "b32") if c else NONE,
        attributes=[
            operation, d_signed, a_signed, b_signed, saturate, a_part, b_part, d_part,
            _MERGE if d_part else combination,
        ],
    )  # fmt: skip


def _simd(site: Site) -> LoweredInstruction:
    """Two or four operations side by side; those that the mask leaves out take their element of c."""
    name, elements = site.base[:-1], int(site.base[-1])
    compares = name == "vset"
    d_signed = False if compares else _signed(site)
    a_signed, b_signed = _signed(site), _signed(site)
    operation = site.pick(_COMPARISONS) if compares else _OPERATIONS[name]
    saturate = not compares and site.take("sat")
    accumulate = site.take("add")
    if saturate and accumulate:
        site.refuse(".sat does not go with .add")
    d, a, b, c = site.arguments(4)
    to, mask = _split(d)
    (a, a_choice), (b, b_choice) = _split(a), _split(b)
    return site.emit(
        "video.simd",
        site.destination(to, "b32"), site.source(a, "b32"), site.source(b, "b32"), site.source(c, "b32"),
        attributes=[
            operation, d_signed, a_signed, b_signed, saturate, elements, _choice(site, a_choice, elements, 0),
            _choice(site, b_choice, elements, elements), _mask(site, mask, elements), accumulate,
        ],
    )  # fmt: skip


def _choice(site: Site, name: str, elements: int, first: int) -> int:
    """Which of the elements of a and b stand at each place, four bits each; the lowest is written last."""
    digits = [int(digit) for digit in reversed(name[1:])] or list(range(first, first + elements))
    if name[:1] not in ("", _UNIT[elements]) or len(digits) != elements or max(digits) >= 2 * elements:
        site.refuse(f".{name} chooses no {elements} elements")
    return sum(digit << 4 * place for place, digit in enumerate(digits))


def _mask(site: Site, name: str, elements: int) -> int:
    digits = [int(digit) for digit in name[1:]] or list(range(elements))
    if name[:1] not in ("", _UNIT[elements]) or len(set(digits)) != len(digits) or max(digits) >= elements:
        site.refuse(f".{name} is no mask of {elements} elements")
    return sum(1 << digit for digit in digits)


def _vmad(site: Site) -> LoweredInstruction:
    _signed(site)  # of d, which follows from those of a and b
    a_signed, b_signed = _signed(site), _signed(site)
    one = site.take("po")
    if any(site.take(name) for name in _SCALES):
        site.refuse(_WRONG)
    d, a, b, c = site.arguments(4)
    (a, a_part), (b, b_part) = _part(site, a), _part(site, b)
    return site.emit(
        "video.mad",
        site.destination(d, "b32"), site.source(a, "b32"), site.source(b, "b32"), site.source(c, "b32"),
        attributes=[a_signed, b_signed, a_part, b_part, one],
    )  # fmt: skip


RULES: Final[Rules] = {
    **dict.fromkeys(("vabsdiff", "vadd", "vmax", "vmin", "vset", "vshl", "vshr", "vsub"), _scalar),
    **{f"{name}{elements}": _simd for name in (*_OPERATIONS, "vset") for elements in (2, 4)},
    "vmad": _vmad,
}
