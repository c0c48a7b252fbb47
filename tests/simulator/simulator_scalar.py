"""Runs one scalar instruction over arrays: one thread an element, once in full warps and once with lanes masked off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from simulator_launch import Launch, load, run

Array = np.ndarray
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_REGISTER = {1: "b16", 2: "b16", 4: "b32", 8: "b64"}
_MEMORY = {1: "u8", 2: "b16", 4: "b32", 8: "b64"}
_UNTOUCHED = 0x5A


def evaluate(text: str, *inputs: Array, result: np.dtype | type, target: str = "sm_100a") -> Array:
    """The values that ``text`` leaves in register ``d``, given the arrays in ``a``, ``b``, ``c``, as dtype ``result``.

    ``text`` may use predicates ``p``, ``q`` and scratch registers ``h0``, ``r0..r3``, ``w0..w3``, ``big`` too.
    """
    arrays = [np.ascontiguousarray(array).view(_UNSIGNED[array.dtype.itemsize]) for array in inputs]
    count = len(arrays[0])
    size = np.dtype(result).itemsize
    program = load(_kernel(text, [array.dtype.itemsize for array in arrays], size, target), ["k"])
    named = {f"in_{index}": array for index, array in enumerate(arrays)}
    full, masked = np.zeros(count, _UNSIGNED[size]), np.zeros(count, _UNSIGNED[size])
    blocks, threads = (1, count) if count <= 1024 else (count // 256, 256)
    assert blocks * threads == count, "the number of elements must be a multiple of 256"
    launch = Launch("k", [*named, "full", "masked"], grid=(blocks, 1, 1), block=(threads, 1, 1))
    seen = run(program, launch, full=full, masked=masked, **named)
    assert seen.fault is None, seen.fault
    executed = np.arange(count) % threads % 3 != 0
    np.testing.assert_array_equal(masked[executed], full[executed])
    assert (masked[~executed].view(np.uint8) == _UNTOUCHED).all()
    return full.view(result)


def _kernel(text: str, sizes: Sequence[int], size: int, target: str) -> str:
    names = "abcdefg"[: len(sizes)].replace("d", "x")
    parameters = ", ".join(f".param .u64 p{index}" for index in range(len(sizes) + 2))
    loads = "\n".join(
        f".reg .{_REGISTER[width]} {name};\n{_pointer(index, width)}\nld.global.{_MEMORY[width]} {name}, [address];"
        for index, (name, width) in enumerate(zip(names, sizes, strict=True))
    )
    untouched = int.from_bytes(bytes([_UNTOUCHED] * size), "little")
    initial = f"mov.{_REGISTER[size]} d, {untouched};"
    store = f"st.global.{_MEMORY[size]} [address], d;"
    return f""".version 9.0
.target {target}
.address_size 64
.visible .entry k({parameters})
{{
.reg .pred p, q, skip; .reg .b16 h<4>; .reg .b32 r<4>, index, rest, block; .reg .b64 w<4>, address, offset;
.reg .b128 big; .reg .{_REGISTER[size]} d;
mov.u32 index, %tid.x; mov.u32 block, %ctaid.x; mov.u32 rest, %ntid.x; mad.lo.s32 index, block, rest, index;
{loads}
{initial}
{{ {text} }}
{_pointer(len(sizes), size)}
{store}
{initial}
mov.u32 rest, %tid.x; rem.u32 rest, rest, 3; setp.eq.u32 skip, rest, 0;
@skip bra SKIPPED;
{{ {text} }}
SKIPPED:
{_pointer(len(sizes) + 1, size)}
{store}
ret;
}}
"""


def _pointer(parameter: int, size: int) -> str:
    return (
        f"ld.param.u64 address, [p{parameter}]; mul.wide.u32 offset, index, {size}; add.s64 address, address, offset;"
    )
