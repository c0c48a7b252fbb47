// A goes through registers: ldmatrix fetches its fragments from the swizzled tile, and wgmma takes them from there. Two
// warpgroups, 64 rows each, and a warp of its own for the loads.
#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 128, TILE_N = 128, TILE_K = 64, STAGES = 4;
constexpr int CONSUMERS = 256, THREADS = CONSUMERS + 32;

struct Shared {
    alignas(1024) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) bf16 b[STAGES][TILE_N * TILE_K];
    uint64_t full[STAGES], empty[STAGES];
};

__global__ void __launch_bounds__(THREADS)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, int M, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    if (threadIdx.x == 0) {
        for (auto& full : shared.full) init(full, 1);
        for (auto& empty : shared.empty) init(empty, CONSUMERS);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    Position<STAGES> at;
    if (threadIdx.x >= CONSUMERS) {
        if (threadIdx.x > CONSUMERS) return;
        for (int k = 0; k < steps; ++k, at.advance()) {
            wait(shared.empty[at.stage], at.phase ^ 1);
            const uint32_t full = expect(shared.full[at.stage], sizeof(shared.a[0]) + sizeof(shared.b[0]));
            ptx::tma_load_2d(address(shared.a[at.stage]), &map_a, full, k * TILE_K, m0);
            ptx::tma_load_2d(address(shared.b[at.stage]), &map_b, full, k * TILE_K, n0);
        }
        return;
    }

    const uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 16, half = threadIdx.x % 32 / 16;
    float acc[TILE_N / 2] = {};
    for (int k = 0; k < steps; ++k, at.advance()) {
        wait(shared.full[at.stage], at.phase);
        uint32_t a[TILE_K / 16][4];
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step)
            ptx::ldmatrix_x4(a[step], address(shared.a[at.stage]) + row * 128 + ((step * 2 + half) ^ row % 8) * 16);
        const uint64_t b = ptx::wgmma_descriptor_k128(address(shared.b[at.stage]));
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step) mma(acc, a[step], b + 2 * step, true);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        arrive(shared.empty[at.stage]);
    }
    store(acc, C, m0 + threadIdx.x / 128 * 64, n0, M, N);
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), THREADS, sizeof(Shared), stream>>>(map_a, map_b, C, M, N, K);
    return cudaGetLastError();
}
