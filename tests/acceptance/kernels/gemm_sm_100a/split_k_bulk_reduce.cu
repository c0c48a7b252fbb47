// Split-K: each part's fp32 tile is staged in shared memory, and bulk copies add its rows to a workspace that a memset
// cleared. A second kernel rounds.
#include "parts/common.cuh"
#include "parts/blackwell.cuh"

constexpr int TILE_M = 128, TILE_N = 128, TILE_K = 64, PARTS = 3;

struct Shared {
    alignas(1024) bf16 a[TILE_M * TILE_K];
    alignas(1024) bf16 b[TILE_N * TILE_K];
    alignas(128) float sums[TILE_M][TILE_N];
    uint64_t full, done;
    uint32_t tmem;
};

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* sums, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, warp = threadIdx.x / 32, steps = K / TILE_K;
    const int first = steps * blockIdx.z / PARTS, last = steps * (blockIdx.z + 1) / PARTS;
    if (threadIdx.x == 0) {
        init(shared.full, 1);
        init(shared.done, 1);
        ptx::fence_mbarrier_init();
    }
    if (warp == 0) ptx::tcgen05_alloc(address(&shared.tmem), TILE_N);
    sync_tmem();
    const uint32_t tmem = shared.tmem;
    if (threadIdx.x == 0) {  // one thread does it all, one step at a time
        for (int k = first; k < last; ++k) {
            const uint32_t full = expect(shared.full, sizeof(shared.a) + sizeof(shared.b));
            ptx::tma_load_2d(address(shared.a), &map_a, full, k * TILE_K, m0);
            ptx::tma_load_2d(address(shared.b), &map_b, full, k * TILE_K, n0);
            wait(shared.full, k - first & 1);
            const uint64_t a = ptx::tcgen05_descriptor_k128(address(shared.a));
            const uint64_t b = ptx::tcgen05_descriptor_k128(address(shared.b));
            for (int step = 0; step < TILE_K / 16; ++step)
                ptx::tcgen05_mma_f16_ss(tmem, a + 2 * step, b + 2 * step, ptx::tcgen05_instruction_bf16<TILE_M, TILE_N>(),
                                        k > first || step > 0);
            commit(shared.done);
            wait(shared.done, k - first & 1);
        }
    }
    sync_tmem();

    for (int column = 0; column < TILE_N; column += 32) {
        uint32_t v[32];
        ptx::tcgen05_ld_32x32b_x32(v, tmem + (warp * 32 << 16) + column);
        ptx::tcgen05_wait_ld();
#pragma unroll
        for (int i = 0; i < 32; ++i) shared.sums[threadIdx.x][column + i] = __uint_as_float(v[i]);
    }
    ptx::fence_proxy_async_shared();  // each thread adds the row that it wrote itself
    ptx::bulk_reduce_add_f32(sums + size_t(m0 + threadIdx.x) * N + n0, address(shared.sums[threadIdx.x]), TILE_N * 4);
    ptx::bulk_commit_group();
    ptx::bulk_wait_group<0>();
    sync_tmem();
    if (warp == 0) ptx::tcgen05_dealloc(tmem, TILE_N);
}

__global__ void finish(const float* sums, bf16* C) {
    const size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * 2;
    *reinterpret_cast<uint32_t*>(C + i) = pack(sums[i], sums[i + 1]);
}

extern "C" size_t workspace_bytes(int M, int N, int K) { return size_t(M) * N * sizeof(float); }

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    if (int error = cudaMemsetAsync(workspace, 0, workspace_bytes(M, N, K), stream)) return error;
    float* sums = static_cast<float*>(workspace);
    gemm<<<dim3(M / TILE_M, N / TILE_N, PARTS), 128, sizeof(Shared), stream>>>(map_a, map_b, sums, N, K);
    finish<<<size_t(M) * N / 512, 256, 0, stream>>>(sums, C);
    return cudaGetLastError();
}
