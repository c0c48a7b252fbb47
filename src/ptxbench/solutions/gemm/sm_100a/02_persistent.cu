// C[M,N] = A[M,K] * B[N,K]^T in bf16 with fp32 accumulation, on Blackwell's fifth-generation tensor cores.
//
// Step 2: persistence with two accumulators. A 128x256 tile fills half of TMEM, so that the multiplier starts on the next
// tile while four warps still write the last one; the barriers `ready` and `drained` pass the two halves back and
// forth. Results leave through swizzled blocks in shared memory and TMA, which clips what lies outside C.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/barrier.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tcgen05.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>

namespace {

constexpr int TILE_M = 128, TILE_N = 256, TILE_K = 64;  // a row of TILE_K elements is 128 bytes: one swizzle atom
constexpr int STAGES = 4;
constexpr int ACCUMULATORS = 2, COLUMNS = ACCUMULATORS * TILE_N;  // TMEM columns, one fp32 each
constexpr int PRODUCER = 4, MULTIPLIER = 5;  // warps; 0-3 write C, because warp w reaches TMEM lanes 32w..32w+31
constexpr int THREADS = 6 * 32;
constexpr int BLOCK = 64;  // columns of C that leave together: again 128 bytes
constexpr int BAND = 16;   // height of a band in tiles

struct Shared {
    alignas(1024) __nv_bfloat16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) __nv_bfloat16 b[STAGES][TILE_N * TILE_K];
    alignas(1024) __nv_bfloat16 c[2][TILE_M * BLOCK];
    alignas(8) uint64_t full[STAGES];
    uint64_t empty[STAGES];
    uint64_t ready[ACCUMULATORS];    // the products of a tile are complete
    uint64_t drained[ACCUMULATORS];  // they have been read
    uint32_t tmem;
};

// The tiles of this CTA, in the order in which it works on them.
struct Tiles {
    int rows, columns, index;

    __device__ Tiles(int m, int n) : rows(m / TILE_M), columns((n + TILE_N - 1) / TILE_N), index(blockIdx.x) {}

    __device__ bool valid() const { return index < rows * columns; }
    __device__ void advance() { index += gridDim.x; }

    // First row and column of C, column by column within a band of BAND rows (the last band may be lower).
    __device__ int2 origin() const {
        const int band = index / (BAND * columns), within = index % (BAND * columns);
        const int height = min(BAND, rows - band * BAND);
        return {(band * BAND + within % height) * TILE_M, within / height * TILE_N};
    }
};

// Where a walker of a ring of `Slots` stands. Everybody keeps their own.
template <int Slots>
struct Position {
    int slot = 0, phase = 0;
    __device__ void advance() {
        if (++slot == Slots) {
            slot = 0;
            phase ^= 1;
        }
    }
};

__device__ void produce(Shared& shared, const CUtensorMap* map_a, const CUtensorMap* map_b, int M, int N, int steps) {
    Position<STAGES> at;
    for (Tiles tiles(M, N); tiles.valid(); tiles.advance()) {
        const int2 origin = tiles.origin();
        for (int k = 0; k < steps; ++k, at.advance()) {
            // Parity phase ^ 1: on the first round the stages have never been used and count as empty.
            ptx::mbarrier_wait_parity(ptx::shared_address(&shared.empty[at.slot]), at.phase ^ 1);
            const uint32_t full = ptx::shared_address(&shared.full[at.slot]);
            ptx::mbarrier_arrive_expect_tx(full, (TILE_M + TILE_N) * TILE_K * sizeof(__nv_bfloat16));
            ptx::tma_load_2d(ptx::shared_address(shared.a[at.slot]), map_a, full, k * TILE_K, origin.x);
            ptx::tma_load_2d(ptx::shared_address(shared.b[at.slot]), map_b, full, k * TILE_K, origin.y);
        }
    }
}

__device__ void multiply(Shared& shared, uint32_t tmem, int M, int N, int steps) {
    constexpr uint32_t instruction = ptx::tcgen05_instruction_bf16<TILE_M, TILE_N>();
    Position<STAGES> at;
    Position<ACCUMULATORS> half;
    for (Tiles tiles(M, N); tiles.valid(); tiles.advance(), half.advance()) {
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.drained[half.slot]), half.phase ^ 1);
        const uint32_t accumulator = tmem + half.slot * TILE_N;
        for (int k = 0; k < steps; ++k, at.advance()) {
            ptx::mbarrier_wait_parity(ptx::shared_address(&shared.full[at.slot]), at.phase);
            ptx::tcgen05_fence_after_thread_sync();
            const uint64_t a = ptx::tcgen05_descriptor_k128(ptx::shared_address(shared.a[at.slot]));
            const uint64_t b = ptx::tcgen05_descriptor_k128(ptx::shared_address(shared.b[at.slot]));
            for (int step = 0; step < TILE_K / 16; ++step)  // 16 elements along K are 32 bytes: +2 in the descriptor
                ptx::tcgen05_mma_f16_ss(accumulator, a + 2 * step, b + 2 * step, instruction, k > 0 || step > 0);
            ptx::tcgen05_commit(ptx::shared_address(&shared.empty[at.slot]));
        }
        ptx::tcgen05_commit(ptx::shared_address(&shared.ready[half.slot]));
    }
}

// Moves 64 columns of the accumulator to a staging block: this thread's TMEM lane becomes one 128-byte row.
__device__ void stage_block(uint32_t accumulator, uint32_t staging, int row) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
        uint32_t values[32];
        ptx::tcgen05_ld_32x32b_x32(values, accumulator + side * 32);
        ptx::tcgen05_wait_ld();
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            uint32_t packed[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const uint32_t* two = values + i * 8 + j * 2;
                const __nv_bfloat162 pair = __floats2bfloat162_rn(__uint_as_float(two[0]), __uint_as_float(two[1]));
                packed[j] = reinterpret_cast<const uint32_t&>(pair);
            }
            const uint32_t chunk = (side * 4 + i) ^ (row % 8);  // 128-byte swizzle
            *static_cast<uint4*>(__cvta_shared_to_generic(staging + row * 128 + (chunk << 4))) =
                make_uint4(packed[0], packed[1], packed[2], packed[3]);
        }
    }
}

__device__ void store(Shared& shared, uint32_t tmem, const CUtensorMap* map_c, int M, int N) {
    const int row = threadIdx.x, warp = row / 32, lane = row % 32;
    Position<ACCUMULATORS> half;
    for (Tiles tiles(M, N); tiles.valid(); tiles.advance(), half.advance()) {
        const int2 origin = tiles.origin();
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.ready[half.slot]), half.phase);
        ptx::tcgen05_fence_after_thread_sync();
        const uint32_t accumulator = tmem + (warp * 32 << 16) + half.slot * TILE_N;
        for (int block = 0; block < TILE_N / BLOCK; ++block) {
            const uint32_t staging = ptx::shared_address(shared.c[block % 2]);
            if (threadIdx.x == 0) ptx::bulk_wait_group_read<1>();  // the store from this staging block has been read
            ptx::bar_sync(1, 128);
            stage_block(accumulator + block * BLOCK, staging, row);
            ptx::fence_proxy_async_shared();
            ptx::bar_sync(1, 128);
            if (threadIdx.x == 0) {
                ptx::tma_store_2d(map_c, staging, origin.y + block * BLOCK, origin.x);
                ptx::bulk_commit_group();
            }
        }
        ptx::tcgen05_fence_before_thread_sync();
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&shared.drained[half.slot]));
    }
    if (threadIdx.x == 0) ptx::bulk_wait_group<0>();
}

__global__ void __launch_bounds__(THREADS, 1)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
     const __grid_constant__ CUtensorMap map_c, int M, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            ptx::mbarrier_init(ptx::shared_address(&shared.full[stage]), 1);
            ptx::mbarrier_init(ptx::shared_address(&shared.empty[stage]), 1);
        }
        for (int half = 0; half < ACCUMULATORS; ++half) {
            ptx::mbarrier_init(ptx::shared_address(&shared.ready[half]), 1);
            ptx::mbarrier_init(ptx::shared_address(&shared.drained[half]), 4);  // one arrival per warp
        }
        ptx::fence_mbarrier_init();
    }
    if (warp == MULTIPLIER) {
        ptx::tcgen05_alloc(ptx::shared_address(&shared.tmem), COLUMNS);
        ptx::tcgen05_relinquish_alloc_permit();
    }
    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();
    ptx::tcgen05_fence_after_thread_sync();
    const uint32_t tmem = shared.tmem;

    if (warp == PRODUCER) {
        if (lane == 0) produce(shared, &map_a, &map_b, M, N, K / TILE_K);
    } else if (warp == MULTIPLIER) {
        if (lane == 0) multiply(shared, tmem, M, N, K / TILE_K);
    } else {
        store(shared, tmem, &map_c, M, N);
    }

    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();  // nobody reads TMEM any more
    ptx::tcgen05_fence_after_thread_sync();
    if (warp == MULTIPLIER) ptx::tcgen05_dealloc(tmem, COLUMNS);
}

}  // namespace

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b, map_c;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_c, C, M, N, TILE_M, BLOCK)) return error;
    constexpr int bytes = sizeof(Shared);
    if (int error = cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return error;
    int device, processors;
    if (int error = cudaGetDevice(&device)) return error;
    if (int error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)) return error;
    const int tiles = M / TILE_M * ((N + TILE_N - 1) / TILE_N);
    gemm<<<tiles < processors ? tiles : processors, THREADS, bytes, stream>>>(map_a, map_b, map_c, M, N, K);
    return cudaGetLastError();
}
