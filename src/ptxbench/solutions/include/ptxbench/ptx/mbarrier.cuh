// Shared-memory barriers with transaction counts. PTX ISA: mbarrier.* (sm_90).
//
// An mbarrier is 8 bytes, 8-byte aligned. Its current phase completes when all expected arrivals came *and* the
// transaction count (bytes announced by expect_tx minus bytes delivered by bulk copies) is zero; the next phase
// then begins with the same number of expected arrivals. Waiting by parity: phases are numbered from 0, and
// `parity` names the phase waited for by its lowest bit. A wait for parity 1 on a fresh barrier returns at once,
// since the phase before phase 0 counts as complete: producers start there.
#pragma once
#include <cstdint>

namespace ptx {

// Sets up a barrier for `arrivals` arrivals per phase. One thread; then fence_mbarrier_init() and a barrier.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Ends a barrier's life, so that its memory can be used for something else.
__device__ __forceinline__ void mbarrier_inval(uint32_t barrier) {
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// One arrival (release, CTA scope).
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival at a barrier of any CTA of the cluster; `barrier` comes from map_to_rank(). Release at CTA scope only: it
// tells the other CTA that reads are done (a stage may be overwritten), but publishes no ordinary store to it.
__device__ __forceinline__ void mbarrier_arrive_remote(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// The same with release at cluster scope, for data written with ordinary stores. Costs a fence of the whole device's
// scope (MEMBAR.ALL.GPU), so it does not belong into a main loop.
__device__ __forceinline__ void mbarrier_arrive_cluster(uint32_t barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Announces `bytes` of coming bulk copies and arrives once. Issue it before the copies.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Announces `bytes` of coming bulk copies without arriving.
__device__ __forceinline__ void mbarrier_expect_tx(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.expect_tx.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Whether the phase of the given parity is complete; may suspend the thread for a while before answering (acquire).
__device__ __forceinline__ bool mbarrier_try_wait_parity(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done != 0;
}

// The same with acquire at cluster scope, to read what other CTAs of the cluster stored before they arrived.
__device__ __forceinline__ bool mbarrier_try_wait_parity_cluster(uint32_t barrier, uint32_t parity) {
    uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done != 0;
}

// Repeats try_wait until the phase of the given parity is complete.
__device__ __forceinline__ void mbarrier_wait_parity(uint32_t barrier, uint32_t parity) {
    while (!mbarrier_try_wait_parity(barrier, parity)) {
    }
}

// Repeats the cluster-scope try_wait until the phase of the given parity is complete.
__device__ __forceinline__ void mbarrier_wait_parity_cluster(uint32_t barrier, uint32_t parity) {
    while (!mbarrier_try_wait_parity_cluster(barrier, parity)) {
    }
}

}  // namespace ptx
