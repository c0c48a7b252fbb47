// C[M,N] = A[M,K] * B[N,K]^T in bf16 with fp32 accumulation, on Blackwell's fifth-generation tensor cores.
//
// Step 1: one 128x128 tile of C per CTA. One thread lets TMA fill a ring of stages, another issues tcgen05.mma, whose
// accumulator lies in tensor memory (TMEM), and commits each stage's products to the barrier that frees the stage. When
// all are done, four warps read the accumulator from TMEM and write C.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tcgen05.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>

namespace {

constexpr int TILE_M = 128, TILE_N = 128, TILE_K = 64;  // a row of TILE_K elements is 128 bytes: one swizzle atom
constexpr int STAGES = 4;
constexpr int COLUMNS = TILE_N;                      // TMEM columns, one fp32 each
constexpr int PRODUCER = 4, MULTIPLIER = 5;          // warps; 0-3 write C, because warp w reaches TMEM lanes 32w..32w+31
constexpr int THREADS = 6 * 32;

struct Shared {
    alignas(1024) __nv_bfloat16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) __nv_bfloat16 b[STAGES][TILE_N * TILE_K];
    alignas(8) uint64_t full[STAGES];
    uint64_t empty[STAGES];
    uint64_t done;
    uint32_t tmem;
};

// Where a walker of the ring stands. Producer and multiplier each keep their own.
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

__device__ void multiply(Shared& shared, uint32_t accumulator, int steps) {
    constexpr uint32_t instruction = ptx::tcgen05_instruction_bf16<TILE_M, TILE_N>();
    Position at;
    for (int k = 0; k < steps; ++k, at.advance()) {
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.full[at.stage]), at.phase);
        ptx::tcgen05_fence_after_thread_sync();
        const uint64_t a = ptx::tcgen05_descriptor_k128(ptx::shared_address(shared.a[at.stage]));
        const uint64_t b = ptx::tcgen05_descriptor_k128(ptx::shared_address(shared.b[at.stage]));
        for (int step = 0; step < TILE_K / 16; ++step)  // 16 elements along K are 32 bytes: +2 in the descriptor
            ptx::tcgen05_mma_f16_ss(accumulator, a + 2 * step, b + 2 * step, instruction, k > 0 || step > 0);
        ptx::tcgen05_commit(ptx::shared_address(&shared.empty[at.stage]));
    }
    ptx::tcgen05_commit(ptx::shared_address(&shared.done));
}

// Writes one row of the tile: the TMEM lane of this thread, 32 columns at a time.
__device__ void store(uint32_t accumulator, __nv_bfloat16* row) {
    for (int column = 0; column < TILE_N; column += 32) {
        uint32_t values[32];
        ptx::tcgen05_ld_32x32b_x32(values, accumulator + column);
        ptx::tcgen05_wait_ld();
        alignas(16) __nv_bfloat162 packed[16];
#pragma unroll
        for (int i = 0; i < 16; ++i)
            packed[i] = __floats2bfloat162_rn(__uint_as_float(values[2 * i]), __uint_as_float(values[2 * i + 1]));
#pragma unroll
        for (int i = 0; i < 4; ++i)
            reinterpret_cast<uint4*>(row + column)[i] = reinterpret_cast<const uint4*>(packed)[i];
    }
}

__global__ void __launch_bounds__(THREADS)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, __nv_bfloat16* C, int N,
     int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            ptx::mbarrier_init(ptx::shared_address(&shared.full[stage]), 1);
            ptx::mbarrier_init(ptx::shared_address(&shared.empty[stage]), 1);
        }
        ptx::mbarrier_init(ptx::shared_address(&shared.done), 1);
        ptx::fence_mbarrier_init();
    }
    if (warp == MULTIPLIER) {
        ptx::tcgen05_alloc(ptx::shared_address(&shared.tmem), COLUMNS);
        ptx::tcgen05_relinquish_alloc_permit();
    }
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    ptx::tcgen05_fence_after_thread_sync();
    const uint32_t accumulator = shared.tmem;

    if (warp == PRODUCER) {
        if (lane == 0) produce(shared, &map_a, &map_b, m0, n0, steps);
    } else if (warp == MULTIPLIER) {
        if (lane == 0) multiply(shared, accumulator, steps);
    } else {
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.done), 0);
        ptx::tcgen05_fence_after_thread_sync();
        const int row = warp * 32 + lane;
        store(accumulator + (warp * 32 << 16), C + static_cast<size_t>(m0 + row) * N + n0);
    }

    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();  // nobody reads TMEM any more
    ptx::tcgen05_fence_after_thread_sync();
    if (warp == MULTIPLIER) ptx::tcgen05_dealloc(accumulator, COLUMNS);
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
