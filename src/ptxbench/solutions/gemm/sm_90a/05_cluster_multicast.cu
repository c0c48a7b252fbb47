// C[M,N] = A[M,K] * B[N,K]^T in bf16 with fp32 accumulation, on Hopper's warpgroup matrix instruction.
//
// Step 5: clusters. Two CTAs that stand one above the other need the same tile of B: each loads half of it and multicasts
// the half to both, which saves a third of the traffic out of L2. A stage may now be overwritten from either side, so
// consumers report to the producers of both CTAs. Where M / 128 is odd the last CTA works outside C, where loads give
// zeros and stores are clipped.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/barrier.cuh>
#include <ptxbench/ptx/cluster.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/elect.cuh>
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
constexpr int CLUSTER = 2;  // CTAs along M
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
    constexpr int SHARE = TILE_N / CLUSTER;  // rows of B that this CTA fetches for the cluster
    const int first = ptx::cluster_rank() * SHARE;
    Position at;
    for (int k = 0; k < steps; ++k, at.advance()) {
        // Parity phase ^ 1: on the first round the stages have never been used and count as empty.
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.empty[at.stage]), at.phase ^ 1);
        const uint32_t full = ptx::shared_address(&shared.full[at.stage]);
        ptx::mbarrier_arrive_expect_tx(full, (TILE_M + TILE_N) * TILE_K * sizeof(__nv_bfloat16));
        ptx::tma_load_2d(ptx::shared_address(shared.a[at.stage]), map_a, full, k * TILE_K, m0);
        ptx::tma_load_2d_multicast(ptx::shared_address(shared.b[at.stage] + first * TILE_K), map_b, full, k * TILE_K,
                                   n0 + first, (1 << CLUSTER) - 1);
    }
}

// Tells the producers of both CTAs that the caller's warpgroup no longer reads a stage: thread r reports to rank r, after
// its own wgmma_wait_group, which is the whole warpgroup's. Nothing was written for the other CTA to see, so the arrival
// needs no release at cluster scope, which would cost a device-wide fence in every step.
__device__ void release(Shared& shared, int stage) {
    const uint32_t thread = threadIdx.x % 128;
    if (thread < CLUSTER)
        ptx::mbarrier_arrive_remote(ptx::map_to_rank(ptx::shared_address(&shared.empty[stage]), thread));
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

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
     const __grid_constant__ CUtensorMap map_c, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), warpgroup = warp / 4;  // uniform for the compiler

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            ptx::mbarrier_init(ptx::shared_address(&shared.full[stage]), 1);
            ptx::mbarrier_init(ptx::shared_address(&shared.empty[stage]), CLUSTER * CONSUMERS);
        }
        ptx::fence_mbarrier_init();
    }
    __syncwarp();
    ptx::cluster_arrive();  // no CTA may signal or copy to another before that one's barriers exist
    ptx::cluster_wait();

    if (warpgroup == 0) {
        ptx::setmaxnreg_dec<40>();
        if (warp == 0 && ptx::elect_sync()) produce(shared, &map_a, &map_b, m0, n0, steps);
    } else {
        ptx::setmaxnreg_inc<232>();
        const int consumer = warpgroup - 1;
        float acc[TILE_N / 2];
        multiply(acc, shared, consumer, steps);
        store(acc, shared, &map_c, consumer, m0 + consumer * 64, n0);
    }
    __syncwarp();
    ptx::cluster_arrive();  // nor may one end while another still signals to it
    ptx::cluster_wait();
}

}  // namespace

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b, map_c;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N / CLUSTER, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_c, C, M, N, 64, BLOCK)) return error;
    constexpr int bytes = sizeof(Shared);
    if (int error = cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return error;
    const int rows = (M / TILE_M + CLUSTER - 1) / CLUSTER * CLUSTER;
    const dim3 grid(rows, (N + TILE_N - 1) / TILE_N);
    gemm<<<grid, THREADS, bytes, stream>>>(map_a, map_b, map_c, K);
    return cudaGetLastError();
}
