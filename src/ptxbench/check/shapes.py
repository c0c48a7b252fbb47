"""Shapes of a launcher's tensors: ``A[M,K] B[N,K] C[M,N]``; a type behind a colon replaces the pointer's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from ptxbench.check.expressions import evaluate
from ptxbench.core import UsageError

_SHAPE = re.compile(r"(?P<name>\w+)\s*(?::\s*(?P<type>\w+))?\s*\[(?P<dims>[^\[\]]*)\]")

ELEMENT_BYTES: dict[str, int] = {
    "bf16": 2, "f16": 2, "f32": 4, "f64": 8, "e4m3": 1, "e5m2": 1,
    "s8": 1, "u8": 1, "s16": 2, "u16": 2, "s32": 4, "u32": 4, "s64": 8, "u64": 8, "byte": 1, "b128": 16,
}  # fmt: skip
"""Bytes of an element by its short name; ``byte`` is what a ``void`` pointer points to."""

ELEMENT_NAMES: dict[str, str] = {
    "__nv_bfloat16": "bf16", "nv_bfloat16": "bf16", "__half": "f16", "half": "f16", "float": "f32", "double": "f64",
    "__nv_fp8_e4m3": "e4m3", "__nv_fp8_e5m2": "e5m2", "__nv_fp8_storage_t": "u8", "__nv_bfloat162": "u32",
    "__half2": "u32", "half2": "u32", "char": "s8", "signed char": "s8", "int8_t": "s8", "unsigned char": "u8",
    "uint8_t": "u8", "bool": "u8", "short": "s16", "int16_t": "s16", "unsigned short": "u16", "uint16_t": "u16",
    "int": "s32", "int32_t": "s32", "unsigned": "u32", "unsigned int": "u32", "uint32_t": "u32", "long": "s64",
    "long long": "s64", "int64_t": "s64", "unsigned long": "u64", "unsigned long long": "u64", "uint64_t": "u64",
    "size_t": "u64", "void": "byte", "float2": "u64", "float4": "b128", "int2": "u64", "int4": "b128",
    "uint2": "u64", "uint4": "b128",
}  # fmt: skip
"""Short names of C types."""


@dataclass(frozen=True)
class Shape:
    """``dims`` are expressions over the sizes; ``element`` is a short name, empty where the declaration decides."""

    name: str
    dims: tuple[str, ...]
    element: str = ""

    def elements(self, sizes: Mapping[str, int]) -> int:
        """How many elements there are; `UsageError` if that is not a positive number."""
        count = prod(evaluate(dim, sizes) for dim in self.dims)
        if count < 1:
            raise UsageError(f"{self.name} has {count} elements at these sizes; give sizes for which it has some")
        return count


def parse_shapes(text: str) -> dict[str, Shape]:
    """Shapes by name; `UsageError` says what cannot be read."""
    shapes: dict[str, Shape] = {}
    for found in _SHAPE.finditer(text):
        dims = tuple(dim.strip() for dim in found["dims"].split(","))
        element = found["type"] or ""
        if element and element not in ELEMENT_BYTES:
            raise UsageError(f"there is no element type {element!r}; --shapes knows {', '.join(ELEMENT_BYTES)}")
        if not all(dims) or found["name"] in shapes:
            raise UsageError(f"--shapes takes each tensor once, with its dimensions; not {found[0]!r}")
        shapes[found["name"]] = Shape(found["name"], dims, element)
    rest = _SHAPE.sub("", text).strip(" \t\n,;")
    if rest:
        raise UsageError(f"--shapes takes NAME[DIM,...] NAME[DIM,...]; cannot read {rest!r}")
    return shapes
