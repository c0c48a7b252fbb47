// Ordinary loads and stores only: global memory to registers, registers to core matrices without swizzle, while the
// products of the step before run.
#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 64, TILE_N = 64, TILE_K = 64;

template <int Rows>
struct Tile {  // [TILE_K / 8][Rows] rows of 16 bytes
    alignas(128) uint4 chunks[TILE_K / 8][Rows];
};

template <int Rows>
__device__ __forceinline__ void fetch(uint4 (&held)[Rows / 16], const bf16* from, int K) {
#pragma unroll
    for (int i = 0; i < Rows / 16; ++i)
        held[i] = *reinterpret_cast<const uint4*>(from + size_t(i * 16 + threadIdx.x / 8) * K + threadIdx.x % 8 * 8);
}

template <int Rows>
__device__ __forceinline__ void put(Tile<Rows>& tile, const uint4 (&held)[Rows / 16]) {
#pragma unroll
    for (int i = 0; i < Rows / 16; ++i) tile.chunks[threadIdx.x % 8][i * 16 + threadIdx.x / 8] = held[i];
}

template <int Rows>
__device__ uint64_t describe(const Tile<Rows>& tile, int step) {
    return ptx::wgmma_descriptor(address(tile.chunks[step * 2]), Rows * 16, 128, ptx::Swizzle::none);
}

__global__ void __launch_bounds__(128) gemm(const bf16* A, const bf16* B, bf16* C, int M, int N, int K) {
    __shared__ Tile<TILE_M> a[2];
    __shared__ Tile<TILE_N> b[2];
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    A += size_t(m0) * K;
    B += size_t(n0) * K;

    float acc[TILE_N / 2];
    uint4 held_a[TILE_M / 16], held_b[TILE_N / 16];
    fetch<TILE_M>(held_a, A, K);
    fetch<TILE_N>(held_b, B, K);
    for (int k = 0; k < steps; ++k) {
        put(a[k % 2], held_a);
        put(b[k % 2], held_b);
        __syncthreads();
        ptx::fence_proxy_async_shared();  // by the readers, behind the barrier: as good as by the writers before it
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step)
            mma(acc, describe(a[k % 2], step), describe(b[k % 2], step), k > 0 || step > 0);
        ptx::wgmma_commit_group();
        if (k + 1 < steps) {
            fetch<TILE_M>(held_a, A + (k + 1) * TILE_K, K);
            fetch<TILE_N>(held_b, B + (k + 1) * TILE_K, K);
        }
        ptx::wgmma_wait_group<0>();
    }
    store(acc, C, m0, n0, M, N);
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    gemm<<<dim3(M / TILE_M, N / TILE_N), 128, 0, stream>>>(A, B, C, M, N, K);
    return cudaGetLastError();
}
