"""Writes the bundled recording of replies; run it after the kernel that the replies are made from has changed.

The replies are written by hand. Their kernels are the bundled example `right_raw_asm.cu` with one mistake each, of the
kinds that models make.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ptxbench.core import ReplyRecord, Usage
from ptxbench.prompts import estimate_tokens
from ptxbench.runners.recordings import BUNDLED
from ptxbench.solutions import examples

TASK = "gemm_n7168_k5120"
ORIGIN = (
    "written by hand for PTXBench, from its bundled example right_raw_asm.cu with one mistake each; no model said "
    "this, and token counts are estimates from the length of the text"
)

RIGHT = next(row.source() for row in examples() if row.file == "right_raw_asm.cu").split("\n", 1)[1]

PRODUCT = """
__device__ uint32_t pair(const __nv_bfloat16* matrix, int row, int column, int K) {
    return *reinterpret_cast<const uint32_t*>(matrix + static_cast<size_t>(row) * K + column);
}

__global__ void __launch_bounds__(128)
gemm(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int N, int K) {
    const int m0 = blockIdx.x * TILE, n0 = blockIdx.y * TILE;
    const int row = m0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, from = n0 + threadIdx.x % 32 / 4;
    float acc[32] = {};
    for (int k = threadIdx.x % 4 * 2; k < K; k += 16) {
        const uint32_t a[4] = {pair(A, row, k, K), pair(A, row + 8, k, K), pair(A, row, k + 8, K),
                               pair(A, row + 8, k + 8, K)};
#pragma unroll
        for (int j = 0; j < 32; j += 4)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%0, %1, %2, %3};"
                : "+f"(acc[j]), "+f"(acc[j + 1]), "+f"(acc[j + 2]), "+f"(acc[j + 3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(pair(B, from + j * 2, k, K)),
                  "r"(pair(B, from + j * 2, k + 8, K)));
    }

    const int column = n0 + threadIdx.x % 4 * 2;
"""


def edited(*edits: tuple[str, str]) -> str:
    """The right kernel with pieces replaced, each of which must occur exactly once."""
    source = RIGHT
    for old, new in edits:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    return source


def without_wgmma() -> str:
    """A right kernel that does its products with the instruction of older chips."""
    head = RIGHT[: RIGHT.index("__device__ uint32_t address")]
    stores = RIGHT[RIGHT.index("#pragma unroll\n    for (int j = 0; j < TILE / 8") : RIGHT.index("int encode")]
    launch = RIGHT[RIGHT.index('}  // namespace') :]
    launch = launch[: launch.index("    CUtensorMap")] + (
        "    gemm<<<dim3(M / TILE, N / TILE), 128, 0, stream>>>(A, B, C, N, K);\n    return cudaGetLastError();\n}\n"
    )
    return head + PRODUCT.lstrip("\n") + stores + launch


def fenced(words: str, source: str) -> str:
    return f"{words}\n\n```cuda\n{source.strip()}\n```\n"


UNFINISHED = edited(('commit_group.sync.aligned;" ::: "memory");', 'commit_group.sync.aligned;" ::: "memory")'))
SIZE_T = edited(("int M, int N, int K,\n", "size_t M, size_t N, size_t K,\n"))
TOO_MUCH_SHARED = edited(("128, 0, stream", "128, 300 * 1024, stream"))
LAST_SLICE_LOST = edited(("k < K / TILE;", "k < K / TILE - 1;"))
STUCK = edited(("static_cast<uint32_t>(sizeof(a) + sizeof(b))", "static_cast<uint32_t>(2 * (sizeof(a) + sizeof(b)))"))
ONE_BLOCK_MORE = edited(("dim3(M / TILE, N / TILE)", "dim3(M / TILE + 1, N / TILE)"))
KERNEL_ONLY = RIGHT[: RIGHT.index("int encode")] + "}  // namespace\n"
DIFF = """--- kernel.cu
+++ kernel.cu
@@ -91,3 +91,3 @@
-    gemm<<<dim3(M / TILE + 1, N / TILE), 128, 0, stream>>>(map_a, map_b, C, N, K);
+    gemm<<<dim3(M / TILE, N / TILE), 128, 0, stream>>>(map_a, map_b, C, N, K);
"""

TRAJECTORIES: Sequence[Sequence[tuple[str, str, str]]] = (
    (
        ("", fenced("One warpgroup per 64x64 tile, TMA loads, wgmma on swizzled shared memory.", UNFINISHED), "stop"),
        ("", fenced("A semicolon was missing. I also widened the sizes so that nothing overflows.", SIZE_T), "stop"),
        ("", fenced("The sizes are `int` again, and there is shared memory for a ring.", TOO_MUCH_SHARED), "stop"),
        (
            "The limit of dynamic shared memory is what failed. Let me go back to static memory.",
            fenced("Static shared memory now.", RIGHT)[:2600],
            "max_tokens",
        ),
        ("", fenced("Shorter this time; the loop runs ahead by one slice.", LAST_SLICE_LOST), "stop"),
        ("", fenced("I am no longer sure about wgmma's layout, so here is mma.sync.", without_wgmma()), "stop"),
        ("", fenced("Back to wgmma, with the store row by row.", RIGHT), "stop"),
    ),
    (
        ("", "I'm sorry, but I can't write inline assembly for hardware that I cannot test on.", "stop"),
        ("", fenced("Here is a kernel with one barrier.", STUCK), "stop"),
        ("", fenced("The barrier expects what the copies deliver; the grid covers all rows.", ONE_BLOCK_MORE), "stop"),
        ("", f"One block too many. The change:\n\n```diff\n{DIFF}```\n", "stop"),
        ("", fenced("The kernel in full:", KERNEL_ONLY), "stop"),
        ("", "", "model_length"),
    ),
    (
        (
            "K-major operands, 128-byte swizzle, so the descriptor steps by 32 bytes per 16 elements.",
            RIGHT.strip() + "\n",
            "stop",
        ),
    ),
)


def replies() -> Iterator[ReplyRecord]:
    for epoch, trajectory in enumerate(TRAJECTORIES, 1):
        before = 0
        for call, (reasoning, text, stop) in enumerate(trajectory, 1):
            thought, said = estimate_tokens(reasoning), estimate_tokens(text)
            usage = Usage(input_tokens=before, output_tokens=thought + said, reasoning_tokens=thought)
            before += said
            yield ReplyRecord(
                task=TASK, epoch=epoch, call=call, text=text, reasoning=reasoning, stop=stop, usage=usage
            )


def recording() -> str:
    heading = json.dumps({"recording": 1, "origin": ORIGIN})
    return "".join(f"{line}\n" for line in (heading, *(reply.model_dump_json() for reply in replies())))


if __name__ == "__main__":
    BUNDLED.parent.mkdir(exist_ok=True)
    BUNDLED.write_text(recording())
