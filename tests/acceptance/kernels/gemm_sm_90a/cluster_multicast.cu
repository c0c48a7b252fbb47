// Clusters of CLUSTER_M x CLUSTER_N CTAs: each fetches its share of the tiles that its row and its column of the cluster
// have in common, and multicasts it. Every CTA tells all others when it is done with a stage. Results leave through
// stmatrix and whole rows of 16-byte stores. The cluster's shape is an attribute of the launch.
#include <ptxbench/ptx/cluster.cuh>

#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int CLUSTER_M = 2, CLUSTER_N = 1;
constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64, STAGES = 3, CTAS = CLUSTER_M * CLUSTER_N;
constexpr int SHARE_A = TILE_M / CLUSTER_N, SHARE_B = TILE_N / CLUSTER_M;

struct Shared {
    alignas(1024) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) bf16 b[STAGES][TILE_N * TILE_K];
    alignas(16) bf16 c[TILE_M][TILE_N + 8];
    uint64_t full[STAGES], empty[STAGES];
};

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, int M, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    const int rank = ptx::cluster_rank(), x = rank % CLUSTER_M, y = rank / CLUSTER_M;
    uint16_t same_row = 0, same_column = 0;
    for (int i = 0; i < CLUSTER_N; ++i) same_row |= 1 << (x + i * CLUSTER_M);
    for (int i = 0; i < CLUSTER_M; ++i) same_column |= 1 << (i + y * CLUSTER_M);
    if (threadIdx.x == 0) {
        for (auto& full : shared.full) init(full, 1);
        for (auto& empty : shared.empty) init(empty, CTAS);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    ptx::cluster_arrive();
    ptx::cluster_wait();

    const auto load = [&](int k) {
        const int stage = k % STAGES;
        wait(shared.empty[stage], k / STAGES & 1 ^ 1);
        const uint32_t full = expect(shared.full[stage], (TILE_M + TILE_N) * TILE_K * 2);
        ptx::tma_load_2d_multicast(address(shared.a[stage] + y * SHARE_A * TILE_K), &map_a, full, k * TILE_K,
                                   m0 + y * SHARE_A, same_row);
        ptx::tma_load_2d_multicast(address(shared.b[stage] + x * SHARE_B * TILE_K), &map_b, full, k * TILE_K,
                                   n0 + x * SHARE_B, same_column);
    };
    if (threadIdx.x == 0)
        for (int k = 0; k < STAGES - 1 && k < steps; ++k) load(k);

    float acc[TILE_N / 2];
    for (int k = 0; k < steps; ++k) {
        if (threadIdx.x == 0 && k + STAGES - 1 < steps) load(k + STAGES - 1);
        __syncwarp();
        wait(shared.full[k % STAGES], k / STAGES & 1);
        ptx::wgmma_fence();
        mma_k64(acc, shared.a[k % STAGES], shared.b[k % STAGES], k > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
        if (threadIdx.x < CTAS)
            ptx::mbarrier_arrive_remote(ptx::map_to_rank(address(&shared.empty[k % STAGES]), threadIdx.x));
    }

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < TILE_N / 16; ++j) {
        uint32_t packed[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) packed[i] = pack(acc[j * 8 + i * 2], acc[j * 8 + i * 2 + 1]);
        ptx::stmatrix_x4(address(&shared.c[warp * 16 + lane % 16][j * 16 + lane / 16 * 8]), packed);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < TILE_M * TILE_N / 8; i += 128) {
        const int row = i / (TILE_N / 8), column = i % (TILE_N / 8) * 8;
        if (m0 + row < M && n0 + column < N)
            *reinterpret_cast<uint4*>(C + size_t(m0 + row) * N + n0 + column) =
                *reinterpret_cast<const uint4*>(&shared.c[row][column]);
    }
    ptx::cluster_arrive();
    ptx::cluster_wait();
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, SHARE_A)) return error;
    if (int error = encode(&map_b, B, N, K, SHARE_B)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    cudaLaunchAttribute cluster;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {CLUSTER_M, CLUSTER_N, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((M / TILE_M + CLUSTER_M - 1) / CLUSTER_M * CLUSTER_M,
                          (N / TILE_N + CLUSTER_N - 1) / CLUSTER_N * CLUSTER_N);
    config.blockDim = dim3(128);
    config.dynamicSmemBytes = sizeof(Shared);
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, gemm, map_a, map_b, C, M, N, K);
}
