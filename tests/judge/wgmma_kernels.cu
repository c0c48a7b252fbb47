// Kernels whose matrix instructions ptxas keeps, deletes, or half deletes.
#include <cuda_bf16.h>

#include <cstdint>

__device__ __forceinline__ void product(float (&d)[4], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b));
}

__device__ __forceinline__ void begin() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void end() {
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}

extern "C" __global__ void live(float* out, uint64_t a, uint64_t b, int n) {
    float d[4] = {};
    for (int i = 0; i < n; ++i) {
        begin();
        product(d, a + i, b);
        end();
    }
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}

// The accumulators are never read.
extern "C" __global__ void dead(float* out, uint64_t a, uint64_t b, int n) {
    float d[4] = {};
    for (int i = 0; i < n; ++i) {
        begin();
        product(d, a + i, b);
        end();
    }
    out[threadIdx.x] = n;
}

// Only one of two accumulators is read.
extern "C" __global__ void half_dead(float* out, uint64_t a, uint64_t b, int n) {
    float d[2][4] = {};
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
        begin();
        product(d[0], a + i, b);
        product(d[1], a, b + i);
        end();
    }
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[0][i];
}

// The accumulators are read and multiplied by a run-time zero.
extern "C" __global__ void masked(float* out, uint64_t a, uint64_t b, float zero) {
    float d[4] = {};
    begin();
    product(d, a, b);
    end();
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i] * zero;
}

extern "C" __global__ void lone_commit(float* out) {
    end();
    out[threadIdx.x] = 1;
}

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    auto out = reinterpret_cast<float*>(C);
    live<<<1, 128, 0, stream>>>(out, 1, 1, K);
    dead<<<1, 128, 0, stream>>>(out, 1, 1, K);
    half_dead<<<1, 128, 0, stream>>>(out, 1, 1, K);
    masked<<<1, 128, 0, stream>>>(out, 1, 1, 0.0f);
    lone_commit<<<1, 128, 0, stream>>>(out);
    return cudaGetLastError();
}
