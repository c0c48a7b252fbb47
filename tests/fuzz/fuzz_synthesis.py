"""Programs out of the vocabulary: a few instruction forms in a row, on registers that hold plausible values."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from pathlib import Path

import numpy as np
from fuzz_case import Case, options

from ptxbench.core import (
    Address,
    Block,
    Buffer,
    KernelNode,
    LaunchPlan,
    PointerPatch,
    Schedule,
    Target,
    TensorMap,
    TensorMapPatch,
    UnsupportedError,
)
from ptxbench.simulator import load

sys.path.insert(0, str(Path(__file__).parent.parent / "oracles"))
from isa_forms import Form, Text, module, read_sections

Rng = np.random.Generator
EXTREMES = (
    0, 1, -1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 1023, 1024, 4096, 32767, 65535, 65536,
    2**24 - 1, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -128, -(2**31),
)  # fmt: skip
BUFFER = 65536
TILE = 32768
_PARAMETERS = (
    ".param .u64 p0, .param .u64 p1, .param .align 64 .b8 p2[128], .param .align 64 .b8 p3[128], .param .u32 p4"
)
_MAPS = 64
_PARAMETER_BYTES = _MAPS + 2 * 128 + 4
# Shared and tensor memory, an mbarrier and a bit of data that later instructions find in place.
_PROLOGUE = """.reg .u64 in, out, map; .reg .u32 sh; .reg .pred first;
ld.param.u64 in, [p0]; ld.param.u64 out, [p1]; mov.b64 map, p2; cvta.param.u64 map, map;
mov.u32 sh, tile;
setp.eq.u32 first, %tid.x, 0;
@first mbarrier.init.shared.b64 [tile], 1;
@first mbarrier.init.shared.b64 [tile+8], 32;
@first st.shared.u64 [tile+16], 1234567;
bar.sync 0;
"""
_ALLOCATION = """@first bra WAIT;
WAIT: bar.sync 0;
setp.lt.u32 first, %tid.x, 32;
@!first bra READY;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [tile+24], 512;
READY: bar.sync 0;
"""
# A wgmma descriptor without swizzle, one of tcgen05, an instruction descriptor, the smallest exact ones.
_DESCRIPTORS = (
    128 >> 4 << 16 | 256 >> 4 << 32, 1 << 16 | 64 << 32 | 1 << 46 | 2 << 61, 1 << 16 | 64 << 32 | 1 << 62,
    1 << 4 | 1 << 7 | 1 << 10 | 16 << 17 | 8 << 24, 2 << 4 | 8 << 17 | 8 << 24,
)  # fmt: skip


@functools.cache
def forms() -> tuple[Form, ...]:
    """Every form of the vocabulary."""
    return tuple(form for section in read_sections() for form in section.forms())


@functools.cache
def _patterns() -> tuple[tuple[Form, ...], ...]:
    found: dict[tuple[str, str], list[Form]] = {}
    for form in forms():
        found.setdefault((form.section, form.pattern), []).append(form)
    return tuple(tuple(group) for group in found.values())


def synthesise(rng: Rng, machine: ctypes.CDLL | None = None) -> Case:
    """A kernel of 1 to 6 forms that the machine runs, sometimes in a loop, launched on a small grid."""
    target = Target.SM_90A if rng.random() < 0.5 else Target.SM_100A
    body = [_PROLOGUE]
    if target is Target.SM_100A and rng.random() < 0.7:
        body.append(_ALLOCATION)
    looped = rng.random() < 0.2
    if looped:
        body.append("LOOP:")
    for _ in range(int(rng.integers(1, 7))):
        body.append(_instruction(rng, _drawn(rng, target, machine)))
    if looped:
        body.append("bra LOOP;")
    text = (
        f".version 9.0\n.target {target}\n.address_size 64\n"
        f".shared .align 1024 .b8 tile[{TILE}];\n.visible .entry k({_PARAMETERS}) .maxntid 256\n{{\n"
        + "\n".join(body) + "\nL: ret;\n}\n"
    )  # fmt: skip
    schedule = Schedule(
        copies=("eager", "late")[rng.integers(2)], products=("eager", "late")[rng.integers(2)],
        reverse=bool(rng.integers(2)), seed=int(rng.integers(3)),
    )  # fmt: skip
    how = options(schedule=schedule, races=bool(rng.integers(2)), perturbation=float(rng.choice((1.0, 1.5))))
    return Case(ptx=text, plan=_plan(rng), options=how, registers=64, moves_registers=bool(rng.integers(2)))


@functools.cache
def executed(form: Form, target: Target, machine: ctypes.CDLL | None = None) -> bool:
    """Whether the simulator runs a form."""
    try:
        load(module([form], target), ["k0"], machine)
    except UnsupportedError:
        return False
    return True


def _drawn(rng: Rng, target: Target, machine: ctypes.CDLL | None) -> Form:
    """A form that the simulator runs; every pattern is as likely as another."""
    while True:
        group = _patterns()[rng.integers(len(_patterns()))]
        form = group[rng.integers(len(group))]
        if executed(form, target, machine):
            return form


def _instruction(rng: Rng, form: Form) -> str:
    text = Text(form)
    extra = ".reg .s32 index; .reg .f32 x; .reg .f32 y; " if form.section.startswith("Texture") else ""
    values = "".join(_value(rng, name, register) for name, register in text.registers)
    guard = ""
    if rng.random() < 0.3:
        extra += ".reg .pred some; setp.lt.u32 some, %tid.x, " + str(rng.choice((0, 1, 17, 32, 128))) + "; "
        guard = "@some "
    return f"{{ {extra}{text.declarations}\n{values}\n{guard}{text.instruction} }}"


def _value(rng: Rng, name: str, register: str) -> str:
    """A move of a plausible value into a register: an address, a thread's number, a descriptor, an extreme."""
    width = {"pred": 1, "f32": 32, "f64": 64}.get(register) or int("".join(c for c in register if c.isdigit()))
    pick = rng.random()
    if width == 1:
        return f"setp.ne.u32 {name}, {int(rng.integers(2))}, 0; "
    if width == 64 and register != "f64" and pick < 0.75:
        shared = f"cvta.shared.u64 {name}, {name}; add.u64 {name}, {name}, {16 * int(rng.integers(64))};"
        start = f"cvt.u64.u32 {name}, sh; shr.u64 {name}, {name}, 4; or.b64 {name}, {name}, {rng.choice(_DESCRIPTORS)};"
        return (
            f"mov.b64 {name}, out;", f"mov.b64 {name}, in;", f"mov.b64 {name}, map;",
            f"cvt.u64.u32 {name}, sh; {shared}", start,
        )[rng.integers(5)] + " "  # fmt: skip
    if width == 32 and register != "f32" and pick < 0.75:
        return (
            f"mov.b32 {name}, sh;", f"add.u32 {name}, sh, {16 * int(rng.integers(256))};", f"mov.b32 {name}, %tid.x;",
            f"mov.b32 {name}, {rng.choice(_DESCRIPTORS[3:])};", f"ld.shared.b32 {name}, [tile+24];",
            f"mov.b32 {name}, {int(rng.integers(40))};",
        )[rng.integers(6)] + " "  # fmt: skip
    if width == 128:
        return ""
    value = int(rng.choice(np.array(EXTREMES, dtype=object))) % 2**width
    # Registers of types that mov does not take keep their noise.
    return f"mov.b{width} {name}, {value}; " if width >= 16 and register[0] in "bus" else ""


def _plan(rng: Rng) -> LaunchPlan:
    data = bytearray(_PARAMETER_BYTES)
    struct.pack_into("<I", data, _PARAMETER_BYTES - 4, int(rng.integers(2**32)))
    patches = (
        PointerPatch(at=0, to=Address(buffer="input")), PointerPatch(at=8, to=Address(buffer="output")),
        TensorMapPatch(at=_MAPS, map=tensor_map(rng, "input")),
        TensorMapPatch(at=_MAPS + 128, map=tensor_map(rng, "output")),
    )  # fmt: skip
    cluster = int(rng.choice((1, 1, 1, 2, 4)))
    threads = int(rng.choice((1, 32, 33, 128, 256)))
    node = KernelNode(
        kernel="k", grid=(cluster * int(rng.integers(1, 3)), 1, 1), block=(threads, 1, 1),
        cluster=(cluster, 1, 1), dynamic_shared=int(rng.choice((0, 1024, 8192))), cooperative=bool(rng.random() < 0.1),
        parameters=Block(data=bytes(data), patches=patches),
    )  # fmt: skip
    buffers = (Buffer(name="input", role="input", bytes=BUFFER), Buffer(name="output", role="output", bytes=BUFFER))
    return LaunchPlan(digest="", artifact_digest="", sizes={}, buffers=buffers, nodes=(node,))


def tensor_map(rng: Rng, buffer: str) -> TensorMap:
    """A valid map of 1 to 5 dimensions; half of those that can be are im2col maps."""
    rank = int(rng.integers(1, 6))
    dtype, size = (("bfloat16", 2), ("float32", 4), ("uint8", 1), ("int32", 4), ("float64", 8))[rng.integers(5)]
    inner = 64 // size * int(rng.choice((1, 1, 2)))
    dims = (inner, *(int(n) for n in rng.integers(1, 9, rank - 1)))
    strides: list[int] = []
    for extent in dims[:-1]:
        strides.append((strides[-1] if strides else size) * extent)
    strides = [(stride + 15) // 16 * 16 for stride in strides]
    box = (inner, *(int(rng.integers(1, 9)) for _ in dims[1:]))
    images = rank > 2 and rng.random() < 0.5
    mode = ("im2col", "im2col", "im2col_w", "im2col_w128")[rng.integers(4)] if images else "tiled"
    corners = 0 if mode == "tiled" else rank - 2 if mode == "im2col" else 1
    return TensorMap(
        mode=mode, dtype=dtype, base=Address(buffer=buffer), dims=dims, strides=tuple(strides),
        box=(inner, int(rng.integers(1, 65))) if images else box, element_strides=(1,) * rank, interleave="none",
        swizzle=("none", "32b", "64b", "128b")[rng.integers(4)], l2_promotion="none",
        oob_fill=("none", "nan_request_zero_fma")[rng.integers(2)],
        lower_corner=tuple(int(n) for n in rng.integers(-3, 1, corners)),
        upper_corner=tuple(int(n) for n in rng.integers(0, 3, corners)),
    )  # fmt: skip
