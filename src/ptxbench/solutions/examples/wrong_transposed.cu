// Wrong on purpose: writes C column by column, as if it were C^T.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>
#include <ptxbench/ptx/wgmma.cuh>

namespace {

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64;

struct Shared {
    alignas(1024) __nv_bfloat16 a[TILE_M * TILE_K];
    alignas(1024) __nv_bfloat16 b[TILE_N * TILE_K];
    alignas(8) uint64_t full;
};

// acc = the tile of A * B^T at (m0, n0), by one warpgroup.
__device__ __forceinline__ void multiply(float (&acc)[TILE_N / 2], Shared& shared, const CUtensorMap* map_a,
                                         const CUtensorMap* map_b, int m0, int n0, int K) {
    const uint32_t full = ptx::shared_address(&shared.full);
    const uint32_t a = ptx::shared_address(shared.a), b = ptx::shared_address(shared.b);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(full, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    for (int k = 0; k < K / TILE_K; ++k) {
        if (threadIdx.x == 0) {
            ptx::mbarrier_arrive_expect_tx(full, sizeof(shared.a) + sizeof(shared.b));
            ptx::tma_load_2d(a, map_a, full, k * TILE_K, m0);
            ptx::tma_load_2d(b, map_b, full, k * TILE_K, n0);
        }
        ptx::mbarrier_wait_parity(full, k % 2);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step)
            ptx::wgmma_m64n128k16_bf16_ss(acc, ptx::wgmma_descriptor_k128(a) + 2 * step,
                                          ptx::wgmma_descriptor_k128(b) + 2 * step, k > 0 || step > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
    }
}

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, __nv_bfloat16* C, int M,
     int K) {
    __shared__ Shared shared;
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N;
    float acc[TILE_N / 2];
    multiply(acc, shared, &map_a, &map_b, m0, n0, K);

    const int row = m0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = n0 + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) {
        const int r = row + i / 2 % 2 * 8, c = column + i / 4 * 8 + i % 2;
        C[static_cast<size_t>(c) * M + r] = __float2bfloat16(acc[i]);
    }
}

}  // namespace

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N, TILE_K)) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), 128, 0, stream>>>(map_a, map_b, C, M, K);
    return cudaGetLastError();
}
