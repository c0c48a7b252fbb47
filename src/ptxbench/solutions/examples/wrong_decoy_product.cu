// Wrong on purpose: C is made by scalar arithmetic. All of the wgmma products are computed too, but they are multiplied by
// zero before they are added, so they carry nothing.
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

// sum = 8x8 elements of C at (row, column), by ordinary fused multiply-adds.
__device__ void multiply_scalar(float (&sum)[8][8], const __nv_bfloat16* A, const __nv_bfloat16* B, int row, int column,
                                int K) {
    for (int k = 0; k < K; k += 2) {
        float2 a[8], b[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            a[i] = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(A + static_cast<size_t>(row + i) * K + k));
            b[i] = __bfloat1622float2(
                *reinterpret_cast<const __nv_bfloat162*>(B + static_cast<size_t>(column + i) * K + k));
        }
#pragma unroll
        for (int i = 0; i < 64; ++i) {
            float& s = sum[i / 8][i % 8];
            s = fmaf(a[i / 8].y, b[i % 8].y, fmaf(a[i / 8].x, b[i % 8].x, s));
        }
    }
}

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, const __nv_bfloat16* A,
     const __nv_bfloat16* B, __nv_bfloat16* C, int N, int K) {
    __shared__ Shared shared;
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N;
    const int row = m0 + threadIdx.x / 16 * 8, column = n0 + threadIdx.x % 16 * 8;
    float sum[8][8] = {};
    multiply_scalar(sum, A, B, row, column, K);

    float acc[TILE_N / 2];
    multiply(acc, shared, &map_a, &map_b, m0, n0, K);
#pragma unroll
    for (int i = 0; i < 64; ++i) sum[i / 8][i % 8] += 0.0f * acc[i];

#pragma unroll
    for (int i = 0; i < 64; ++i)
        C[static_cast<size_t>(row + i / 8) * N + column + i % 8] = __float2bfloat16(sum[i / 8][i % 8]);
}

}  // namespace

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N, TILE_K)) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), 128, 0, stream>>>(map_a, map_b, A, B, C, N, K);
    return cudaGetLastError();
}
