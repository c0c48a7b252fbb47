// What the Blackwell kernels share: tensor memory, and results on their way out.
#include <ptxbench/ptx/tcgen05.cuh>

// Waits before accesses to tensor memory.
__device__ __forceinline__ void wait_tmem(uint64_t& barrier, int parity) {
    wait(barrier, parity);
    ptx::tcgen05_fence_after_thread_sync();
}

__device__ __forceinline__ void commit(uint64_t& barrier) { ptx::tcgen05_commit(address(&barrier)); }

// A CTA barrier that hands tensor memory over.
__device__ __forceinline__ void sync_tmem() {
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    ptx::tcgen05_fence_after_thread_sync();
}

// 32 columns of a row, rounded: 64 bytes.
__device__ __forceinline__ void store_32(bf16* to, const uint32_t (&v)[32]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        uint32_t packed[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            packed[j] = pack(__uint_as_float(v[i * 8 + j * 2]), __uint_as_float(v[i * 8 + j * 2 + 1]));
        reinterpret_cast<uint4*>(to)[i] = make_uint4(packed[0], packed[1], packed[2], packed[3]);
    }
}
