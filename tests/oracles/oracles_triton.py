"""Compiles Triton kernels for both targets without a GPU, and describes their arguments to the adapter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import triton
from oracles_run import Array, Kernel, Launch, Parameter
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ptxbench.core import Address, Target, TensorMap

_CAPABILITY = {Target.SM_90A: 90, Target.SM_100A: 100}
# Names of an element type: Triton's, and the tensor map's.
_TYPES: dict[np.dtype, tuple[str, str]] = {
    np.dtype(np.float16): ("fp16", "float16"),
    np.dtype(ml_dtypes.bfloat16): ("bf16", "bfloat16"),
    np.dtype(np.float32): ("fp32", "float32"),
    np.dtype(ml_dtypes.float8_e4m3fn): ("fp8e4nv", "uint8"),
    np.dtype(ml_dtypes.float8_e5m2): ("fp8e5", "uint8"),
    np.dtype(np.int8): ("i8", "uint8"),
    np.dtype(np.uint8): ("u8", "uint8"),
    np.dtype(np.int32): ("i32", "int32"),
}
_SWIZZLES = ("none", "32b", "64b", "128b")


@dataclass(frozen=True)
class Descriptor:
    """A tensor descriptor of a contiguous buffer: the block that one copy moves, outermost dimension first."""

    buffer: str
    block: tuple[int, ...]


Argument = str | Descriptor | int | float


def launch(
    function: Any, arguments: Mapping[str, Argument], constants: Mapping[str, Any], grid: tuple[int, int, int],
    buffers: Mapping[str, Array], *, target: Target, warps: int = 4, stages: int = 3, ctas: int = 1,
) -> Launch:
    """Compiles ``function`` for ``target``.

    ``arguments`` are the run-time arguments by name: a buffer's name, a `Descriptor`, an integer or a float.
    """
    signature = {name: _type(arguments[name], buffers) if name in arguments else "constexpr"
                 for name in function.arg_names}  # fmt: skip
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(function.arg_names)
        if _is_aligned(arguments.get(name))
    }
    source = ASTSource(fn=function, signature=signature, constexprs=dict(constants), attrs=aligned)
    compiled = triton.compile(
        source, target=GPUTarget("cuda", _CAPABILITY[target], 32),
        options={"num_warps": warps, "num_stages": stages, "num_ctas": ctas},
    )  # fmt: skip
    kernel = kernel_of(compiled, target)
    parameters: list[Parameter] = []
    descriptors = iter(compiled.metadata.tensordesc_meta)
    for name in function.arg_names:
        if name in arguments:
            parameters += _parameters(arguments[name], buffers, descriptors)
    scratch = compiled.metadata.global_scratch_size * ctas * prod(grid)
    arrays = {**buffers, "scratch": np.zeros(scratch, np.uint8)} if scratch else buffers
    parameters += ["scratch" if scratch else 0, 0]
    return Launch(kernel, parameters, grid, arrays)


def kernel_of(compiled: Any, target: Target) -> Kernel:
    """The adapter's view of a compiled kernel; the text says how many threads it needs."""
    text, metadata = compiled.asm["ptx"], compiled.metadata
    threads = re.search(r"\.(?:reqntid|maxntid)\s+(\d+)", text)
    return Kernel(
        name=metadata.name, target=target, ptx=text, cubin=compiled.asm["cubin"],
        threads=int(threads[1]) if threads else 32 * metadata.num_warps, shared=metadata.shared,
        cluster=metadata.num_ctas,
    )  # fmt: skip


def _is_aligned(argument: Argument | None) -> bool:
    return isinstance(argument, str) or (isinstance(argument, int) and argument % 16 == 0)


def _type(argument: Argument, buffers: Mapping[str, Array]) -> str:
    match argument:
        case str():
            return "*" + _TYPES[buffers[argument].dtype][0]
        case Descriptor():
            return f"tensordesc<{_TYPES[buffers[argument.buffer].dtype][0]}{list(argument.block)}>"
        case float():
            return "fp32"
        case int():
            return "i32"


def _parameters(argument: Argument, buffers: Mapping[str, Array], metadata: Any) -> list[Parameter]:
    """A descriptor is passed as the map, its extents and its strides in elements."""
    if not isinstance(argument, Descriptor):
        return [argument]
    array = buffers[argument.buffer]
    details = next(metadata)
    size = array.dtype.itemsize
    strides = tuple(stride // size for stride in array.strides)
    rank = array.ndim
    tensor_map = TensorMap(
        dtype=_TYPES[array.dtype][1], base=Address(buffer=argument.buffer), dims=array.shape[::-1],
        strides=array.strides[::-1][1:], box=tuple(details["block_size"][::-1]), element_strides=(1,) * rank,
        interleave="none", swizzle=_SWIZZLES[details["swizzle"]], l2_promotion="l2_128b", oob_fill="none",
    )  # fmt: skip
    return [tensor_map, *array.shape, *strides]
