// A goes into tensor memory: every thread loads a row of it from global memory and puts it there with tcgen05.st, in two
// buffers by turns; B comes by TMA.
#include "parts/common.cuh"
#include "parts/blackwell.cuh"

constexpr int TILE_M = 128, TILE_N = 128, TILE_K = 64;
constexpr int A_COLUMNS = TILE_K / 2, COLUMNS = 256;  // the accumulator, then two buffers of A

struct Shared {
    alignas(1024) bf16 b[2][TILE_N * TILE_K];
    uint64_t full[2], empty[2];
    uint32_t tmem;
};

__global__ void __launch_bounds__(128)
gemm(const bf16* A, const __grid_constant__ CUtensorMap map_b, bf16* C, int N, int K) {
    __shared__ Shared shared;
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) {
            init(shared.full[i], 1);
            init(shared.empty[i], 1);
        }
        ptx::fence_mbarrier_init();
    }
    if (warp == 0) ptx::tcgen05_alloc(address(&shared.tmem), COLUMNS);
    sync_tmem();
    const uint32_t tmem = shared.tmem, lanes = warp * 32 << 16;
    const uint4* row = reinterpret_cast<const uint4*>(A + size_t(m0 + threadIdx.x) * K);

    for (int k = 0; k < steps; ++k) {
        const int buffer = k % 2, phase = k / 2 & 1;
        wait_tmem(shared.empty[buffer], phase ^ 1);
        if (threadIdx.x == 0) {
            const uint32_t full = expect(shared.full[buffer], sizeof(shared.b[0]));
            ptx::tma_load_2d(address(shared.b[buffer]), &map_b, full, k * TILE_K, n0);
        }
        uint32_t a[A_COLUMNS];
#pragma unroll
        for (int i = 0; i < A_COLUMNS / 4; ++i) {
            const uint4 chunk = row[k * (TILE_K / 8) + i];
            a[i * 4] = chunk.x;
            a[i * 4 + 1] = chunk.y;
            a[i * 4 + 2] = chunk.z;
            a[i * 4 + 3] = chunk.w;
        }
        const uint32_t at = tmem + TILE_N + buffer * A_COLUMNS;
        ptx::tcgen05_st_32x32b_x32(at + lanes, a);
        ptx::tcgen05_wait_st();
        sync_tmem();
        if (threadIdx.x == 0) {
            wait_tmem(shared.full[buffer], phase);
            const uint64_t b = ptx::tcgen05_descriptor_k128(address(shared.b[buffer]));
            for (int step = 0; step < TILE_K / 16; ++step)
                ptx::tcgen05_mma_f16_ts(tmem, at + step * 8, b + 2 * step, ptx::tcgen05_instruction_bf16<TILE_M, TILE_N>(),
                                        k > 0 || step > 0);
            commit(shared.empty[buffer]);
        }
        __syncwarp();
    }
    for (int k = steps; k < steps + 2; ++k) wait_tmem(shared.empty[k % 2], k / 2 & 1 ^ 1);
    for (int column = 0; column < TILE_N; column += 32) {
        uint32_t v[32];
        ptx::tcgen05_ld_32x32b_x32(v, tmem + lanes + column);
        ptx::tcgen05_wait_ld();
        store_32(C + size_t(m0 + threadIdx.x) * N + n0 + column, v);
    }
    sync_tmem();
    if (warp == 0) ptx::tcgen05_dealloc(tmem, COLUMNS);
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_b;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), 128, 0, stream>>>(A, map_b, C, N, K);
    return cudaGetLastError();
}
