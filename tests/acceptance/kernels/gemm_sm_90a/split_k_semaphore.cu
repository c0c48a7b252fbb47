// Split-K in one cooperative launch: the CTAs of a tile add to the workspace in turns that a semaphore gives out, and the
// last of them rounds. The sum has a fixed order.
#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/slice.cuh"

constexpr int PARTS = 3;

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, float* sums,
     int* turns, int M, int N, int K) {
    __shared__ Slice slice;
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, part = blockIdx.z, steps = K / TILE_K;
    int* turn = turns + blockIdx.y * gridDim.x + blockIdx.x;
    float acc[TILE_N / 2];
    multiply(acc, slice, &map_a, &map_b, m0, n0, share(steps, part, PARTS), share(steps, part + 1, PARTS));

    if (threadIdx.x == 0)
        while (atomicAdd(turn, 0) != part) __nanosleep(100);
    __syncthreads();
    __threadfence();
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i += 2) {
        float2* sum = reinterpret_cast<float2*>(sums + size_t(m0 + row_of(i)) * N + n0 + column_of(i));
        const float2 before = part == 0 ? float2{} : __ldcg(sum);
        acc[i] += before.x;
        acc[i + 1] += before.y;
        if (part < PARTS - 1) __stcg(sum, float2{acc[i], acc[i + 1]});
    }
    if (part == PARTS - 1) return store(acc, C, m0, n0, M, N);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) atomicExch(turn, part + 1);
}

static size_t sums_bytes(int M, int N) { return size_t(M) * N * sizeof(float); }
static size_t turns_bytes(int M, int N) { return size_t(M / TILE_M) * (N / TILE_N) * sizeof(int); }

extern "C" size_t workspace_bytes(int M, int N, int K) { return sums_bytes(M, N) + turns_bytes(M, N); }

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    float* sums = static_cast<float*>(workspace);
    int* turns = reinterpret_cast<int*>(static_cast<char*>(workspace) + sums_bytes(M, N));
    if (int error = cudaMemsetAsync(turns, 0, turns_bytes(M, N), stream)) return error;
    void* arguments[] = {&map_a, &map_b, &C, &sums, &turns, &M, &N, &K};
    return cudaLaunchCooperativeKernel(reinterpret_cast<void*>(gemm), dim3(M / TILE_M, N / TILE_N, PARTS), dim3(128),
                                       arguments, 0, stream);
}
