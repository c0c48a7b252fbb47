// No TMA: every thread copies 16-byte chunks with cp.async to their swizzled places, three steps ahead, and hands them to
// the async proxy by a fence.
#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64, STAGES = 4;

struct Shared {
    alignas(1024) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) bf16 b[STAGES][TILE_N * TILE_K];
};

template <int Rows>
__device__ __forceinline__ void copy(uint32_t to, const bf16* from, int K) {
#pragma unroll
    for (int chunk = threadIdx.x; chunk < Rows * 8; chunk += 128) {
        const uint32_t row = chunk / 8, column = chunk % 8;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + row * 128 + ((column ^ row % 8) << 4)),
                     "l"(from + size_t(row) * K + column * 8));
    }
}

__global__ void __launch_bounds__(128) gemm(const bf16* A, const bf16* B, bf16* C, int M, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    const auto load = [&](int k) {
        if (k < steps) {
            copy<TILE_M>(address(shared.a[k % STAGES]), A + size_t(m0) * K + k * TILE_K, K);
            copy<TILE_N>(address(shared.b[k % STAGES]), B + size_t(n0) * K + k * TILE_K, K);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");  // empty at the end, so that the counts stay right
    };
    for (int k = 0; k < STAGES - 1; ++k) load(k);

    float acc[TILE_N / 2];
    for (int k = 0; k < steps; ++k) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        ptx::fence_proxy_async_shared();
        __syncthreads();
        ptx::wgmma_fence();
        mma_k64(acc, shared.a[k % STAGES], shared.b[k % STAGES], k > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
        load(k + STAGES - 1);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    store(acc, C, m0, n0, M, N);
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), 128, sizeof(Shared), stream>>>(A, B, C, M, N, K);
    return cudaGetLastError();
}
