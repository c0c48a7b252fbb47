"""Which executed PTX instructions really exist in the machine code.

ptxas deletes a ``wgmma`` whose accumulators are never read, even a volatile one, and leaves a dummy that multiplies
nothing. Counting PTX sites alone would credit it. Lines cannot settle which site survived: ptxas 13.0 gives an
``HGMMA`` the line of the fence or loop before it. So the sites and machine instructions of a kernel are compared by
shape and by number.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from ptxbench.core import Family, KernelSass, SassInstruction, SiteCount

Shape = tuple[tuple[int, ...], bool]
"""((M, N, K) or () where the opcode shows none, whether it says bf16)."""

_PTX_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)\b")
_SASS_SHAPE = re.compile(r"\.(\d+)x(\d+)x(\d+)\b")


def is_dummy(instruction: SassInstruction) -> bool:
    """Whether a matrix instruction multiplies nothing: ``HGMMA.64x8x16.F16 RZ, gdesc[URZ], RZ, !UPT``.

    A group that is committed empty leaves one. A real product has a destination other than RZ and a descriptor in a
    register.
    """
    first = instruction.operands.split(",")[0].strip()
    return first == "RZ" or "gdesc[URZ]" in instruction.operands


def compiled_counts(
    sass: Iterable[KernelSass], kernels: Iterable[str], families: tuple[Family, ...]
) -> Counter[str]:
    """Static instructions per family in the machine code of ``kernels``, without dummies."""
    wanted = set(kernels)
    counts: Counter[str] = Counter()
    for kernel in sass:
        if kernel.kernel not in wanted:
            continue
        for instruction in kernel.instructions:
            family = next((f for f in families if f.matches_sass(instruction.opcode)), None)
            if family is not None and not (family.role == "matrix" and is_dummy(instruction)):
                counts[family.name] += 1
    return counts


def confirmed_sites(
    sites: Iterable[SiteCount], sass: Iterable[KernelSass], family: Family
) -> list[SiteCount]:
    """The executed PTX sites of a matrix family that the machine code confirms.

    Per kernel and shape: with at least as many real machine instructions as executed sites (ptxas unrolls loops) all
    are confirmed; with none, none; in between as many as there are instructions, and because it is unknown which ones
    survived, those that did the least work.
    """
    real: Counter[tuple[str, Shape]] = Counter()
    for kernel in sass:
        for instruction in kernel.instructions:
            if family.matches_sass(instruction.opcode) and not is_dummy(instruction):
                real[kernel.kernel, sass_shape(instruction.opcode)] += 1
    groups: defaultdict[tuple[str, Shape], list[SiteCount]] = defaultdict(list)
    for site in sites:
        if site.executed and family.matches_ptx(site.opcode):
            groups[site.kernel, ptx_shape(site.opcode)].append(site)
    return [
        site
        for key, group in groups.items()
        for site in sorted(group, key=lambda s: s.flops)[: real[key]]
    ]


def ptx_shape(opcode: str) -> Shape:
    """The shape in ``wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16``."""
    return _shape(_PTX_SHAPE, opcode)


def sass_shape(opcode: str) -> Shape:
    """The shape in ``HGMMA.64x128x16.F32.BF16``."""
    return _shape(_SASS_SHAPE, opcode)


def _shape(pattern: re.Pattern[str], opcode: str) -> Shape:
    found = pattern.search(opcode)
    return (tuple(int(n) for n in found.groups()) if found else (), ".bf16" in opcode.lower())
