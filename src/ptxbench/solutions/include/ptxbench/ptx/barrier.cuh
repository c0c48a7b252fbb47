// Named CTA barriers. PTX ISA: bar.sync, bar.arrive (16 barriers per CTA; __syncthreads() is barrier 0).
#pragma once
#include <cstdint>

namespace ptx {

// Waits at barrier `id` until `threads` threads (a multiple of 32) have arrived, the caller's warp among them.
__device__ __forceinline__ void bar_sync(uint32_t id, uint32_t threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives at barrier `id` without waiting; others wait for it with bar_sync of the same `threads`.
__device__ __forceinline__ void bar_arrive(uint32_t id, uint32_t threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace ptx
