// Split-K in one cooperative launch: all parts are written, the grid synchronises (cooperative groups), and every CTA adds
// up its share of C.
#include <cooperative_groups.h>

#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/slice.cuh"

constexpr int PARTS = 3;

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, float* partials, int M,
     int N, int K) {
    __shared__ Slice slice;
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, part = blockIdx.z, steps = K / TILE_K;
    float acc[TILE_N / 2];
    multiply(acc, slice, &map_a, &map_b, m0, n0, share(steps, part, PARTS), share(steps, part + 1, PARTS));
    float* to = partials + size_t(part) * M * N;
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i += 2)
        *reinterpret_cast<float2*>(to + size_t(m0 + row_of(i)) * N + n0 + column_of(i)) = {acc[i], acc[i + 1]};

    const auto grid = cooperative_groups::this_grid();
    grid.sync();
    const size_t count = size_t(M) * N / 2;
    for (size_t i = grid.thread_rank(); i < count; i += grid.size()) {
        float2 sum = {};
        for (int other = 0; other < PARTS; ++other) {
            const float2 x = reinterpret_cast<const float2*>(partials)[other * count + i];
            sum = {sum.x + x.x, sum.y + x.y};
        }
        reinterpret_cast<uint32_t*>(C)[i] = pack(sum.x, sum.y);
    }
}

extern "C" size_t workspace_bytes(int M, int N, int K) { return size_t(PARTS) * M * N * sizeof(float); }

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    float* partials = static_cast<float*>(workspace);
    void* arguments[] = {&map_a, &map_b, &C, &partials, &M, &N, &K};
    return cudaLaunchCooperativeKernel(reinterpret_cast<void*>(gemm), dim3(M / TILE_M, N / TILE_N, PARTS), dim3(128),
                                       arguments, 0, stream);
}
