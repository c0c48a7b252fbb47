// A ring of stages, one warpgroup, one thread that loads. Tile width, depth and swizzle vary.
#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_N = 128, STAGES = 4, SWIZZLE = 128;
constexpr int TILE_M = 64, TILE_K = SWIZZLE / 2;
constexpr auto MODE = SWIZZLE == 128  ? ptx::Swizzle::bytes128
                      : SWIZZLE == 64 ? ptx::Swizzle::bytes64
                                      : ptx::Swizzle::bytes32;

struct Shared {
    alignas(1024) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) bf16 b[STAGES][TILE_N * TILE_K];
    uint64_t full[STAGES];
};

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, int M, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    const auto load = [&](int k) {
        const int stage = k % STAGES;
        const uint32_t full = expect(shared.full[stage], (TILE_M + TILE_N) * SWIZZLE);
        ptx::tma_load_2d(address(shared.a[stage]), &map_a, full, k * TILE_K, m0);
        ptx::tma_load_2d(address(shared.b[stage]), &map_b, full, k * TILE_K, n0);
    };
    if (threadIdx.x == 0) {
        for (auto& full : shared.full) init(full, 1);
        ptx::fence_mbarrier_init();
        for (int k = 0; k < STAGES - 1 && k < steps; ++k) load(k);
    }
    __syncthreads();

    float acc[TILE_N / 2];
    Position<STAGES> at;
    for (int k = 0; k < steps; ++k, at.advance()) {
        wait(shared.full[at.stage], at.phase);
        ptx::wgmma_fence();
        const uint64_t a = ptx::wgmma_descriptor(address(shared.a[at.stage]), 16, 8 * SWIZZLE, MODE);
        const uint64_t b = ptx::wgmma_descriptor(address(shared.b[at.stage]), 16, 8 * SWIZZLE, MODE);
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step) mma(acc, a + 2 * step, b + 2 * step, k > 0 || step > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>();  // the products of the step before are complete in this warpgroup
        __syncthreads();
        if (threadIdx.x == 0 && k + STAGES - 1 < steps) load(k + STAGES - 1);  // into the stage of the step before
    }
    ptx::wgmma_wait_group<0>();
    store(acc, C, m0, n0, M, N);
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M, SWIZZLE)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N, SWIZZLE)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<dim3(M / TILE_M, (N + TILE_N - 1) / TILE_N), 128, sizeof(Shared), stream>>>(map_a, map_b, C, M, N, K);
    return cudaGetLastError();
}
