// Split-K in a cluster of four CTAs along K: every thread pushes its sums with st.async to the CTA that owns the row,
// where an mbarrier counts the bytes.
#include <ptxbench/ptx/cluster.cuh>

#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/slice.cuh"

constexpr int PARTS = 4, ROWS = TILE_M / PARTS;  // of one CTA, as many as a warp has

struct Shared {
    Slice slice;
    alignas(16) float inbox[PARTS][ROWS][TILE_N];
    uint64_t arrived;
};

__global__ void __cluster_dims__(1, 1, PARTS) __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, part = ptx::cluster_rank(), steps = K / TILE_K;
    if (threadIdx.x == 0) {
        init(shared.arrived, 1);
        ptx::fence_mbarrier_init();
        expect(shared.arrived, sizeof(shared.inbox));
    }
    ptx::cluster_arrive();
    ptx::cluster_wait();
    float acc[TILE_N / 2];
    multiply(acc, shared.slice, &map_a, &map_b, m0, n0, share(steps, part, PARTS), share(steps, part + 1, PARTS));

    const int owner = threadIdx.x / 32;  // warp w has the rows of CTA w
    const uint32_t barrier = ptx::map_to_rank(address(&shared.arrived), owner);
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i += 2) {
        const uint32_t to = ptx::map_to_rank(address(&shared.inbox[part][row_of(i) % ROWS][column_of(i)]), owner);
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
                     "f"(acc[i]), "f"(acc[i + 1]), "r"(barrier)
                     : "memory");
    }
    ptx::mbarrier_wait_parity_cluster(address(&shared.arrived), 0);
    for (int i = threadIdx.x; i < ROWS * TILE_N / 2; i += 128) {
        const int row = i / (TILE_N / 2), column = i % (TILE_N / 2) * 2;
        float2 sum = {};
        for (int from = 0; from < PARTS; ++from) {
            sum.x += shared.inbox[from][row][column];
            sum.y += shared.inbox[from][row][column + 1];
        }
        *reinterpret_cast<uint32_t*>(C + size_t(m0 + part * ROWS + row) * N + n0 + column) = pack(sum.x, sum.y);
    }
    ptx::cluster_arrive();
    ptx::cluster_wait();
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N, PARTS), 128, sizeof(Shared), stream>>>(map_a, map_b, C, N, K);
    return cudaGetLastError();
}
