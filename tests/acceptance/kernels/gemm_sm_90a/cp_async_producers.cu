// A warpgroup of producers copies with cp.async and lets the copies themselves arrive at the full barrier (noinc); the
// consumers, who read through the async proxy, fence when they have waited.
#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64, STAGES = 3;

struct Shared {
    alignas(1024) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) bf16 b[STAGES][TILE_N * TILE_K];
    uint64_t full[STAGES], empty[STAGES];
};

template <int Rows>
__device__ __forceinline__ void copy(uint32_t to, const bf16* from, int K) {
#pragma unroll
    for (int chunk = threadIdx.x % 128; chunk < Rows * 8; chunk += 128) {
        const uint32_t row = chunk / 8, column = chunk % 8;
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to + row * 128 + ((column ^ row % 8) << 4)),
                     "l"(from + size_t(row) * K + column * 8));
    }
}

__global__ void __launch_bounds__(256) gemm(const bf16* A, const bf16* B, bf16* C, int M, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    if (threadIdx.x == 0) {
        for (auto& full : shared.full) init(full, 128);
        for (auto& empty : shared.empty) init(empty, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    Position<STAGES> at;
    if (threadIdx.x >= 128) {
        for (int k = 0; k < steps; ++k, at.advance()) {
            wait(shared.empty[at.stage], at.phase ^ 1);
            copy<TILE_M>(address(shared.a[at.stage]), A + size_t(m0) * K + k * TILE_K, K);
            copy<TILE_N>(address(shared.b[at.stage]), B + size_t(n0) * K + k * TILE_K, K);
            asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address(&shared.full[at.stage]))
                         : "memory");
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
        return;
    }
    float acc[TILE_N / 2];
    for (int k = 0; k < steps; ++k, at.advance()) {
        wait(shared.full[at.stage], at.phase);
        ptx::fence_proxy_async_shared();
        ptx::wgmma_fence();
        mma_k64(acc, shared.a[at.stage], shared.b[at.stage], k > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        ptx::bar_sync(1, 128);
        if (threadIdx.x == 0) arrive(shared.empty[at.stage]);
    }
    store(acc, C, m0, n0, M, N);
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), 256, sizeof(Shared), stream>>>(A, B, C, M, N, K);
    return cudaGetLastError();
}
