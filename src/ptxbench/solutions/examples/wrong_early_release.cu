// Wrong on purpose: the consumer keeps one group of products in flight, but releases the stage that this group still reads
// instead of the one before. On hardware the products usually finish before new data lands, so it looks right.
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
constexpr int STAGES = 3;

struct Shared {
    alignas(1024) __nv_bfloat16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) __nv_bfloat16 b[STAGES][TILE_N * TILE_K];
    alignas(8) uint64_t full[STAGES];
    uint64_t empty[STAGES];
};

__device__ void produce(Shared& shared, const CUtensorMap* map_a, const CUtensorMap* map_b, int m0, int n0, int K) {
    for (int k = 0; k < K / TILE_K; ++k) {
        const int stage = k % STAGES, phase = k / STAGES % 2;
        const uint32_t full = ptx::shared_address(&shared.full[stage]);
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.empty[stage]), phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(full, (TILE_M + TILE_N) * TILE_K * sizeof(__nv_bfloat16));
        ptx::tma_load_2d(ptx::shared_address(shared.a[stage]), map_a, full, k * TILE_K, m0);
        ptx::tma_load_2d(ptx::shared_address(shared.b[stage]), map_b, full, k * TILE_K, n0);
    }
}

__device__ __forceinline__ void consume(float (&acc)[TILE_N / 2], Shared& shared, int K) {
    for (int k = 0; k < K / TILE_K; ++k) {
        const int stage = k % STAGES, phase = k / STAGES % 2;
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.full[stage]), phase);
        const uint64_t a = ptx::wgmma_descriptor_k128(ptx::shared_address(shared.a[stage]));
        const uint64_t b = ptx::wgmma_descriptor_k128(ptx::shared_address(shared.b[stage]));
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step)
            ptx::wgmma_m64n128k16_bf16_ss(acc, a + 2 * step, b + 2 * step, k > 0 || step > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>();
        if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ptx::shared_address(&shared.empty[stage]));
    }
    ptx::wgmma_wait_group<0>();
}

__global__ void __launch_bounds__(160)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, __nv_bfloat16* C, int N,
     int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            ptx::mbarrier_init(ptx::shared_address(&shared.full[stage]), 1);
            ptx::mbarrier_init(ptx::shared_address(&shared.empty[stage]), 4);
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    if (threadIdx.x >= 128) {  // the fifth warp loads
        if (threadIdx.x == 128) produce(shared, &map_a, &map_b, m0, n0, K);
        return;
    }
    float acc[TILE_N / 2];
    consume(acc, shared, K);

    const int row = m0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = n0 + threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < TILE_N / 8; ++j) {
        __nv_bfloat16* upper = C + static_cast<size_t>(row) * N + column + j * 8;
        *reinterpret_cast<__nv_bfloat162*>(upper) = __floats2bfloat162_rn(acc[4 * j], acc[4 * j + 1]);
        *reinterpret_cast<__nv_bfloat162*>(upper + static_cast<size_t>(8) * N) =
            __floats2bfloat162_rn(acc[4 * j + 2], acc[4 * j + 3]);
    }
}

}  // namespace

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N, TILE_K)) return error;
    constexpr int bytes = sizeof(Shared);
    if (int error = cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), 160, bytes, stream>>>(map_a, map_b, C, N, K);
    return cudaGetLastError();
}
