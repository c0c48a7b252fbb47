// Split-K through partial sums in memory of the stream's own pool and a second kernel that adds them. The second is launched early
// (programmatic stream serialization) and waits with griddepcontrol.
#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/slice.cuh"

constexpr int PARTS = 3;

__global__ void __launch_bounds__(128)
partial_gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float* partials, int M,
             int N, int K) {
    __shared__ Slice slice;
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, part = blockIdx.z, steps = K / TILE_K;
    float acc[TILE_N / 2];
    multiply(acc, slice, &map_a, &map_b, m0, n0, share(steps, part, PARTS), share(steps, part + 1, PARTS));
    asm volatile("griddepcontrol.launch_dependents;");
    float* to = partials + size_t(part) * M * N;
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i += 2)
        *reinterpret_cast<float2*>(to + size_t(m0 + row_of(i)) * N + n0 + column_of(i)) = {acc[i], acc[i + 1]};
}

__global__ void add(const float* partials, bf16* C, size_t count) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    const size_t i = (size_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    float4 sum = {};
    for (int part = 0; part < PARTS; ++part) {
        const float4 x = *reinterpret_cast<const float4*>(partials + part * count + i);
        sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
    }
    *reinterpret_cast<uint2*>(C + i) = {pack(sum.x, sum.y), pack(sum.z, sum.w)};
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    float* partials;
    if (int error = cudaMallocAsync(&partials, size_t(PARTS) * M * N * sizeof(float), stream)) return error;
    partial_gemm<<<dim3(M / TILE_M, N / TILE_N, PARTS), 128, 0, stream>>>(map_a, map_b, partials, M, N, K);

    const size_t count = size_t(M) * N;
    cudaLaunchAttribute early;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(count / 1024);
    config.blockDim = dim3(256);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    if (int error = cudaLaunchKernelEx(&config, add, static_cast<const float*>(partials), C, count)) return error;
    return cudaFreeAsync(partials, stream);
}
