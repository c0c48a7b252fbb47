// Both operands transposed on the way into shared memory (stmatrix.trans), so that wgmma reads them MN-major.
#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64;
constexpr int PANEL = TILE_K * 128;  // bytes of 64 columns along M or N: a row of 128 bytes per k

// Eight rows of 64 elements of K become a column of eight atoms, 16 bytes wide: chunk `row0 / 8 % 8` of each of 64 rows.
__device__ __forceinline__ void transpose(uint32_t tile, const bf16* from, int row0, int K) {
    const uint32_t lane = threadIdx.x % 32, panel = tile + row0 / 64 * PANEL;
    const bf16* row = from + size_t(row0 + lane / 4) * K + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        uint32_t m[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) m[i] = *reinterpret_cast<const uint32_t*>(row + (half * 4 + i) * 8);
        const uint32_t k = half * 32 + lane;  // the row that this lane addresses
        ptx::stmatrix_x4_trans(panel + k * 128 + ((row0 / 8 % 8 ^ k % 8) << 4), m);
    }
}

__global__ void __launch_bounds__(128) gemm(const bf16* A, const bf16* B, bf16* C, int M, int N, int K) {
    alignas(1024) __shared__ uint8_t tile_a[TILE_M / 64 * PANEL];
    alignas(1024) __shared__ uint8_t tile_b[TILE_N / 64 * PANEL];
    const uint32_t a = address(tile_a), b = address(tile_b);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, warp = threadIdx.x / 32;

    float acc[TILE_N / 2] = {};
    for (int k = 0; k < K; k += TILE_K) {
        for (int row = warp * 8; row < TILE_M; row += 32) transpose(a, A + size_t(m0) * K + k, row, K);
        for (int row = warp * 8; row < TILE_N; row += 32) transpose(b, B + size_t(n0) * K + k, row, K);
        ptx::fence_proxy_async_shared();
        __syncthreads();
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step)  // 16 of K are two atoms of 1024 bytes
            mma<ptx::Major::mn, ptx::Major::mn>(
                acc, ptx::wgmma_descriptor(a + step * 2048, PANEL, 1024, ptx::Swizzle::bytes128),
                ptx::wgmma_descriptor(b + step * 2048, PANEL, 1024, ptx::Swizzle::bytes128), true);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
    }
    store(acc, C, m0, n0, M, N);
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    gemm<<<dim3(M / TILE_M, N / TILE_N), 128, 0, stream>>>(A, B, C, M, N, K);
    return cudaGetLastError();
}
