// Fifth-generation tensor cores and tensor memory. PTX ISA: tcgen05.* (sm_100a).
//
// Tensor memory (TMEM) is 128 lanes x 512 columns of 32 bits per SM. A TMEM address is lane << 16 | column. With an M=128
// product of one CTA, row m of D lies in lane m and column n of D in TMEM column n (fp32).
//
// Order of use: one warp allocates; one thread issues products and commits them to an mbarrier; whoever waited on that
// mbarrier issues tcgen05_fence_after_thread_sync() and reads. Before a barrier that hands TMEM over to other threads
// stands tcgen05_fence_before_thread_sync(), after it tcgen05_fence_after_thread_sync().
#pragma once
#include <cstdint>

namespace ptx {

// Allocates `columns` (a power of two, 32..512) and writes the TMEM address to shared memory at `result`. One whole
// warp; blocks while columns are taken. `Group` is 1, or 2 for a CTA pair, and the same for all tcgen05 of a kernel.
template <int Group = 1>
__device__ __forceinline__ void tcgen05_alloc(uint32_t result, uint32_t columns) {
    static_assert(Group == 1 || Group == 2, "1 or 2 CTAs");
    if constexpr (Group == 1)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(result), "r"(columns)
                     : "memory");
    else
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(result), "r"(columns)
                     : "memory");
}

// Frees an allocation; one whole warp. Every allocation must be freed before the CTA ends.
template <int Group = 1>
__device__ __forceinline__ void tcgen05_dealloc(uint32_t tmem, uint32_t columns) {
    static_assert(Group == 1 || Group == 2, "1 or 2 CTAs");
    if constexpr (Group == 1)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(columns) : "memory");
    else
        asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(columns) : "memory");
}

// Declares that this CTA allocates no more, so that another CTA on the SM may.
template <int Group = 1>
__device__ __forceinline__ void tcgen05_relinquish_alloc_permit() {
    static_assert(Group == 1 || Group == 2, "1 or 2 CTAs");
    if constexpr (Group == 1)
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
    else
        asm volatile("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;" ::: "memory");
}

// D (+)= A * B, 16-bit operands, K = 16, A and B in shared memory. One thread issues it. `d` is a TMEM address, `a` and `b`
// come from tcgen05_descriptor(), `instruction` from tcgen05_instruction_bf16(). `accumulate` false overwrites D; it
// becomes the predicate operand by a setp.
template <int Group = 1>
__device__ __forceinline__ void tcgen05_mma_f16_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction,
                                                   bool accumulate) {
    static_assert(Group == 1 || Group == 2, "1 or 2 CTAs");
    if constexpr (Group == 1)
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %4, 0;\n"
            "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n"
            "}" ::"r"(d),
            "l"(a), "l"(b), "r"(instruction), "r"(static_cast<uint32_t>(accumulate))
            : "memory");
    else
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "setp.ne.b32 p, %4, 0;\n"
            "tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %2, %3, p;\n"
            "}" ::"r"(d),
            "l"(a), "l"(b), "r"(instruction), "r"(static_cast<uint32_t>(accumulate))
            : "memory");
}

// The same with A in TMEM at address `a`, two 16-bit elements to a column.
__device__ __forceinline__ void tcgen05_mma_f16_ts(uint32_t d, uint32_t a, uint64_t b, uint32_t instruction,
                                                   bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %4, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p;\n"
        "}" ::"r"(d),
        "r"(a), "l"(b), "r"(instruction), "r"(static_cast<uint32_t>(accumulate))
        : "memory");
}

// Arrives once at the mbarrier when all earlier tcgen05 work of this thread has finished; implies
// tcgen05_fence_before_thread_sync().
__device__ __forceinline__ void tcgen05_commit(uint32_t barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
                 : "memory");
}

// For a CTA pair: arrives at the barrier at the same offset in every CTA whose bit is set in `cta_mask`.
__device__ __forceinline__ void tcgen05_commit_pair(uint32_t barrier, uint16_t cta_mask) {
    asm volatile(
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;" ::"r"(
            barrier),
        "h"(cta_mask)
        : "memory");
}

// Orders earlier tcgen05 operations of this thread before a later synchronisation with other threads.
__device__ __forceinline__ void tcgen05_fence_before_thread_sync() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}

// Orders later tcgen05 operations of this thread after an earlier synchronisation with other threads.
__device__ __forceinline__ void tcgen05_fence_after_thread_sync() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// Waits for this thread's tcgen05.ld (values may be used) or tcgen05.st (values are in TMEM).
__device__ __forceinline__ void tcgen05_wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void tcgen05_wait_st() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

// clang-format off
#define PTX_REGS_0  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define PTX_REGS_16 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define PTX_OUT8(i) "=r"(v[i]), "=r"(v[i + 1]), "=r"(v[i + 2]), "=r"(v[i + 3]), "=r"(v[i + 4]), "=r"(v[i + 5]), "=r"(v[i + 6]), "=r"(v[i + 7])
#define PTX_IN8(i)  "r"(v[i]), "r"(v[i + 1]), "r"(v[i + 2]), "r"(v[i + 3]), "r"(v[i + 4]), "r"(v[i + 5]), "r"(v[i + 6]), "r"(v[i + 7])
// clang-format on

// Reads 32 lanes x 16 or 32 columns: lane l of the warp gets v[c] = TMEM[lane + l][column + c]. Warp w of a warpgroup
// reaches lanes 32w..32w+31 only, so `tmem` carries lane 32 * (warp % 4). Wait with tcgen05_wait_ld().
__device__ __forceinline__ void tcgen05_ld_32x32b_x16(uint32_t (&v)[16], uint32_t tmem) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x16.b32 {" PTX_REGS_0 "}, [%16];"
                 : PTX_OUT8(0), PTX_OUT8(8)
                 : "r"(tmem)
                 : "memory");
}

__device__ __forceinline__ void tcgen05_ld_32x32b_x32(uint32_t (&v)[32], uint32_t tmem) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x32.b32 {" PTX_REGS_0 "," PTX_REGS_16 "}, [%32];"
                 : PTX_OUT8(0), PTX_OUT8(8), PTX_OUT8(16), PTX_OUT8(24)
                 : "r"(tmem)
                 : "memory");
}

// Writes what the matching ld would read.
__device__ __forceinline__ void tcgen05_st_32x32b_x16(uint32_t tmem, const uint32_t (&v)[16]) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x16.b32 [%16], {" PTX_REGS_0 "};" ::PTX_IN8(0), PTX_IN8(8), "r"(tmem)
                 : "memory");
}

__device__ __forceinline__ void tcgen05_st_32x32b_x32(uint32_t tmem, const uint32_t (&v)[32]) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x32.b32 [%32], {" PTX_REGS_0 "," PTX_REGS_16 "};" ::PTX_IN8(0),
                 PTX_IN8(8), PTX_IN8(16), PTX_IN8(24), "r"(tmem)
                 : "memory");
}

#undef PTX_IN8
#undef PTX_OUT8
#undef PTX_REGS_16
#undef PTX_REGS_0

}  // namespace ptx
