"""tcgen05 in PTX text: set-up and end of a kernel, rows to and from tensor memory, descriptors."""

from __future__ import annotations

from typing import Final

MODES: Final = {"none": 0, "128b": 2, "64b": 4, "32b": 6}
BASE = 2048
COLUMNS = 256

SETUP = f"""
.shared .align 8 .b64 bar;
.shared .align 4 .b32 slot;
mov.u32 %r1, %tid.x;
mov.u32 %r6, bar;
mov.u32 %r7, slot;
setp.ne.u32 %p2, %r1, 0;
@!%p2 mbarrier.init.shared.b64 [%r6], 1;
setp.ge.u32 %p3, %r1, 32;
@!%p3 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r7], {COLUMNS};
bar.sync 0;
ld.shared.u32 %r8, [%r7];
and.b32 %r9, %r1, 96;
shl.b32 %r9, %r9, 16;
add.u32 %r9, %r9, %r8;
"""
"""%r8 is the tensor address, %r9 the same at the first lane of the warp."""

FINISH = f"""
bar.sync 0;
@!%p3 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, {COLUMNS};
ret;"""


def copy_in(size: int) -> str:
    return f"""
shl.b32 %r3, %r1, 2;
COPY:
cvt.u64.u32 %rd23, %r3;
add.u64 %rd23, %rd1, %rd23;
ld.global.u32 %r4, [%rd23];
add.u32 %r5, %r3, {BASE};
st.shared.u32 [%r5], %r4;
add.u32 %r3, %r3, 512;
setp.lt.u32 %p1, %r3, {size};
@%p1 bra COPY;
fence.proxy.async;
"""


def row_address(pointer: str) -> str:
    """%rd21: row %tid.x of a [128, COLUMNS] array of 32-bit words."""
    return f"mul.wide.u32 %rd20, %r1, {4 * COLUMNS};\nadd.u64 %rd21, {pointer}, %rd20;\n"


def move_rows(count: int, pointer: str, *, store: bool) -> str:
    """Moves ``count`` columns between global rows and tensor memory, 8 at a time."""
    lines = [row_address(pointer)]
    registers = [f"%r{30 + i}" for i in range(8)]
    vector = "{" + ", ".join(registers) + "}"
    for column in range(0, count, 8):
        words = [f"[%rd21+{4 * (column + i)}]" for i in range(8)]
        if store:
            lines += [f"ld.global.u32 {r}, {word};" for r, word in zip(registers, words, strict=True)]
            lines.append(f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r9+{column}], {vector};")
            lines.append("tcgen05.wait::st.sync.aligned;")
        else:
            lines.append(f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {vector}, [%r9+{column}];")
            lines.append("tcgen05.wait::ld.sync.aligned;")
            lines += [f"st.global.u32 {word}, {r};" for r, word in zip(registers, words, strict=True)]
    return "\n".join(lines)


def descriptor(address: int, leading: int, stride: int, mode: str) -> int:
    bits = address >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | 1 << 46 | MODES[mode] << 61
    return bits - (1 << 64) if bits >> 63 else bits
