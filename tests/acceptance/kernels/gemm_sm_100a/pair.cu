// A pair of CTAs makes one 256xTILE_N tile with cta_group::2: each holds 128 rows of A and half of B, the first one's
// thread issues the products, and the bytes of both count on its barrier.
#include <ptxbench/ptx/cluster.cuh>

#include "parts/common.cuh"
#include "parts/blackwell.cuh"

constexpr int TILE_N = 256, TILE_K = 64, STAGES = 4;
constexpr int ROWS = 128, HALF = TILE_N / 2, COLUMNS = TILE_N;  // of one CTA
constexpr int BYTES = (ROWS + HALF) * TILE_K * 2;

struct Shared {
    alignas(1024) bf16 a[STAGES][ROWS * TILE_K];
    alignas(1024) bf16 b[STAGES][HALF * TILE_K];
    uint64_t full[STAGES], empty[STAGES], done;
    uint32_t tmem;
};

// Into this CTA's shared memory; the bytes are counted on a barrier of either CTA of the pair.
__device__ void load(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.cta_group::2 [%0], [%1, {%3, %4}], "
        "[%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, int M, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const uint32_t rank = ptx::cluster_rank();
    const int m0 = blockIdx.x * ROWS, n0 = blockIdx.y * TILE_N, steps = K / TILE_K, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (auto& full : shared.full) init(full, 1);
        for (auto& empty : shared.empty) init(empty, 1);
        init(shared.done, 1);
        ptx::fence_mbarrier_init();
    }
    if (warp == 0) {
        ptx::tcgen05_alloc<2>(address(&shared.tmem), COLUMNS);
        ptx::tcgen05_relinquish_alloc_permit<2>();
    }
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    ptx::cluster_arrive();
    ptx::cluster_wait();
    ptx::tcgen05_fence_after_thread_sync();
    const uint32_t tmem = shared.tmem;

    Position<STAGES> at;
    if (threadIdx.x == 32) {
        for (int k = 0; k < steps; ++k, at.advance()) {
            wait(shared.empty[at.stage], at.phase ^ 1);
            if (rank == 0) expect(shared.full[at.stage], 2 * BYTES);
            const uint32_t full = ptx::map_to_rank(address(&shared.full[at.stage]), 0);
            load(address(shared.a[at.stage]), &map_a, full, k * TILE_K, m0);
            load(address(shared.b[at.stage]), &map_b, full, k * TILE_K, n0 + rank * HALF);
        }
    } else if (threadIdx.x == 64 && rank == 0) {
        for (int k = 0; k < steps; ++k, at.advance()) {
            wait_tmem(shared.full[at.stage], at.phase);
            const uint64_t a = ptx::tcgen05_descriptor_k128(address(shared.a[at.stage]));
            const uint64_t b = ptx::tcgen05_descriptor_k128(address(shared.b[at.stage]));
            for (int step = 0; step < TILE_K / 16; ++step)
                ptx::tcgen05_mma_f16_ss<2>(tmem, a + 2 * step, b + 2 * step,
                                           ptx::tcgen05_instruction_bf16<2 * ROWS, TILE_N>(), k > 0 || step > 0);
            ptx::tcgen05_commit_pair(address(&shared.empty[at.stage]), 3);
        }
        ptx::tcgen05_commit_pair(address(&shared.done), 3);
    }
    __syncwarp();
    wait_tmem(shared.done, 0);
    for (int column = 0; column < TILE_N && n0 + column < N; column += 32) {
        uint32_t v[32];
        ptx::tcgen05_ld_32x32b_x32(v, tmem + (warp * 32 << 16) + column);
        ptx::tcgen05_wait_ld();
        if (m0 < M) store_32(C + size_t(m0 + threadIdx.x) * N + n0 + column, v);
    }
    ptx::tcgen05_fence_before_thread_sync();
    ptx::cluster_arrive();
    ptx::cluster_wait();
    ptx::tcgen05_fence_after_thread_sync();
    if (warp == 0) ptx::tcgen05_dealloc<2>(tmem, COLUMNS);
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, ROWS)) return error;
    if (int error = encode(&map_b, B, N, K, HALF)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    const dim3 grid((M / ROWS + 1) / 2 * 2, (N + TILE_N - 1) / TILE_N);
    gemm<<<grid, 128, sizeof(Shared), stream>>>(map_a, map_b, C, M, N, K);
    return cudaGetLastError();
}
