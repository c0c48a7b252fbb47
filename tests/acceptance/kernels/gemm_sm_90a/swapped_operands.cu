// C^T = B * A^T: the rows of B take the place of wgmma's M. The tile is transposed back on its way out.
#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 128, TILE_N = 64, TILE_K = 64, STAGES = 3;  // of C

struct Shared {
    alignas(1024) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) bf16 b[STAGES][TILE_N * TILE_K];
    uint64_t full[STAGES];
};

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.y * TILE_M, n0 = blockIdx.x * TILE_N, steps = K / TILE_K;
    const auto load = [&](int k) {
        const uint32_t full = expect(shared.full[k % STAGES], (TILE_M + TILE_N) * TILE_K * 2);
        ptx::tma_load_2d(address(shared.a[k % STAGES]), &map_a, full, k * TILE_K, m0);
        ptx::tma_load_2d(address(shared.b[k % STAGES]), &map_b, full, k * TILE_K, n0);
    };
    if (threadIdx.x == 0) {
        for (auto& full : shared.full) init(full, 1);
        ptx::fence_mbarrier_init();
        for (int k = 0; k < STAGES && k < steps; ++k) load(k);
    }
    __syncthreads();
    float acc[TILE_M / 2];
    for (int k = 0; k < steps; ++k) {
        wait(shared.full[k % STAGES], k / STAGES & 1);
        ptx::wgmma_fence();
        mma_k64(acc, shared.b[k % STAGES], shared.a[k % STAGES], k > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
        if (threadIdx.x == 0 && k + STAGES < steps) load(k + STAGES);
    }

    // All tiles have been multiplied: the rows of C, 128 bytes each, may lie where they lay.
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, c = address(shared.a[0]);
#pragma unroll
    for (int j = 0; j < TILE_M / 16; ++j) {  // 16 rows of C and, in each warp, 16 columns
        uint32_t packed[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) packed[i] = pack(acc[j * 8 + i * 2], acc[j * 8 + i * 2 + 1]);
        const uint32_t row = j * 16 + lane / 16 * 8 + lane % 8, chunk = warp * 2 + lane / 8 % 2;
        ptx::stmatrix_x4_trans(c + row * 128 + ((chunk ^ row % 8) << 4), packed);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < TILE_M * 8; i += 128) {
        const uint32_t row = i / 8, chunk = i % 8;
        *reinterpret_cast<uint4*>(C + size_t(m0 + row) * N + n0 + chunk * 8) =
            reinterpret_cast<const uint4*>(shared.a[0])[row * 8 + (chunk ^ row % 8)];
    }
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<dim3(N / TILE_N, M / TILE_M), 128, sizeof(Shared), stream>>>(map_a, map_b, C, N, K);
    return cudaGetLastError();
}
