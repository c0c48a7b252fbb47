// A first kernel packs A and B into the workspace, tile by tile in the order in which wgmma wants them; the product then
// fetches whole tiles by plain bulk copies, without tensor maps.
#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64, STAGES = 4;

struct Shared {
    alignas(128) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(128) bf16 b[STAGES][TILE_N * TILE_K];
    uint64_t full[STAGES];
};

// Tiles of ROWS x TILE_K, k-tiles of a row of tiles next to each other; inside, [TILE_K / 8][ROWS] chunks of 16 bytes.
template <int Rows>
__global__ void pack_tiles(const bf16* from, bf16* to, int K) {
    const int tile = blockIdx.y * gridDim.x + blockIdx.x, row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    const uint4* source = reinterpret_cast<const uint4*>(from + (size_t(blockIdx.y) * Rows + row) * K + blockIdx.x * TILE_K);
    reinterpret_cast<uint4*>(to)[size_t(tile) * Rows * 8 + chunk * Rows + row] = source[chunk];
}

__device__ uint64_t describe(const bf16* tile, int rows, int step) {
    return ptx::wgmma_descriptor(address(tile) + step * 2 * rows * 16, rows * 16, 128, ptx::Swizzle::none);
}

__global__ void __launch_bounds__(128) gemm(const bf16* packed_a, const bf16* packed_b, bf16* C, int M, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int steps = K / TILE_K;
    packed_a += size_t(blockIdx.x) * TILE_M * K;
    packed_b += size_t(blockIdx.y) * TILE_N * K;
    const auto load = [&](int k) {
        const int stage = k % STAGES;
        const uint32_t full = expect(shared.full[stage], sizeof(shared.a[0]) + sizeof(shared.b[0]));
        ptx::bulk_load(address(shared.a[stage]), packed_a + size_t(k) * TILE_M * TILE_K, sizeof(shared.a[0]), full);
        ptx::bulk_load(address(shared.b[stage]), packed_b + size_t(k) * TILE_N * TILE_K, sizeof(shared.b[0]), full);
    };
    if (threadIdx.x == 0) {
        for (auto& full : shared.full) init(full, 1);
        ptx::fence_mbarrier_init();
        for (int k = 0; k < STAGES && k < steps; ++k) load(k);
    }
    __syncthreads();

    float acc[TILE_N / 2];
    for (int k = 0; k < steps; ++k) {
        wait(shared.full[k % STAGES], k / STAGES & 1);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step)
            mma(acc, describe(shared.a[k % STAGES], TILE_M, step), describe(shared.b[k % STAGES], TILE_N, step),
                k > 0 || step > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
        if (threadIdx.x == 0 && k + STAGES < steps) load(k + STAGES);
    }
    store(acc, C, blockIdx.x * TILE_M, blockIdx.y * TILE_N, M, N);
}

extern "C" size_t workspace_bytes(int M, int N, int K) { return size_t(M + N) * K * sizeof(bf16); }

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    bf16* packed_a = static_cast<bf16*>(workspace);
    bf16* packed_b = packed_a + size_t(M) * K;
    pack_tiles<TILE_M><<<dim3(K / TILE_K, M / TILE_M), TILE_M * 8, 0, stream>>>(A, packed_a, K);
    pack_tiles<TILE_N><<<dim3(K / TILE_K, N / TILE_N), TILE_N * 8, 0, stream>>>(B, packed_b, K);
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), 128, sizeof(Shared), stream>>>(packed_a, packed_b, C, M, N, K);
    return cudaGetLastError();
}
