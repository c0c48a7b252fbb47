// Ping-pong: a persistent CTA whose two consumer warpgroups take turns at whole tiles, so that one stores while the other
// multiplies. Named barriers pass the tensor cores back and forth.
#include <ptxbench/ptx/setmaxnreg.cuh>

#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 64, TILE_N = 256, TILE_K = 64, STAGES = 5, CTAS = 2;

struct Shared {
    alignas(1024) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) bf16 b[STAGES][TILE_N * TILE_K];
    uint64_t full[STAGES], empty[STAGES];
};

__global__ void __launch_bounds__(384, 1)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, int M, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int steps = K / TILE_K, rows = M / TILE_M, tiles = rows * ((N + TILE_N - 1) / TILE_N);
    if (threadIdx.x == 0) {
        for (auto& full : shared.full) init(full, 1);
        for (auto& empty : shared.empty) init(empty, 128);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    if (threadIdx.x < 128) {
        ptx::setmaxnreg_dec<24>();
        if (threadIdx.x > 0) return;
        Position<STAGES> at;
        for (int tile = blockIdx.x; tile < tiles; tile += CTAS)
            for (int k = 0; k < steps; ++k, at.advance()) {
                wait(shared.empty[at.stage], at.phase ^ 1);
                const uint32_t full = expect(shared.full[at.stage], (TILE_M + TILE_N) * TILE_K * 2);
                ptx::tma_load_2d(address(shared.a[at.stage]), &map_a, full, k * TILE_K, tile % rows * TILE_M);
                ptx::tma_load_2d(address(shared.b[at.stage]), &map_b, full, k * TILE_K, tile / rows * TILE_N);
            }
        return;
    }
    ptx::setmaxnreg_inc<240>();
    const int self = threadIdx.x / 128 - 1;
    if (self == 1) ptx::bar_arrive(1, 256);  // the first turn is the first warpgroup's
    for (int own = self; blockIdx.x + own * CTAS < tiles; own += 2) {
        const int tile = blockIdx.x + own * CTAS;
        float acc[TILE_N / 2];
        ptx::bar_sync(1 + self, 256);
        for (int k = 0; k < steps; ++k) {
            const int step = own * steps + k, stage = step % STAGES;
            wait(shared.full[stage], step / STAGES & 1);
            ptx::wgmma_fence();
            mma_k64(acc, shared.a[stage], shared.b[stage], k > 0);
            ptx::wgmma_commit_group();
            ptx::wgmma_wait_group<0>();
            arrive(shared.empty[stage]);
        }
        if (tile + CTAS < tiles) ptx::bar_arrive(2 - self, 256);
        store(acc, C, tile % rows * TILE_M, tile / rows * TILE_N, M, N);
    }
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<CTAS, 384, sizeof(Shared), stream>>>(map_a, map_b, C, M, N, K);
    return cudaGetLastError();
}
