// Split-K inside a cluster of four CTAs along K: partial tiles meet through distributed shared memory, a quarter of the
// rows in each CTA. The cluster is a cooperative group.
#include <cooperative_groups.h>

#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/slice.cuh"

constexpr int PARTS = 4, PITCH = TILE_N + 4;

struct Shared {
    Slice slice;
    float partial[TILE_M * PITCH];
};

__global__ void __cluster_dims__(1, 1, PARTS) __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    const auto cluster = cooperative_groups::this_cluster();
    const int part = cluster.block_rank();
    float acc[TILE_N / 2];
    multiply(acc, shared.slice, &map_a, &map_b, m0, n0, share(steps, part, PARTS), share(steps, part + 1, PARTS));
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i += 2)
        *reinterpret_cast<float2*>(shared.partial + row_of(i) * PITCH + column_of(i)) = {acc[i], acc[i + 1]};
    cluster.sync();

    for (int i = threadIdx.x; i < TILE_M / PARTS * TILE_N / 2; i += 128) {
        const int row = part * (TILE_M / PARTS) + i / (TILE_N / 2), column = i % (TILE_N / 2) * 2;
        float2 sum = {};
        for (int from = 0; from < PARTS; ++from) {
            const float* there = cluster.map_shared_rank(shared.partial, from);
            const float2 x = *reinterpret_cast<const float2*>(there + row * PITCH + column);
            sum = {sum.x + x.x, sum.y + x.y};
        }
        *reinterpret_cast<uint32_t*>(C + size_t(m0 + row) * N + n0 + column) = pack(sum.x, sum.y);
    }
    cluster.sync();  // no CTA may end while another still reads its part
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N, PARTS), 128, sizeof(Shared), stream>>>(map_a, map_b, C, N, K);
    return cudaGetLastError();
}
