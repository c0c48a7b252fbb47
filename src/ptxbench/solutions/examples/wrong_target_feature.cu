// Wrong on purpose: submitted for sm_90a, but tcgen05 and tensor memory exist on sm_100a only; ptxas refuses them.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tcgen05.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>

namespace {

constexpr int TILE_M = 128, TILE_N = 64, TILE_K = 64;

struct Shared {
    alignas(1024) __nv_bfloat16 a[TILE_M * TILE_K];
    alignas(1024) __nv_bfloat16 b[TILE_N * TILE_K];
    alignas(8) uint64_t loaded, multiplied;
    uint32_t tmem;
};

// One thread: accumulator = the tile of A * B^T at (m0, n0).
__device__ void multiply(Shared& shared, uint32_t accumulator, const CUtensorMap* map_a, const CUtensorMap* map_b,
                         int m0, int n0, int K) {
    const uint32_t a = ptx::shared_address(shared.a), b = ptx::shared_address(shared.b);
    const uint32_t loaded = ptx::shared_address(&shared.loaded), multiplied = ptx::shared_address(&shared.multiplied);
    constexpr uint32_t instruction = ptx::tcgen05_instruction_bf16<TILE_M, TILE_N>();
    for (int k = 0; k < K / TILE_K; ++k) {
        if (k > 0) ptx::mbarrier_wait_parity(multiplied, (k - 1) % 2);  // the tiles are free again
        ptx::mbarrier_arrive_expect_tx(loaded, sizeof(shared.a) + sizeof(shared.b));
        ptx::tma_load_2d(a, map_a, loaded, k * TILE_K, m0);
        ptx::tma_load_2d(b, map_b, loaded, k * TILE_K, n0);
        ptx::mbarrier_wait_parity(loaded, k % 2);
        ptx::tcgen05_fence_after_thread_sync();
        for (int step = 0; step < TILE_K / 16; ++step)
            ptx::tcgen05_mma_f16_ss(accumulator, ptx::tcgen05_descriptor_k128(a) + 2 * step,
                                    ptx::tcgen05_descriptor_k128(b) + 2 * step, instruction, k > 0 || step > 0);
        ptx::tcgen05_commit(multiplied);
    }
}

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, __nv_bfloat16* C, int N,
     int K) {
    __shared__ Shared shared;
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(ptx::shared_address(&shared.loaded), 1);
        ptx::mbarrier_init(ptx::shared_address(&shared.multiplied), 1);
        ptx::fence_mbarrier_init();
    }
    __syncwarp();
    if (warp == 0) {
        ptx::tcgen05_alloc(ptx::shared_address(&shared.tmem), TILE_N);
        ptx::tcgen05_relinquish_alloc_permit();
    }
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    ptx::tcgen05_fence_after_thread_sync();
    const uint32_t tmem = shared.tmem;

    if (threadIdx.x == 0) {
        multiply(shared, tmem, &map_a, &map_b, m0, n0, K);
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.multiplied), (K / TILE_K - 1) % 2);
    }
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    ptx::tcgen05_fence_after_thread_sync();

    __nv_bfloat16* row = C + static_cast<size_t>(m0 + threadIdx.x) * N + n0;
    for (int column = 0; column < TILE_N; column += 16) {
        uint32_t values[16];
        ptx::tcgen05_ld_32x32b_x16(values, tmem + (warp * 32 << 16) + column);
        ptx::tcgen05_wait_ld();
#pragma unroll
        for (int i = 0; i < 16; i += 2)
            *reinterpret_cast<__nv_bfloat162*>(row + column + i) =
                __floats2bfloat162_rn(__uint_as_float(values[i]), __uint_as_float(values[i + 1]));
    }
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    ptx::tcgen05_fence_after_thread_sync();
    if (warp == 0) ptx::tcgen05_dealloc(tmem, TILE_N);
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
