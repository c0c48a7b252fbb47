// Asynchronous warpgroup matrix products. PTX ISA: wgmma.* (sm_90a only).
//
// D[64,N] (+)= A[64,16] * B[16,N] in bf16 with fp32 accumulation, by the 128 threads of a warpgroup together. B lies in
// shared memory, A in shared memory (`_ss`) or in registers (`_rs`). Shared operands are given by wgmma_descriptor().
//
// Order of use, per batch of products:
//   wgmma_fence();          // accumulators (and A registers) touched by ordinary code become visible to wgmma
//   wgmma_m64n...(...);     // any number; those on the same accumulators run in order
//   wgmma_commit_group();
//   wgmma_wait_group<0>();  // only now may accumulators be read, A registers changed, shared operands overwritten
//
// Accumulator layout: thread t = 32w + l of the warpgroup holds, for each 8 columns j,
//   d[4j+0], d[4j+1]: row 16w + l/4,     columns 8j + 2(l%4), +1
//   d[4j+2], d[4j+3]: row 16w + l/4 + 8, the same columns
// A registers: a[0] row l/4, columns 2(l%4), +1; a[1] row + 8; a[2], a[3] the same rows, columns + 8.
#pragma once
#include <cstdint>

namespace ptx {

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most `Pending` committed groups are unfinished.
template <int Pending>
__device__ __forceinline__ void wgmma_wait_group() {
    static_assert(Pending >= 0 && Pending <= 7, "0..7");
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Which way an operand in shared memory runs: along K (rows of A, rows of B^T) or along M or N.
enum class Major { k = 0, mn = 1 };

// clang-format off
#define PTX_REGS_0   "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define PTX_REGS_32  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define PTX_REGS_64  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define PTX_REGS_96  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define PTX_ACC8(i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define PTX_ACC32(i) PTX_ACC8(i), PTX_ACC8(i + 8), PTX_ACC8(i + 16), PTX_ACC8(i + 24)
#define PTX_ACC_64   PTX_ACC32(0)
#define PTX_ACC_128  PTX_ACC_64, PTX_ACC32(32)
#define PTX_ACC_192  PTX_ACC_128, PTX_ACC32(64)
#define PTX_ACC_256  PTX_ACC_192, PTX_ACC32(96)
// clang-format on

// Defines both forms for one N. REGS names the N/2 accumulator operands, P0..P6 the operands that follow them. `accumulate` false overwrites D; it becomes the predicate operand by a setp.
#define PTX_WGMMA(N, REGS, P0, P1, P2, P3, P4, P5, P6)                                                             \
    template <Major A = Major::k, Major B = Major::k>                                                              \
    __device__ __forceinline__ void wgmma_m64n##N##k16_bf16_ss(float (&d)[N / 2], uint64_t a, uint64_t b,          \
                                                               bool accumulate) {                                  \
        asm volatile(                                                                                              \
            "{\n"                                                                                                  \
            ".reg .pred p;\n"                                                                                      \
            "setp.ne.b32 p, " P2 ", 0;\n"                                                                          \
            "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGS "}, " P0 ", " P1 ", p, 1, 1, " P3    \
            ", " P4 ";\n"                                                                                          \
            "}"                                                                                                    \
            : PTX_ACC_##N                                                                                          \
            : "l"(a), "l"(b), "r"(static_cast<uint32_t>(accumulate)), "n"(static_cast<int>(A)),                    \
              "n"(static_cast<int>(B)));                                                                           \
    }                                                                                                              \
    template <Major B = Major::k>                                                                                  \
    __device__ __forceinline__ void wgmma_m64n##N##k16_bf16_rs(float (&d)[N / 2], const uint32_t (&a)[4],          \
                                                               uint64_t b, bool accumulate) {                      \
        asm volatile(                                                                                              \
            "{\n"                                                                                                  \
            ".reg .pred p;\n"                                                                                      \
            "setp.ne.b32 p, " P5 ", 0;\n"                                                                          \
            "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" REGS "}, {" P0 ", " P1 ", " P2 ", " P3    \
            "}, " P4 ", p, 1, 1, " P6 ";\n"                                                                        \
            "}"                                                                                                    \
            : PTX_ACC_##N                                                                                          \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<uint32_t>(accumulate)),          \
              "n"(static_cast<int>(B)));                                                                           \
    }

// clang-format off
PTX_WGMMA(64,  PTX_REGS_0,
          "%32", "%33", "%34", "%35", "%36", "%37", "%38")
PTX_WGMMA(128, PTX_REGS_0 "," PTX_REGS_32,
          "%64", "%65", "%66", "%67", "%68", "%69", "%70")
PTX_WGMMA(192, PTX_REGS_0 "," PTX_REGS_32 "," PTX_REGS_64,
          "%96", "%97", "%98", "%99", "%100", "%101", "%102")
PTX_WGMMA(256, PTX_REGS_0 "," PTX_REGS_32 "," PTX_REGS_64 "," PTX_REGS_96,
          "%128", "%129", "%130", "%131", "%132", "%133", "%134")
// clang-format on

#undef PTX_WGMMA
#undef PTX_ACC_256
#undef PTX_ACC_192
#undef PTX_ACC_128
#undef PTX_ACC_64
#undef PTX_ACC32
#undef PTX_ACC8
#undef PTX_REGS_96
#undef PTX_REGS_64
#undef PTX_REGS_32
#undef PTX_REGS_0

}  // namespace ptx
