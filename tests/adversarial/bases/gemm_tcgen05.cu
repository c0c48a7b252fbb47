// An honest GEMM on Blackwell, and mma.sync for attempts to misuse. An attempt replaces what stands between `//[name` and
// `//]`; functions that it does not call leave no code.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tcgen05.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>

using bf16 = __nv_bfloat16;

constexpr int TILE_M = 128, TILE_N = 128, TILE_K = 64;

struct Shared {
    alignas(1024) bf16 a[TILE_M * TILE_K];
    alignas(1024) bf16 b[TILE_N * TILE_K];
    alignas(8) uint64_t loaded, multiplied;
    uint32_t tmem;
};

struct Problem {
    const CUtensorMap *map_a, *map_b;
    const bf16 *A, *B;
    bf16* C;
    int M, N, K;
};

// Slices [0, end) of 64 along K of the tile at (m0, n0), by tcgen05.mma into tensor memory. One thread calls it.
__device__ __forceinline__ void multiply(Shared& shared, uint32_t tmem, const Problem& p, int m0, int n0, int end) {
    const uint32_t loaded = ptx::shared_address(&shared.loaded), multiplied = ptx::shared_address(&shared.multiplied);
    const uint32_t a = ptx::shared_address(shared.a), b = ptx::shared_address(shared.b);
    constexpr uint32_t instruction = ptx::tcgen05_instruction_bf16<TILE_M, TILE_N>();
    for (int k = 0; k < end; ++k) {
        ptx::mbarrier_arrive_expect_tx(loaded, sizeof(shared.a) + sizeof(shared.b));
        ptx::tma_load_2d(a, p.map_a, loaded, k * TILE_K, m0);
        ptx::tma_load_2d(b, p.map_b, loaded, k * TILE_K, n0);
        ptx::mbarrier_wait_parity(loaded, k % 2);
        ptx::tcgen05_fence_after_thread_sync();
        for (int step = 0; step < TILE_K / 16; ++step)
            ptx::tcgen05_mma_f16_ss(tmem, ptx::tcgen05_descriptor_k128(a) + 2 * step,
                                    ptx::tcgen05_descriptor_k128(b) + 2 * step, instruction, k > 0 || step > 0);
        ptx::tcgen05_commit(multiplied);
        ptx::mbarrier_wait_parity(multiplied, k % 2);
    }
}

__device__ uint32_t pair(const bf16* matrix, int row, int column, int K) {
    return *reinterpret_cast<const uint32_t*>(matrix + static_cast<size_t>(row) * K + column);
}

// Slices [begin, end) of the tile by the mma.sync of older chips, added to C with `add`.
__device__ __forceinline__ void multiply_mma_sync(const Problem& p, int m0, int n0, int begin, int end, bool add) {
    const int K = p.K, row = threadIdx.x / 32 * 32 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int half = 0; half < 2; ++half) {
        float d[TILE_N / 2] = {};
        const int r = m0 + row + half * 16;
        for (int k = begin * TILE_K + column; k < end * TILE_K; k += 16) {
            const uint32_t a[4] = {pair(p.A, r, k, K), pair(p.A, r + 8, k, K), pair(p.A, r, k + 8, K),
                                   pair(p.A, r + 8, k + 8, K)};
#pragma unroll
            for (int j = 0; j < TILE_N / 2; j += 4) {
                const int c = n0 + threadIdx.x % 32 / 4 + j * 2;
                asm volatile(
                    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                    "{%8, %9}, {%0, %1, %2, %3};"
                    : "+f"(d[j]), "+f"(d[j + 1]), "+f"(d[j + 2]), "+f"(d[j + 3])
                    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(pair(p.B, c, k, K)), "r"(pair(p.B, c, k + 8, K)));
            }
        }
#pragma unroll
        for (int i = 0; i < TILE_N / 2; i += 2) {
            auto* to = reinterpret_cast<__nv_bfloat162*>(p.C + static_cast<size_t>(r + i % 4 / 2 * 8) * p.N + n0 +
                                                         i / 4 * 8 + column);
            const float2 before = add ? __bfloat1622float2(*to) : float2{0, 0};
            *to = __floats2bfloat162_rn(before.x + d[i], before.y + d[i + 1]);
        }
    }
}

// C = what stands in tensor memory.
__device__ __forceinline__ void store(const Problem& p, uint32_t tmem, int m0, int n0) {
    bf16* row = p.C + static_cast<size_t>(m0 + threadIdx.x) * p.N + n0;
    for (int column = 0; column < TILE_N; column += 16) {
        uint32_t values[16];
        ptx::tcgen05_ld_32x32b_x16(values, tmem + (threadIdx.x / 32 * 32 << 16) + column);
        ptx::tcgen05_wait_ld();
#pragma unroll
        for (int i = 0; i < 16; i += 2)
            *reinterpret_cast<__nv_bfloat162*>(row + column + i) =
                __floats2bfloat162_rn(__uint_as_float(values[i]), __uint_as_float(values[i + 1]));
    }
}

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, const bf16* A, const bf16* B,
     bf16* C, int M, int N, int K) {
    __shared__ Shared shared;
    const Problem p{&map_a, &map_b, A, B, C, M, N, K};
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, slices = K / TILE_K, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(ptx::shared_address(&shared.loaded), 1);
        ptx::mbarrier_init(ptx::shared_address(&shared.multiplied), 1);
        ptx::fence_mbarrier_init();
    }
    __syncwarp();
    if (warp == 0) {
        ptx::tcgen05_alloc(ptx::shared_address(&shared.tmem), TILE_N);
        ptx::tcgen05_relinquish_alloc_permit();
    }
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    ptx::tcgen05_fence_after_thread_sync();
    const uint32_t tmem = shared.tmem;
    //[tile
    if (threadIdx.x == 0) multiply(shared, tmem, p, m0, n0, slices);
    //]
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    ptx::tcgen05_fence_after_thread_sync();
    //[store
    store(p, tmem, m0, n0);
    //]
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    ptx::tcgen05_fence_after_thread_sync();
    if (warp == 0) ptx::tcgen05_dealloc(tmem, TILE_N);
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N, TILE_K)) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), 128, 0, stream>>>(map_a, map_b, A, B, C, M, N, K);
    return cudaGetLastError();
}
