// Right by luck: stmatrix writes the tile through the generic proxy and TMA reads it through the async proxy, but no
// fence.proxy.async stands between. Hardware usually gives the right result; the ISA does not promise it.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/matrix.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>
#include <ptxbench/ptx/wgmma.cuh>

namespace {

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64;

struct Shared {
    alignas(1024) __nv_bfloat16 a[TILE_M * TILE_K];
    alignas(1024) __nv_bfloat16 b[TILE_N * TILE_K];
    alignas(1024) __nv_bfloat16 c[TILE_N / 64][TILE_M * 64];
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
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
     const __grid_constant__ CUtensorMap map_c, int K) {
    __shared__ Shared shared;
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N;
    float acc[TILE_N / 2];
    multiply(acc, shared, &map_a, &map_b, m0, n0, K);

    // Two blocks of 64x64, swizzled as the tensor map says.
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 16, half = threadIdx.x % 32 / 16;
#pragma unroll
    for (int j = 0; j < TILE_N / 16; ++j) {
        uint32_t packed[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const __nv_bfloat162 pair = __floats2bfloat162_rn(acc[j * 8 + i * 2], acc[j * 8 + i * 2 + 1]);
            packed[i] = reinterpret_cast<const uint32_t&>(pair);
        }
        const int chunk = (j % 4 * 2 + half) ^ (row % 8);
        ptx::stmatrix_x4(ptx::shared_address(shared.c[j / 4]) + row * 128 + chunk * 16, packed);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int block = 0; block < TILE_N / 64; ++block)
            ptx::tma_store_2d(&map_c, ptx::shared_address(shared.c[block]), n0 + block * 64, m0);
        ptx::bulk_commit_group();
        ptx::bulk_wait_group<0>();
    }
}

}  // namespace

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b, map_c;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_c, C, M, N, TILE_M, 64)) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), 128, 0, stream>>>(map_a, map_b, map_c, K);
    return cudaGetLastError();
}
