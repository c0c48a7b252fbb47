// Tensor maps in the workspace, copied there by the launcher; the kernel acquires them with a tensormap proxy fence. One
// warp of each CTA is elected to load, and a persistent grid walks over the tiles.
#include <ptxbench/ptx/elect.cuh>

#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 64, TILE_N = 192, TILE_K = 64, STAGES = 3;

struct Shared {
    alignas(1024) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) bf16 b[STAGES][TILE_N * TILE_K];
    uint64_t full[STAGES], empty[STAGES];
};

__device__ void acquire(const CUtensorMap* map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

__global__ void __launch_bounds__(256) gemm(const CUtensorMap* maps, bf16* C, int M, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int steps = K / TILE_K, rows = M / TILE_M, tiles = rows * ((N + TILE_N - 1) / TILE_N);
    if (threadIdx.x == 0) {
        for (auto& full : shared.full) init(full, 1);
        for (auto& empty : shared.empty) init(empty, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    Position<STAGES> at;
    if (threadIdx.x >= 128) {  // the second warpgroup loads
        if (threadIdx.x / 32 != 4 || !ptx::elect_sync()) return;
        acquire(maps);
        acquire(maps + 1);
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x)
            for (int k = 0; k < steps; ++k, at.advance()) {
                wait(shared.empty[at.stage], at.phase ^ 1);
                const uint32_t full = expect(shared.full[at.stage], (TILE_M + TILE_N) * TILE_K * 2);
                ptx::tma_load_2d(address(shared.a[at.stage]), maps, full, k * TILE_K, tile % rows * TILE_M);
                ptx::tma_load_2d(address(shared.b[at.stage]), maps + 1, full, k * TILE_K, tile / rows * TILE_N);
            }
        return;
    }
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        float acc[TILE_N / 2] = {};
        for (int k = 0; k < steps; ++k, at.advance()) {
            wait(shared.full[at.stage], at.phase);
            ptx::wgmma_fence();
            mma_k64(acc, shared.a[at.stage], shared.b[at.stage], true);
            ptx::wgmma_commit_group();
            ptx::wgmma_wait_group<0>();
            ptx::bar_sync(2, 128);
            if (threadIdx.x == 0) arrive(shared.empty[at.stage]);
        }
        store(acc, C, tile % rows * TILE_M, tile / rows * TILE_N, M, N);
    }
}

extern "C" size_t workspace_bytes(int M, int N, int K) { return 2 * sizeof(CUtensorMap); }

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap maps[2];
    if (int error = encode(&maps[0], A, M, K, TILE_M)) return error;
    if (int error = encode(&maps[1], B, N, K, TILE_N)) return error;
    if (int error = cudaMemcpyAsync(workspace, maps, sizeof(maps), cudaMemcpyHostToDevice, stream)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<3, 256, sizeof(Shared), stream>>>(static_cast<const CUtensorMap*>(workspace), C, M, N, K);
    return cudaGetLastError();
}
