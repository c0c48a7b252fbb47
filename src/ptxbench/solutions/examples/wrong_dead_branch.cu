// Wrong on purpose: C is made by mma.sync. The wgmma code is there, and stays in the machine code, but its branch is
// never taken.
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
    for (int k = 0; k != K / TILE_K; ++k) {
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

// Two adjacent elements of a row-major matrix with K columns.
__device__ uint32_t pair(const __nv_bfloat16* matrix, int row, int column, int K) {
    return *reinterpret_cast<const uint32_t*>(matrix + static_cast<size_t>(row) * K + column);
}

// The same tile by the mma.sync of older chips, in the same layout.
__device__ __forceinline__ void multiply_mma_sync(float (&d)[TILE_N / 2], const __nv_bfloat16* A,
                                                  const __nv_bfloat16* B, int m0, int n0, int K) {
    const int row = m0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = n0 + threadIdx.x % 32 / 4;
    for (int k = threadIdx.x % 4 * 2; k < K; k += 16) {
        const uint32_t a[4] = {pair(A, row, k, K), pair(A, row + 8, k, K), pair(A, row, k + 8, K),
                               pair(A, row + 8, k + 8, K)};
#pragma unroll
        for (int j = 0; j < TILE_N / 2; j += 4)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%0, %1, %2, %3};"
                : "+f"(d[j]), "+f"(d[j + 1]), "+f"(d[j + 2]), "+f"(d[j + 3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(pair(B, column + j * 2, k, K)),
                  "r"(pair(B, column + j * 2, k + 8, K)));
    }
}

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, const __nv_bfloat16* A,
     const __nv_bfloat16* B, __nv_bfloat16* C, int N, int K) {
    __shared__ Shared shared;
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N;
    float sum[TILE_N / 2] = {};
    multiply_mma_sync(sum, A, B, m0, n0, K);

    if (K < 0) {  // no size is negative
        float acc[TILE_N / 2];
        multiply(acc, shared, &map_a, &map_b, m0, n0, K);
#pragma unroll
        for (int i = 0; i < TILE_N / 2; ++i) sum[i] = acc[i];
    }

    const int row = m0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = n0 + threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < TILE_N / 8; ++j) {
        __nv_bfloat16* upper = C + static_cast<size_t>(row) * N + column + j * 8;
        *reinterpret_cast<__nv_bfloat162*>(upper) = __floats2bfloat162_rn(sum[4 * j], sum[4 * j + 1]);
        *reinterpret_cast<__nv_bfloat162*>(upper + static_cast<size_t>(8) * N) =
            __floats2bfloat162_rn(sum[4 * j + 2], sum[4 * j + 3]);
    }
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
