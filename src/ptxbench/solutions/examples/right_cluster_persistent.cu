// Right: clusters of two CTAs stay on the device and walk over pairs of 64x128 tiles. Each CTA loads half of the common
// tile of B and multicasts it to both.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/cluster.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>
#include <ptxbench/ptx/wgmma.cuh>

namespace {

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64, STAGES = 4;

struct Shared {
    alignas(1024) __nv_bfloat16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) __nv_bfloat16 b[STAGES][TILE_N * TILE_K];
    alignas(8) uint64_t full[STAGES];
    uint64_t empty[STAGES];
};

// Step `i` of the ring, counted over all tiles.
__device__ void load(Shared& shared, const CUtensorMap* map_a, const CUtensorMap* map_b, int i, int k, int m0, int n0) {
    const int stage = i % STAGES, phase = i / STAGES % 2, first = ptx::cluster_rank() * (TILE_N / 2);
    const uint32_t full = ptx::shared_address(&shared.full[stage]);
    ptx::mbarrier_wait_parity_cluster(ptx::shared_address(&shared.empty[stage]), phase ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, (TILE_M + TILE_N) * TILE_K * sizeof(__nv_bfloat16));
    ptx::tma_load_2d(ptx::shared_address(shared.a[stage]), map_a, full, k, m0);
    ptx::tma_load_2d_multicast(ptx::shared_address(shared.b[stage] + first * TILE_K), map_b, full, k, n0 + first, 0b11);
}

__device__ __forceinline__ void multiply(float (&acc)[TILE_N / 2], Shared& shared, int i, bool accumulate) {
    const int stage = i % STAGES, phase = i / STAGES % 2, lane = threadIdx.x % 32;
    ptx::mbarrier_wait_parity(ptx::shared_address(&shared.full[stage]), phase);
    const uint64_t a = ptx::wgmma_descriptor_k128(ptx::shared_address(shared.a[stage]));
    const uint64_t b = ptx::wgmma_descriptor_k128(ptx::shared_address(shared.b[stage]));
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < TILE_K / 16; ++step)
        ptx::wgmma_m64n128k16_bf16_ss(acc, a + 2 * step, b + 2 * step, accumulate || step > 0);
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
    if (lane < 2) ptx::mbarrier_arrive_cluster(ptx::map_to_rank(ptx::shared_address(&shared.empty[stage]), lane));
}

__global__ void __launch_bounds__(160)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, __nv_bfloat16* C, int M,
     int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            ptx::mbarrier_init(ptx::shared_address(&shared.full[stage]), 1);
            ptx::mbarrier_init(ptx::shared_address(&shared.empty[stage]), 8);  // four warps of each CTA
        }
        ptx::fence_mbarrier_init();
    }
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();

    const int rows = M / TILE_M, tiles = rows * (N / TILE_N), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int i = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {  // neighbours in a cluster share the column
        const int m0 = tile % rows * TILE_M, n0 = tile / rows * TILE_N;
        if (warp == 4) {
            for (int k = 0; k < K; k += TILE_K, ++i)
                if (lane == 0) load(shared, &map_a, &map_b, i, k, m0, n0);
            continue;
        }
        float acc[TILE_N / 2];
        for (int k = 0; k < K; k += TILE_K, ++i) multiply(acc, shared, i, k > 0);
        const int row = m0 + warp * 16 + lane / 4, column = n0 + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < TILE_N / 8; ++j) {
            __nv_bfloat16* upper = C + static_cast<size_t>(row) * N + column + j * 8;
            *reinterpret_cast<__nv_bfloat162*>(upper) = __floats2bfloat162_rn(acc[4 * j], acc[4 * j + 1]);
            *reinterpret_cast<__nv_bfloat162*>(upper + static_cast<size_t>(8) * N) =
                __floats2bfloat162_rn(acc[4 * j + 2], acc[4 * j + 3]);
        }
    }
    __syncwarp();
    ptx::cluster_arrive();  // no CTA may end while the other still signals to it
    ptx::cluster_wait();
}

}  // namespace

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N / 2, TILE_K)) return error;
    if (int error = cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared))) return error;
    int processors;
    if (int error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0)) return error;
    const int tiles = M / TILE_M * (N / TILE_N), resident = 2 * processors;  // two CTAs per SM

    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {2, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(tiles < resident ? tiles : resident);
    config.blockDim = dim3(160);
    config.dynamicSmemBytes = sizeof(Shared);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, gemm, map_a, map_b, C, M, N, K);
}
