// Tiles without swizzle: three-dimensional tensor maps (8 columns, rows, columns / 8) deliver core matrices of 8 rows x 16
// bytes one below the other, and panels of 8 columns one after the other.
#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64, STAGES = 3;

struct Shared {
    alignas(128) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(128) bf16 b[STAGES][TILE_N * TILE_K];
    uint64_t full[STAGES];
};

__device__ uint64_t describe(const bf16* tile, int rows, int step) {  // 16 of K are two panels
    return ptx::wgmma_descriptor(address(tile) + step * 2 * rows * 16, rows * 16, 128, ptx::Swizzle::none);
}

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, int M, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.y * TILE_M, n0 = blockIdx.x * TILE_N, steps = K / TILE_K;
    const auto load = [&](int k) {
        const uint32_t full = expect(shared.full[k % STAGES], sizeof(shared.a[0]) + sizeof(shared.b[0]));
        ptx::tma_load_3d(address(shared.a[k % STAGES]), &map_a, full, 0, m0, k * TILE_K / 8);
        ptx::tma_load_3d(address(shared.b[k % STAGES]), &map_b, full, 0, n0, k * TILE_K / 8);
    };
    if (threadIdx.x == 96) {  // any thread will do
        for (auto& full : shared.full) init(full, 1);
        ptx::fence_mbarrier_init();
        for (int k = 0; k < STAGES && k < steps; ++k) load(k);
    }
    __syncthreads();

    float acc[TILE_N / 2] = {};
    for (int k = 0; k < steps; ++k) {
        wait(shared.full[k % STAGES], k / STAGES & 1);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step)
            mma(acc, describe(shared.a[k % STAGES], TILE_M, step), describe(shared.b[k % STAGES], TILE_N, step), true);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
        if (threadIdx.x == 96 && k + STAGES < steps) load(k + STAGES);
    }
    store(acc, C, m0, n0, M, N);
}

static int encode_panels(CUtensorMap* map, const bf16* base, int rows, int columns, int box_rows) {
    const cuuint64_t dims[3] = {8, cuuint64_t(rows), cuuint64_t(columns / 8)}, strides[2] = {cuuint64_t(columns) * 2, 16};
    const cuuint32_t box[3] = {8, cuuint32_t(box_rows), TILE_K / 8};
    return ptx::encode_tiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, base, dims, strides, box,
                             CU_TENSOR_MAP_SWIZZLE_NONE);
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode_panels(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode_panels(&map_b, B, N, K, TILE_N)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<dim3(N / TILE_N, M / TILE_M), 128, sizeof(Shared), stream>>>(map_a, map_b, C, M, N, K);
    return cudaGetLastError();
}
