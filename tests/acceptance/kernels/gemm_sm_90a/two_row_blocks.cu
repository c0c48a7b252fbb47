// One warpgroup with two accumulators of 64 rows, and a producer warp; waits spin on mbarrier.test_wait, the loads carry
// an L2 policy and are announced by prefetches, and results leave by an unswizzled TMA store.
#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 128, TILE_N = 128, TILE_K = 64, STAGES = 3;

struct Shared {
    alignas(1024) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) bf16 b[STAGES][TILE_N * TILE_K];
    alignas(128) bf16 c[TILE_M * TILE_N];
    uint64_t full[STAGES], empty[STAGES];
};

__device__ void spin(uint64_t& barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.test_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(address(&barrier)),
        "r"(parity)
        : "memory");
}

__device__ void load_kept(uint32_t to, const CUtensorMap* map, uint32_t full, int x, int y, uint64_t policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1, {%3, %4}], [%2], %5;" ::"r"(to),
        "l"(map), "r"(full), "r"(x), "r"(y), "l"(policy)
        : "memory");
}

__global__ void __launch_bounds__(160)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
     const __grid_constant__ CUtensorMap map_c, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    if (threadIdx.x == 128) {
        ptx::prefetch_tensormap(&map_a);
        ptx::prefetch_tensormap(&map_b);
        for (auto& full : shared.full) init(full, 1);
        for (auto& empty : shared.empty) init(empty, 4);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    Position<STAGES> at;
    if (threadIdx.x == 128) {
        uint64_t policy;
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
        for (int k = 0; k < steps; ++k, at.advance()) {
            spin(shared.empty[at.stage], at.phase ^ 1);
            const uint32_t full = expect(shared.full[at.stage], (TILE_M + TILE_N) * TILE_K * 2);
            load_kept(address(shared.a[at.stage]), &map_a, full, k * TILE_K, m0, policy);
            load_kept(address(shared.b[at.stage]), &map_b, full, k * TILE_K, n0, policy);
            asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(&map_b),
                         "r"((k + STAGES) * TILE_K), "r"(n0));
        }
    }
    if (threadIdx.x >= 128) return;

    float upper[TILE_N / 2], lower[TILE_N / 2];
    for (int k = 0; k < steps; ++k, at.advance()) {
        spin(shared.full[at.stage], at.phase);
        ptx::wgmma_fence();
        mma_k64(upper, shared.a[at.stage], shared.b[at.stage], k > 0);
        mma_k64(lower, shared.a[at.stage] + 64 * TILE_K, shared.b[at.stage], k > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        if (threadIdx.x % 32 == 0) arrive(shared.empty[at.stage]);
    }
    uint32_t* words = reinterpret_cast<uint32_t*>(shared.c);
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i += 2) {
        words[(row_of(i) * TILE_N + column_of(i)) / 2] = pack(upper[i], upper[i + 1]);
        words[((64 + row_of(i)) * TILE_N + column_of(i)) / 2] = pack(lower[i], lower[i + 1]);
    }
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(1, 128);
    if (threadIdx.x == 0) {
        ptx::tma_store_2d(&map_c, address(shared.c), n0, m0);
        ptx::bulk_commit_group();
        ptx::bulk_wait_group<0>();
    }
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b, map_c;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    const cuuint64_t dims[2] = {cuuint64_t(N), cuuint64_t(M)}, strides[1] = {cuuint64_t(N) * 2};
    const cuuint32_t box[2] = {TILE_N, TILE_M};
    if (int error = ptx::encode_tiled(&map_c, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, C, dims, strides, box,
                                      CU_TENSOR_MAP_SWIZZLE_NONE))
        return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), 160, sizeof(Shared), stream>>>(map_a, map_b, map_c, K);
    return cudaGetLastError();
}
