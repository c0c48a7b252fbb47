"""mma.sync on doubles, small integers and bits, wgmma on bits, and wmma, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from simulator_launch import Launch, load, run
from simulator_text import kernel

from ptxbench.core import Observation, RunOptions, Schedule, UnsupportedError

Array = np.ndarray
_LANES = 32


def run_registers(instruction: str, count: int, bits: int, inputs: list[Array], target: str = "sm_90a"
                  ) -> tuple[Array, Observation]:  # fmt: skip
    """Runs ``instruction`` in a warp. %a0, %a1, ... hold the rows of the inputs [registers, 32], %d0, ... come back."""
    rows = np.concatenate(inputs)
    loads = "\n".join(f"ld.global.b{bits} %a{row}, [%rd21+{row * _LANES * bits // 8}];" for row in range(len(rows)))
    stores = "\n".join(f"st.global.b{bits} [%rd22+{row * _LANES * bits // 8}], %d{row};" for row in range(count))
    body = f"""
.reg .b{bits} %a<{len(rows)}>; .reg .b{bits} %d<{count}>;
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd20, %r1, {bits // 8};
add.u64 %rd21, %rd1, %rd20;
add.u64 %rd22, %rd2, %rd20;
{loads}
{instruction}
{stores}
ret;"""
    out = np.zeros((count, _LANES), f"uint{bits}")
    text = kernel(body, pointers=2, target=target)
    held = np.ascontiguousarray(rows).view(f"uint{bits}")
    seen = run(load(text, ["k"]), Launch("k", ["in_rows", "out"]), in_rows=held, out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    return out, seen


def vectors(*counts: int) -> str:
    """``{%d0, ...}, {%a0, ...}, ...``: the destination, then sources that follow each other."""
    texts, first = ["{" + ", ".join(f"%d{i}" for i in range(counts[0])) + "}"], 0
    for count in counts[1:]:
        texts.append("{" + ", ".join(f"%a{first + i}" for i in range(count)) + "}")
        first += count
    return ", ".join(texts)


def left_fragment(words: Array) -> Array:
    """[registers, 32] of A, given as [rows, words of a register along K] (PTX ISA, fragments of mma)."""
    rows, steps = words.shape
    found = []
    for q in range(rows * steps // _LANES):
        row, step = (q % 2 * 8, q // 2 * 4) if rows == 16 else (0, q * 4)
        found.append([words[lane // 4 + row, lane % 4 + step] for lane in range(_LANES)])
    return np.array(found)


def right_fragment(words: Array) -> Array:
    """[registers, 32] of B, given as [columns, words along K]."""
    return np.array([
        [words[lane // 4, lane % 4 + 4 * q] for lane in range(_LANES)] for q in range(words.shape[1] // 4)
    ])  # fmt: skip


def sum_fragment(matrix: Array) -> Array:
    """[registers, 32] of C or D, given as [rows, 8]."""
    return np.array([
        [matrix[lane // 4 + q // 2 * 8, lane % 4 * 2 + q % 2] for lane in range(_LANES)]
        for q in range(len(matrix) // 4)
    ])  # fmt: skip


@pytest.mark.parametrize(("rows", "depth"), [(8, 4), (16, 4), (16, 8), (16, 16)])
def test_doubles(rows: int, depth: int) -> None:
    random = np.random.default_rng(depth)
    a, b, c = (random.standard_normal(shape) for shape in ((rows, depth), (8, depth), (rows, 8)))
    counts = (rows // 4, rows * depth // 32, depth // 4, rows // 4)
    out, seen = run_registers(
        f"mma.sync.aligned.m{rows}n8k{depth}.row.col.f64.f64.f64.f64 {vectors(*counts)};", counts[0], 64,
        [left_fragment(a), right_fragment(b), sum_fragment(c)],
    )  # fmt: skip
    expected = c.copy()
    for k in range(depth):  # one rounding a step in float128, which holds the products exactly enough
        expected = (np.multiply.outer(a[:, k].astype(np.longdouble), b[:, k]) + expected).astype(np.float64)
    np.testing.assert_allclose(out.view(np.float64), sum_fragment(expected), rtol=2**-51, atol=2**-51)
    (site,) = [site for site in seen.counts if site.flops]
    assert (site.flops, site.operand_dtype) == (2 * rows * 8 * depth, "f64")


def packed(values: Array, bits: int) -> Array:
    """Elements along the last axis packed into words, first lowest."""
    per = 32 // bits
    masked = (values.astype(np.int64) & ((1 << bits) - 1)).reshape(*values.shape[:-1], -1, per)
    return (masked << (np.arange(per) * bits)).sum(-1).astype(np.uint32)


def elements(kind: str, shape: tuple[int, int], seed: int) -> Array:
    bits = int(kind[1:])
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if kind[0] == "s" else (0, 1 << bits)
    return np.random.default_rng(seed).integers(low, high, shape)


_SHAPES = [
    ("s8", 8, 16), ("s4", 8, 32), ("s4", 16, 32), ("s4", 16, 64), ("b1", 8, 128), ("b1", 16, 128), ("b1", 16, 256),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "rows", "depth"), _SHAPES)
@pytest.mark.parametrize("signs", ["ss", "su", "us", "uu"])
def test_integers(kind: str, rows: int, depth: int, signs: str) -> None:
    bits = int(kind[1:])
    a_kind, b_kind = (("b1", "b1") if bits == 1 else (f"{sign}{bits}" for sign in signs))
    a, b = elements(a_kind, (rows, depth), 1), elements(b_kind, (8, depth), 2)
    c = np.random.default_rng(3).integers(-(2**31), 2**31, (rows, 8))
    registers = depth * bits // 128
    counts = (rows // 4, registers * rows // 8, registers, rows // 4)
    operands = [left_fragment(packed(a, bits)), right_fragment(packed(b, bits)), sum_fragment(c).astype(np.uint32)]
    for operation in ("and.popc", "xor.popc") if bits == 1 else ("wrap", "satfinite"):
        exact = c + ((a[:, None, :] ^ b[None]).sum(-1) if operation == "xor.popc" else a @ b.T)
        middle = "" if bits == 1 or operation == "wrap" else ".satfinite"
        end = f".{operation}" if bits == 1 else ""
        out, _ = run_registers(
            f"mma.sync.aligned.m{rows}n8k{depth}.row.col{middle}.s32.{a_kind}.{b_kind}.s32{end} {vectors(*counts)};",
            counts[0], 32, operands,
        )  # fmt: skip
        expected = np.clip(exact, -(2**31), 2**31 - 1) if operation == "satfinite" else exact
        np.testing.assert_array_equal(out, sum_fragment(expected).astype(np.uint32))


@pytest.mark.parametrize(("text", "reason"), [
    ("mma.sync.aligned.m8n8k8.row.col.f64.f64.f64.f64 {%fd0, %fd1}, {%fd2, %fd3}, {%fd4, %fd5}, {%fd6, %fd7};",
     "does not exist"),
    ("mma.sync.aligned.m16n8k64.row.col.s32.s4.s8.s32 {%r1}, {%r2}, {%r3}, {%r4};", "do not go together"),
    ("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.or.popc {%r1}, {%r2}, {%r3}, {%r4};", "needs one of"),
])  # fmt: skip
def test_what_does_not_exist_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        load(kernel(text), ["k"])


@pytest.mark.parametrize("in_registers", [False, True])
@pytest.mark.parametrize("schedule", [Schedule(), Schedule(products="late")], ids=["eager", "late"])
def test_bits_of_a_warpgroup(in_registers: bool, schedule: Schedule) -> None:
    columns = 24
    a, b = elements("u1", (64, 256), 1), elements("u1", (columns, 256), 2)
    words_a, words_b = packed(a, 1), packed(b, 1)
    # Without swizzle: 8 rows of 16 bytes, 128 bytes on the next 16 bytes of these rows, 256 bytes on the next 8 rows.
    image = np.concatenate([
        words.reshape(-1, 8, 2, 4).transpose(0, 2, 1, 3).reshape(-1) for words in (words_a, words_b)
    ]).astype(np.uint32)  # fmt: skip
    count = columns // 2
    destinations = "{" + ", ".join(f"%r{100 + i}" for i in range(count)) + "}"
    loads = "\n".join(f"ld.global.b32 %r{50 + q}, [%rd24+{4 * 128 * q}];" for q in range(4))
    stores = "\n".join(f"st.global.b32 [%rd23+{4 * 128 * i}], %r{100 + i};" for i in range(count))
    left = "{%r50, %r51, %r52, %r53}" if in_registers else "%rd10"
    body = f"""
.shared .align 1024 .b8 tile[{image.nbytes}];
mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r3, %r1;
COPY: setp.ge.u32 %p1, %r3, {image.size};
@%p1 bra COPIED;
mul.wide.u32 %rd20, %r3, 4; add.u64 %rd21, %rd1, %rd20; ld.global.b32 %r4, [%rd21];
mad.lo.u32 %r5, %r3, 4, %r2; st.shared.b32 [%r5], %r4; add.u32 %r3, %r3, 128; bra COPY;
COPIED: fence.proxy.async; bar.sync 0;
mul.wide.u32 %rd20, %r1, 4; add.u64 %rd23, %rd2, %rd20; add.u64 %rd24, %rd3, %rd20;
{loads}
{"".join(f"mov.b32 %r{100 + i}, {i}; " for i in range(count))}
cvt.u64.u32 %rd10, %r2; shr.u64 %rd10, %rd10, 4; or.b64 %rd10, %rd10, {(128 >> 4) << 16 | (256 >> 4) << 32};
add.u64 %rd11, %rd10, {words_a.nbytes // 16};
setp.eq.u32 %p2, 0, 0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n{columns}k256.s32.b1.b1.and.popc {destinations}, {left}, %rd11, %p2;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
{stores}
ret;"""
    fragments = np.concatenate([left_fragment(words_a[first : first + 16]) for first in range(0, 64, 16)], axis=1)
    out = np.zeros((count, 128), np.int32)
    seen = run(
        load(kernel(body, pointers=3), ["k"]), Launch("k", ["in_image", "out", "in_left"], block=(128, 1, 1)),
        RunOptions(schedule=schedule), in_image=image, out=out, in_left=fragments.astype(np.uint32),
    )  # fmt: skip
    assert (seen.fault, seen.hazards) == (None, ())
    product = a @ b.T
    for i in range(count):
        for thread in range(128):
            row = thread // 32 * 16 + thread % 32 // 4 + i // 2 % 2 * 8
            assert out[i, thread] == i + product[row, i // 4 * 8 + thread % 4 * 2 + i % 2]
    assert sum(site.flops for site in seen.counts) == 2 * 64 * columns * 256
    assert {site.operand_dtype for site in seen.counts if site.flops} == {"b1"}


@pytest.mark.parametrize("space", ["shared", "global", ""])
@pytest.mark.parametrize("layouts", ["row.row", "row.col", "col.row", "col.col"])
@pytest.mark.parametrize(("operand", "d", "c"), [
    ("f16", "f32", "f32"), ("f16", "f16", "f16"), ("f16", "f32", "f16"), ("bf16", "f32", "f32"),
])  # fmt: skip
def test_fragments_of_warps(operand: str, d: str, c: str, layouts: str, space: str) -> None:
    dtypes = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32)}
    random = np.random.default_rng(5)
    a, b, added = (random.standard_normal((16, 16)) for _ in range(3))
    a, b, added = a.astype(dtypes[operand]), b.astype(dtypes[operand]), added.astype(dtypes[c])
    a_layout, b_layout = layouts.split(".")
    pitch = 24
    held = [a.T if a_layout == "col" else a, b.T if b_layout == "col" else b, added]
    lines = [np.pad(matrix.astype(matrix.dtype), ((0, 0), (0, pitch - 16))) for matrix in held]
    image = np.concatenate([line.reshape(-1).view(np.uint8) for line in lines])
    places = np.cumsum([0, *(line.nbytes for line in lines)])
    registers = {"f16": 8, "bf16": 4}[operand]
    c_count, d_count = ({"f16": 4, "f32": 8}[kind] for kind in (c, d))
    names = {
        "a": "{" + ", ".join(f"%r{30 + i}" for i in range(registers)) + "}",
        "b": "{" + ", ".join(f"%r{40 + i}" for i in range(registers)) + "}",
        "c": "{" + ", ".join(f"%r{50 + i}" for i in range(c_count)) + "}",
        "d": "{" + ", ".join(f"%r{60 + i}" for i in range(d_count)) + "}",
    }
    base = {"shared": "%r2", "global": "%rd1", "": "%rd1"}[space]
    state = f".{space}" if space else ""
    types = f"{d}.bf16.bf16.{c}" if operand == "bf16" else f"{d}.{c}"
    body = f"""
.shared .align 32 .b8 tile[4096];
mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r3, %r1;
COPY: setp.ge.u32 %p1, %r3, {image.size // 4};
@%p1 bra COPIED;
mul.wide.u32 %rd20, %r3, 4; add.u64 %rd21, %rd1, %rd20; ld.global.b32 %r4, [%rd21];
mad.lo.u32 %r5, %r3, 4, %r2; st.shared.b32 [%r5], %r4; add.u32 %r3, %r3, 32; bra COPY;
COPIED: bar.sync 0; mov.u32 %r6, {pitch};
wmma.load.a.sync.aligned.{a_layout}.m16n16k16{state}.{operand} {names["a"]}, [{base}+{places[0]}], %r6;
wmma.load.b.sync.aligned.{b_layout}.m16n16k16{state}.{operand} {names["b"]}, [{base}+{places[1]}], {pitch};
wmma.load.c.sync.aligned.row.m16n16k16{state}.{c} {names["c"]}, [{base}+{places[2]}], %r6;
wmma.mma.sync.aligned.{layouts}.m16n16k16.{types} {names["d"]}, {names["a"]}, {names["b"]}, {names["c"]};
wmma.store.d.sync.aligned.col.m16n16k16.global.{d} [%rd2], {names["d"]};
ret;"""
    out = np.zeros((16, 16), dtypes[d])
    seen = run(load(kernel(body, pointers=2), ["k"]), Launch("k", ["in_image", "out"]), in_image=image, out=out)
    assert (seen.fault, seen.hazards) == (None, ())
    exact = added.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    bound = 2**-9 if d == "f16" else 2**-20
    np.testing.assert_allclose(out.T.astype(np.float64), exact, rtol=bound, atol=bound)
    (site,) = [site for site in seen.counts if site.flops]
    assert (site.flops, site.operand_dtype) == (2 * 16**3, operand)


def test_a_fragment_outside_of_memory_faults() -> None:
    registers = ", ".join(f"%r{i}" for i in range(8))
    text = kernel(f"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {{{registers}}}, [%rd1], 32;\nret;")
    seen = run(load(text, ["k"]), Launch("k", ["in_a"]), in_a=np.zeros(256, np.float16))
    assert seen.fault is not None
    assert "in_a" in seen.fault.message
