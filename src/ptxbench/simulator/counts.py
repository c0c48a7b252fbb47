"""Executed counts of a run as records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from ptxbench.core import SiteCount
from ptxbench.simulator.program import Program

_NUMBERS: Final = 7
"""Of a site in the machine's report: kernel, position, executed, threads, FLOPs, bytes, element type."""


def site_counts(program: Program, sites: Sequence[Any]) -> tuple[SiteCount, ...]:
    """One record for each executed instruction of the text; ``sites`` are the numbers of all, one after the other."""
    counts: list[SiteCount] = []
    fields = set(SiteCount.model_fields)
    rows = cast(
        "Iterator[tuple[int, int, int, int, int, int, str]]", zip(*[iter(sites)] * _NUMBERS, strict=True)
    )  # fmt: skip
    for index, position, executed, threads, flops, moved, dtype in rows:
        kernel = program.kernel(index)
        if position >= len(kernel.code):  # the end that the machine adds
            continue
        instruction = kernel.code[position]
        counts.append(
            _restored(fields, {
                "kernel": kernel.name,
                "opcode": instruction.text,
                "executed": executed,
                "threads": threads,
                "flops": flops,
                "bytes": moved,
                "operand_dtype": dtype,
                "position": position,
                "frames": instruction.frames,
            })
        )  # fmt: skip
    return tuple(counts)


def _restored(fields: set[str], values: dict[str, Any]) -> SiteCount:
    """A record as unpickling restores it, not validated: the machine is ours, unrolled kernels have thousands of sites,
    and validation would take longer than many a kernel runs.
    """
    site = SiteCount.__new__(SiteCount)
    site.__setstate__({
        "__dict__": values,
        "__pydantic_fields_set__": fields,
        "__pydantic_extra__": None,
        "__pydantic_private__": None,
    })
    return site
