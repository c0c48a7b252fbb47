// Split-K where the last CTA to finish a tile adds up its parts. The counters are device variables, and the last CTA
// leaves them at zero for the next call.
#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/slice.cuh"

constexpr int PARTS = 4, MOST_TILES = 1 << 16;

__device__ unsigned int finished[MOST_TILES];

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, float* partials, int M,
     int N, int K) {
    __shared__ Slice slice;
    __shared__ bool last;
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, part = blockIdx.z, steps = K / TILE_K;
    const int tile = blockIdx.y * gridDim.x + blockIdx.x;
    float acc[TILE_N / 2];
    multiply(acc, slice, &map_a, &map_b, m0, n0, share(steps, part, PARTS), share(steps, part + 1, PARTS));
    float* own = partials + size_t(tile) * PARTS * TILE_M * TILE_N + threadIdx.x;
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) own[(part * TILE_N / 2 + i) * 128] = acc[i];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(&finished[tile], PARTS - 1) == PARTS - 1;  // wraps to zero
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (int other = 0; other < PARTS; ++other)
        if (other != part)
#pragma unroll
            for (int i = 0; i < TILE_N / 2; ++i) acc[i] += __ldcg(own + (other * TILE_N / 2 + i) * 128);
    store(acc, C, m0, n0, M, N);
}

extern "C" size_t workspace_bytes(int M, int N, int K) { return size_t(PARTS) * M * N * sizeof(float); }

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    if (M / TILE_M * (N / TILE_N) > MOST_TILES) return cudaErrorInvalidValue;
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    float* partials = static_cast<float*>(workspace);
    gemm<<<dim3(M / TILE_M, N / TILE_N, PARTS), 128, 0, stream>>>(map_a, map_b, C, partials, M, N, K);
    return cudaGetLastError();
}
