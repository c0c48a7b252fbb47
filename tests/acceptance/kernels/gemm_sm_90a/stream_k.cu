// Stream-K: a few CTAs share all steps of all tiles evenly, wherever tiles end. Who begins a tile owns it, adds what the
// next CTAs left of it in the workspace, and writes it; flags with release and acquire tell when it is there.
#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64, STEPS_PER_CTA = 20;
constexpr int PARTIAL = TILE_M * TILE_N;  // floats

struct Shared {
    alignas(1024) bf16 a[TILE_M * TILE_K];
    alignas(1024) bf16 b[TILE_N * TILE_K];
    uint64_t full;
};

__device__ int acquire(const int* flag) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, float* partials,
     int* flags, int M, int N, int K) {
    __shared__ Shared shared;
    const int steps = K / TILE_K, units = M / TILE_M * (N / TILE_N) * steps, ctas = gridDim.x;
    const auto begin_of = [&](int cta) { return int(size_t(units) * cta / ctas); };
    if (threadIdx.x == 0) {
        init(shared.full, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    int phase = 0;
    for (int unit = begin_of(blockIdx.x), end = begin_of(blockIdx.x + 1); unit < end;) {
        const int tile = unit / steps, first = unit % steps, last = min(steps, first + end - unit);
        const int m0 = tile % (M / TILE_M) * TILE_M, n0 = tile / (M / TILE_M) * TILE_N;
        float acc[TILE_N / 2];
        for (int k = first; k < last; ++k, phase ^= 1) {
            if (threadIdx.x == 0) {
                const uint32_t full = expect(shared.full, sizeof(shared.a) + sizeof(shared.b));
                ptx::tma_load_2d(address(shared.a), &map_a, full, k * TILE_K, m0);
                ptx::tma_load_2d(address(shared.b), &map_b, full, k * TILE_K, n0);
            }
            wait(shared.full, phase);
            ptx::wgmma_fence();
            mma_k64(acc, shared.a, shared.b, k > first);
            ptx::wgmma_commit_group();
            ptx::wgmma_wait_group<0>();
            __syncthreads();
        }
        unit += last - first;
        if (first > 0) {  // somebody else's tile
            float* partial = partials + size_t(blockIdx.x) * PARTIAL + threadIdx.x;
#pragma unroll
            for (int i = 0; i < TILE_N / 2; ++i) partial[i * 128] = acc[i];
            __threadfence();
            __syncthreads();
            if (threadIdx.x == 0) asm volatile("st.release.gpu.global.s32 [%0], 1;" ::"l"(flags + blockIdx.x) : "memory");
            continue;
        }
        for (int cta = blockIdx.x + 1; begin_of(cta) < (tile + 1) * steps && begin_of(cta) < units; ++cta) {
            while (acquire(flags + cta) == 0) {
            }
            const float* partial = partials + size_t(cta) * PARTIAL + threadIdx.x;
#pragma unroll
            for (int i = 0; i < TILE_N / 2; ++i) acc[i] += partial[i * 128];
        }
        store(acc, C, m0, n0, M, N);
    }
}

static int ctas_of(int M, int N, int K) {
    const int units = M / TILE_M * (N / TILE_N) * (K / TILE_K), ctas = (units + STEPS_PER_CTA - 1) / STEPS_PER_CTA;
    return ctas < 132 ? ctas : 132;
}

extern "C" size_t workspace_bytes(int M, int N, int K) { return size_t(ctas_of(M, N, K)) * (PARTIAL * 4 + 4); }

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    const int ctas = ctas_of(M, N, K);
    float* partials = static_cast<float*>(workspace);
    int* flags = reinterpret_cast<int*>(partials + size_t(ctas) * PARTIAL);
    if (int error = cudaMemsetAsync(flags, 0, ctas * sizeof(int), stream)) return error;
    gemm<<<ctas, 128, 0, stream>>>(map_a, map_b, C, partials, flags, M, N, K);
    return cudaGetLastError();
}
