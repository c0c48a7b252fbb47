// C[M,N] = A[M,K] * B[N,K]^T in bf16 with fp32 accumulation, on Hopper's warpgroup matrix instruction.
//
// Step 1: the shortest correct kernel. One warpgroup computes one 64x128 tile of C. In every step along K one thread
// lets TMA fetch a 64x64 tile of A and a 128x64 tile of B into shared memory; when the bytes have arrived, four wgmma
// multiply them. Nothing overlaps yet: load, multiply, load, multiply.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>
#include <ptxbench/ptx/wgmma.cuh>

namespace {

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64;  // a row of TILE_K elements is 128 bytes: one swizzle atom

struct Shared {
    alignas(1024) __nv_bfloat16 a[TILE_M * TILE_K];
    alignas(1024) __nv_bfloat16 b[TILE_N * TILE_K];
    alignas(8) uint64_t full;
};

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, __nv_bfloat16* C, int N,
     int K) {
    __shared__ Shared shared;
    const uint32_t a = ptx::shared_address(shared.a), b = ptx::shared_address(shared.b);
    const uint32_t full = ptx::shared_address(&shared.full);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        ptx::mbarrier_init(full, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    float acc[TILE_N / 2];
    for (int k = 0; k < K / TILE_K; ++k) {
        if (threadIdx.x == 0) {
            ptx::mbarrier_arrive_expect_tx(full, (TILE_M + TILE_N) * TILE_K * sizeof(__nv_bfloat16));
            ptx::tma_load_2d(a, &map_a, full, k * TILE_K, m0);
            ptx::tma_load_2d(b, &map_b, full, k * TILE_K, n0);
        }
        ptx::mbarrier_wait_parity(full, k & 1);

        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step)  // 16 elements along K are 32 bytes: +2 in the descriptor
            ptx::wgmma_m64n128k16_bf16_ss(acc, ptx::wgmma_descriptor_k128(a) + 2 * step,
                                          ptx::wgmma_descriptor_k128(b) + 2 * step, k > 0 || step > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();  // every warp is done with the tiles before they are loaded again
    }

    // Each thread holds two adjacent columns of two rows for every 8 columns of the tile.
    const int row = m0 + warp * 16 + lane / 4, column = n0 + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < TILE_N / 8; ++j) {
        __nv_bfloat16* upper = C + static_cast<size_t>(row) * N + column + j * 8;
        __nv_bfloat16* lower = upper + static_cast<size_t>(8) * N;
        *reinterpret_cast<__nv_bfloat162*>(upper) = __floats2bfloat162_rn(acc[4 * j], acc[4 * j + 1]);
        *reinterpret_cast<__nv_bfloat162*>(lower) = __floats2bfloat162_rn(acc[4 * j + 2], acc[4 * j + 3]);
    }
}

}  // namespace

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N, TILE_K)) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), 128, 0, stream>>>(map_a, map_b, C, N, K);
    return cudaGetLastError();
}
