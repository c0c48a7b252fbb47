// C[M,N] = A[M,K] * B[N,K]^T in bf16 with fp32 accumulation, on Hopper's warpgroup matrix instruction.
//
// Step 4: a larger tile and a better way out. 128x256 reads fewer bytes per product, and 128 accumulators per thread
// just fit. Results leave through shared memory: stmatrix writes swizzled blocks of 64x64, TMA stores them in full
// lines and clips what lies outside C, so N need not be a multiple of 256. Two blocks per consumer take turns, so that
// one is filled while the other drains.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/barrier.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/matrix.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/setmaxnreg.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>
#include <ptxbench/ptx/wgmma.cuh>

namespace {

constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 64;  // a row of TILE_K elements is 128 bytes: one swizzle atom
constexpr int STAGES = 4;
constexpr int CONSUMERS = 2, THREADS = (1 + CONSUMERS) * 128;  // warpgroups
constexpr int BLOCK = 64;  // columns of C that leave together: again 128 bytes

struct Shared {
    alignas(1024) __nv_bfloat16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) __nv_bfloat16 b[STAGES][TILE_N * TILE_K];
    alignas(1024) __nv_bfloat16 c[CONSUMERS][2][64 * BLOCK];
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
            ptx::wgmma_m64n256k16_bf16_ss(acc, a + 2 * step, b + 2 * step, k > 0 || step > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>();
        if (k > 0) release(shared, previous);
        previous = at.stage;
    }
    ptx::wgmma_wait_group<0>();
}

// Writes this consumer's 64 x TILE_N results to C at (row, column).
__device__ __forceinline__ void store(const float (&acc)[TILE_N / 2], Shared& shared, const CUtensorMap* map_c,
                                      int consumer, int row, int column) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
    const uint32_t barrier = 1 + consumer;
#pragma unroll
    for (int block = 0; block < TILE_N / BLOCK; ++block) {
        const uint32_t staging = ptx::shared_address(shared.c[consumer][block % 2]);
        if (thread == 0) ptx::bulk_wait_group_read<1>();  // the store from this staging block has been read
        ptx::bar_sync(barrier, 128);
#pragma unroll
        for (int j = 0; j < BLOCK / 16; ++j) {  // 16x16 elements at a time, lane by lane one 16-byte row of 8
            uint32_t packed[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int first = block * BLOCK / 2 + j * 8 + i * 2;
                const __nv_bfloat162 pair = __floats2bfloat162_rn(acc[first], acc[first + 1]);
                packed[i] = reinterpret_cast<const uint32_t&>(pair);
            }
            const uint32_t r = warp * 16 + lane % 16, chunk = j * 2 + lane / 16;
            ptx::stmatrix_x4(staging + r * 128 + ((chunk ^ r % 8) << 4), packed);  // 128-byte swizzle
        }
        ptx::fence_proxy_async_shared();
        ptx::bar_sync(barrier, 128);
        if (thread == 0) {
            ptx::tma_store_2d(map_c, staging, column + block * BLOCK, row);
            ptx::bulk_commit_group();
        }
    }
    if (thread == 0) ptx::bulk_wait_group<0>();
}

__global__ void __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
     const __grid_constant__ CUtensorMap map_c, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    const int warpgroup = threadIdx.x / 128;

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
        store(acc, shared, &map_c, consumer, m0 + consumer * 64, n0);
    }
}

}  // namespace

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b, map_c;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_c, C, M, N, 64, BLOCK)) return error;
    constexpr int bytes = sizeof(Shared);
    if (int error = cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return error;
    const dim3 grid(M / TILE_M, (N + TILE_N - 1) / TILE_N);
    gemm<<<grid, THREADS, bytes, stream>>>(map_a, map_b, map_c, K);
    return cudaGetLastError();
}
