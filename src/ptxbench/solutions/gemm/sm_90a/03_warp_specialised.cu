// C[M,N] = A[M,K] * B[N,K]^T in bf16 with fp32 accumulation, on Hopper's warpgroup matrix instruction.
//
// Step 3: warp specialisation. One warpgroup only loads, two only multiply, 64 rows of a 128x128 tile each. A second
// barrier per stage, `empty`, tells the producer that all consumer warps are done with it, so no __syncthreads() is left
// in the loop. Loading needs few registers: setmaxnreg hands them to the consumers. A consumer keeps one group of
// products in flight and releases the stage of the group before.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/setmaxnreg.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>
#include <ptxbench/ptx/wgmma.cuh>

namespace {

constexpr int TILE_M = 128, TILE_N = 128, TILE_K = 64;  // a row of TILE_K elements is 128 bytes: one swizzle atom
constexpr int STAGES = 4;
constexpr int CONSUMERS = 2, THREADS = (1 + CONSUMERS) * 128;  // warpgroups

struct Shared {
    alignas(1024) __nv_bfloat16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) __nv_bfloat16 b[STAGES][TILE_N * TILE_K];
    alignas(8) uint64_t full[STAGES];
    uint64_t empty[STAGES];
};

// Where a walker of the ring stands. Producer and consumers each keep their own.
struct Position {
    int stage = 0, phase = 0;
    __device__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

__device__ void produce(Shared& shared, const CUtensorMap* map_a, const CUtensorMap* map_b, int m0, int n0, int steps) {
    Position at;
    for (int k = 0; k < steps; ++k, at.advance()) {
        // Parity phase ^ 1: on the first round the stages have never been used and count as empty.
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.empty[at.stage]), at.phase ^ 1);
        const uint32_t full = ptx::shared_address(&shared.full[at.stage]);
        ptx::mbarrier_arrive_expect_tx(full, (TILE_M + TILE_N) * TILE_K * sizeof(__nv_bfloat16));
        ptx::tma_load_2d(ptx::shared_address(shared.a[at.stage]), map_a, full, k * TILE_K, m0);
        ptx::tma_load_2d(ptx::shared_address(shared.b[at.stage]), map_b, full, k * TILE_K, n0);
    }
}

// Tells the producer that the caller's warp no longer reads a stage.
__device__ void release(Shared& shared, int stage) {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ptx::shared_address(&shared.empty[stage]));
}

// Multiplies the 64 rows of A that belong to this consumer with all of B.
__device__ __forceinline__ void multiply(float (&acc)[TILE_N / 2], Shared& shared, int consumer, int steps) {
    Position at;
    int previous = 0;
    for (int k = 0; k < steps; ++k, at.advance()) {
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.full[at.stage]), at.phase);
        const uint64_t a =
            ptx::wgmma_descriptor_k128(ptx::shared_address(shared.a[at.stage] + consumer * 64 * TILE_K));
        const uint64_t b = ptx::wgmma_descriptor_k128(ptx::shared_address(shared.b[at.stage]));
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step)  // 16 elements along K are 32 bytes: +2 in the descriptor
            ptx::wgmma_m64n128k16_bf16_ss(acc, a + 2 * step, b + 2 * step, k > 0 || step > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>();
        if (k > 0) release(shared, previous);
        previous = at.stage;
    }
    ptx::wgmma_wait_group<0>();
}

__global__ void __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, __nv_bfloat16* C, int N,
     int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    const int warpgroup = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            ptx::mbarrier_init(ptx::shared_address(&shared.full[stage]), 1);
            ptx::mbarrier_init(ptx::shared_address(&shared.empty[stage]), CONSUMERS * 4);  // one arrival per warp
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    if (warpgroup == 0) {
        ptx::setmaxnreg_dec<40>();
        if (threadIdx.x == 0) produce(shared, &map_a, &map_b, m0, n0, steps);
    } else {
        ptx::setmaxnreg_inc<232>();
        const int consumer = warpgroup - 1;
        float acc[TILE_N / 2];
        multiply(acc, shared, consumer, steps);

        // Each thread holds two adjacent columns of two rows for every 8 columns of the tile.
        const int row = m0 + consumer * 64 + warp * 16 + lane / 4, column = n0 + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < TILE_N / 8; ++j) {
            __nv_bfloat16* upper = C + static_cast<size_t>(row) * N + column + j * 8;
            __nv_bfloat16* lower = upper + static_cast<size_t>(8) * N;
            *reinterpret_cast<__nv_bfloat162*>(upper) = __floats2bfloat162_rn(acc[4 * j], acc[4 * j + 1]);
            *reinterpret_cast<__nv_bfloat162*>(lower) = __floats2bfloat162_rn(acc[4 * j + 2], acc[4 * j + 3]);
        }
    }
}

}  // namespace

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N, TILE_K)) return error;
    constexpr int bytes = sizeof(Shared);
    if (int error = cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return error;
    gemm<<<dim3(M / TILE_M, N / TILE_N), THREADS, bytes, stream>>>(map_a, map_b, C, N, K);
    return cudaGetLastError();
}
