// Fences between threads and between proxies. PTX ISA: membar / fence.
//
// Ordinary loads and stores (ld, st, stmatrix) go through the generic proxy; TMA, wgmma and tcgen05.mma access shared
// memory through the async proxy. Accesses of different proxies are not ordered until a proxy fence stands between.
#pragma once

namespace ptx {

// Orders the caller's generic accesses to its own CTA's shared memory before later async-proxy accesses to it.
// Issue it in every thread that wrote, then synchronise, then let one thread start the copy or product.
__device__ __forceinline__ void fence_proxy_async_shared() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The same for global memory, for example before a TMA load of what this kernel wrote with st.global.
__device__ __forceinline__ void fence_proxy_async_global() {
    asm volatile("fence.proxy.async.global;" ::: "memory");
}

// Makes earlier mbarrier.init of the caller visible to the other CTAs of the cluster and to the async proxy;
// follow it with a CTA or cluster barrier.
__device__ __forceinline__ void fence_mbarrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Acquire-release fence among the threads of a cluster.
__device__ __forceinline__ void fence_acq_rel_cluster() {
    asm volatile("fence.acq_rel.cluster;" ::: "memory");
}

// Acquire-release fence among the threads of the device.
__device__ __forceinline__ void fence_acq_rel_gpu() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

}  // namespace ptx
