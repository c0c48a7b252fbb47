// Split-K through vector reductions into an fp32 workspace that a memset cleared, and a kernel that rounds.
#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/slice.cuh"

constexpr int PARTS = 4;

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* sums, int N, int K) {
    __shared__ Slice slice;
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, part = blockIdx.z, steps = K / TILE_K;
    float acc[TILE_N / 2];
    multiply(acc, slice, &map_a, &map_b, m0, n0, share(steps, part, PARTS), share(steps, part + 1, PARTS));
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i += 2)
        asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(sums + size_t(m0 + row_of(i)) * N + n0 +
                                                                                column_of(i)),
                     "f"(acc[i]), "f"(acc[i + 1])
                     : "memory");
}

__global__ void finish(const float* sums, bf16* C) {
    const size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * 2;
    *reinterpret_cast<uint32_t*>(C + i) = pack(__ldg(sums + i), __ldg(sums + i + 1));
}

extern "C" size_t workspace_bytes(int M, int N, int K) { return size_t(M) * N * sizeof(float); }

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    if (int error = cudaMemsetAsync(workspace, 0, workspace_bytes(M, N, K), stream)) return error;
    float* sums = static_cast<float*>(workspace);
    gemm<<<dim3(M / TILE_M, N / TILE_N, PARTS), 128, 0, stream>>>(map_a, map_b, sums, N, K);
    finish<<<size_t(M) * N / 512, 256, 0, stream>>>(sums, C);
    return cudaGetLastError();
}
