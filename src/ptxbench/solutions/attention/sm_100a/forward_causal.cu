// O = softmax(Q*K^T / sqrt(D)) * V and its LSE in bf16, on Blackwell's fifth-generation tensor cores.
//
// A CTA has two tiles of 128 queries of one head and walks over the keys, 128 at a time. Per tile, S = Q*K^T goes to
// tensor memory (TMEM), where a softmax warpgroup reads it, a row per thread, and puts the weights P back in its place
// as bf16; from there they are the A operand of O += P*V, which also stays in TMEM. One warp feeds a ring of K and V
// tiles by TMA, another issues all products: while one tile is multiplied, the other has its exponentials computed.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/barrier.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/math.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/setmaxnreg.cuh>
#include <ptxbench/ptx/tcgen05.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>

namespace {

using bf16 = __nv_bfloat16;

constexpr bool CAUSAL = true;  // whether a query sees only the keys up to its own position
constexpr int ROWS = 128, DIM = 128;  // a tile of Q, K, V or O
constexpr int TILES = 2;              // tiles of queries per CTA
constexpr int PANEL = 64;             // columns of a panel: 128 bytes, one swizzle atom; a tile is two panels
constexpr int PANEL_BYTES = ROWS * PANEL * sizeof(bf16), TILE_BYTES = 2 * PANEL_BYTES;
constexpr int STAGES = 4;  // of the ring, which holds K and V alternately
constexpr int COLUMNS = 512, SCORES = 0, OUTPUT = TILES * ROWS;  // TMEM: all of it; S of both tiles, O of both tiles
constexpr int PRODUCER = 8, MULTIPLIER = 9;  // warps; 0-3 are the softmax of tile 0, 4-7 of tile 1
constexpr int THREADS = 3 * 128;
constexpr float TOLERATED = 8;  // weights may grow to 2^8 before their maximum is corrected

struct Shared {
    alignas(1024) bf16 q[TILES][ROWS * DIM];  // O at the end
    alignas(1024) bf16 kv[STAGES][ROWS * DIM];
    alignas(8) uint64_t q_full[TILES];
    uint64_t full[STAGES], empty[STAGES];
    uint64_t scores[TILES];    // S is complete, and so is the O before it
    uint64_t weights[TILES];   // P is in TMEM
    uint64_t consumed[TILES];  // P has been multiplied
    uint32_t tmem;
};

// Barriers, by their place in shared memory.
__device__ void init(uint64_t& barrier, int arrivals) { ptx::mbarrier_init(ptx::shared_address(&barrier), arrivals); }
__device__ void wait(uint64_t& barrier, int parity) {
    ptx::mbarrier_wait_parity(ptx::shared_address(&barrier), parity);
}
// The same before accesses to TMEM that other threads' accesses or finished products precede.
__device__ void wait_tmem(uint64_t& barrier, int parity) {
    wait(barrier, parity);
    ptx::tcgen05_fence_after_thread_sync();
}
// One arrival when this thread's products are complete.
__device__ void commit(uint64_t& barrier) { ptx::tcgen05_commit(ptx::shared_address(&barrier)); }
// One arrival per warp, after its TMEM accesses.
__device__ void arrive_tmem(uint64_t& barrier) {
    ptx::tcgen05_fence_before_thread_sync();
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ptx::shared_address(&barrier));
}

// What a CTA does: the longest first, since later queries of a causal head see more keys.
struct Work {
    int head, first, tiles, blocks;  // first row of the head; first tile of queries; their number; blocks of keys

    __device__ explicit Work(int S) {
        head = blockIdx.y * S;
        first = (gridDim.x - 1 - blockIdx.x) * TILES;
        tiles = min(TILES, S / ROWS - first);
        blocks = CAUSAL ? first + tiles : S / ROWS;
    }
    // Blocks of keys that a tile sees.
    __device__ int seen(int tile) const { return CAUSAL ? first + tile + 1 : blocks; }
    __device__ int row(int tile) const { return head + (first + tile) * ROWS; }
};

// Block j of K is element 2j of the ring, block j of V element 2j + 1.
__device__ int stage_of(int element) { return element % STAGES; }
__device__ int phase_of(int element) { return element / STAGES % 2; }

__device__ void load_tile(const bf16* tile, const CUtensorMap* map, uint64_t& full, int row) {
    const uint32_t to = ptx::shared_address(tile), barrier = ptx::shared_address(&full);
    ptx::mbarrier_arrive_expect_tx(barrier, TILE_BYTES);
    ptx::tma_load_2d(to, map, barrier, 0, row);
    ptx::tma_load_2d(to + PANEL_BYTES, map, barrier, PANEL, row);
}

__device__ void produce(Shared& shared, const CUtensorMap* map_q, const CUtensorMap* map_k, const CUtensorMap* map_v,
                        const Work& work) {
    for (int tile = 0; tile < work.tiles; ++tile)
        load_tile(shared.q[tile], map_q, shared.q_full[tile], work.row(tile));
    const int elements = 2 * work.blocks;
    for (int element = 0; element < elements + STAGES; ++element) {
        // On the first round the stages have never been used and count as empty. The last one only waits, so that no
        // arrival comes after the end of the CTA.
        const int stage = stage_of(element);
        wait(shared.empty[stage], phase_of(element) ^ 1);
        if (element >= elements) continue;
        load_tile(shared.kv[stage], element % 2 ? map_v : map_k, shared.full[stage], work.head + element / 2 * ROWS);
    }
}

// S = Q*K^T. Both run along D (K-major): 16 elements are 32 bytes, +2 in the descriptor, and four of them fill a panel.
__device__ void multiply_scores(uint32_t scores, uint32_t q, uint32_t k) {
    constexpr uint32_t instruction = ptx::tcgen05_instruction_bf16<ROWS, ROWS>();
#pragma unroll
    for (int step = 0; step < DIM / 16; ++step) {
        const uint32_t panel = step / 4 * PANEL_BYTES;
        ptx::tcgen05_mma_f16_ss(scores, ptx::tcgen05_descriptor_k128(q + panel) + step % 4 * 2,
                                ptx::tcgen05_descriptor_k128(k + panel) + step % 4 * 2, instruction, step > 0);
    }
}

// O (+)= P*V. P lies in TMEM, 16 elements in 8 columns. V runs along D too, which here is N (MN-major): its panels are
// the leading distance, 8 rows the stride, and 16 rows, 2048 bytes, a step.
__device__ void multiply_output(uint32_t output, uint32_t weights, uint32_t v, bool accumulate) {
    constexpr uint32_t instruction = ptx::tcgen05_instruction_bf16<ROWS, DIM>(false, true);
#pragma unroll
    for (int step = 0; step < ROWS / 16; ++step)
        ptx::tcgen05_mma_f16_ts(output, weights + step * 8,
                                ptx::tcgen05_descriptor(v + step * 2048, PANEL_BYTES, 1024, ptx::Swizzle::bytes128),
                                instruction, accumulate || step > 0);
}

// For j = 0, 1, ...: O += P*V of block j - 1, then S of block j, for one tile after the other.
__device__ void multiply(Shared& shared, uint32_t tmem, const Work& work) {
    for (int tile = 0; tile < work.tiles; ++tile) wait(shared.q_full[tile], 0);
    for (int j = 0; j <= work.blocks; ++j) {
        const int v = 2 * j - 1, k = 2 * j;  // elements of the ring
        if (j > 0) wait(shared.full[stage_of(v)], phase_of(v));
        if (j < work.blocks) wait(shared.full[stage_of(k)], phase_of(k));
        for (int tile = 0; tile < work.tiles; ++tile) {
            if (j > work.seen(tile)) continue;
            const uint32_t scores = tmem + SCORES + tile * ROWS, output = tmem + OUTPUT + tile * DIM;
            if (j > 0) {
                wait_tmem(shared.weights[tile], (j - 1) % 2);
                multiply_output(output, scores, ptx::shared_address(shared.kv[stage_of(v)]), j > 1);
            }
            if (j < work.seen(tile)) {
                if (j > 0) {  // the ISA orders products on the same accumulator only, and S overwrites P
                    commit(shared.consumed[tile]);
                    wait_tmem(shared.consumed[tile], (j - 1) % 2);
                }
                multiply_scores(scores, ptx::shared_address(shared.q[tile]),
                                ptx::shared_address(shared.kv[stage_of(k)]));
            }
            commit(shared.scores[tile]);
        }
        if (j > 0) commit(shared.empty[stage_of(v)]);
        if (j < work.blocks) commit(shared.empty[stage_of(k)]);
    }
}

// Multiplies a row of O by `factor`.
__device__ void rescale(uint32_t output, float factor) {
    for (int column = 0; column < DIM; column += 32) {
        uint32_t values[32];
        ptx::tcgen05_ld_32x32b_x32(values, output + column);
        ptx::tcgen05_wait_ld();
#pragma unroll
        for (int i = 0; i < 32; ++i) values[i] = __float_as_uint(__uint_as_float(values[i]) * factor);
        ptx::tcgen05_st_32x32b_x32(output + column, values);
    }
}

__device__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
}

// The softmax of one row, block of keys by block of keys.
struct Softmax {
    float scale;           // from scores to exponents of 2: log2(e) / sqrt(D)
    float top = -INFINITY;  // what is subtracted from the scores: their maximum, or a little less
    float sum = 0;

    // Turns 128 scores of a row at TMEM address `scores` into weights in place. `visible` is the number of keys that
    // the query sees, `first` whether O is still empty.
    __device__ void step(uint32_t scores, uint32_t output, int visible, bool first) {
        uint32_t row[4][32];
#pragma unroll
        for (int part = 0; part < 4; ++part) ptx::tcgen05_ld_32x32b_x32(row[part], scores + part * 32);
        ptx::tcgen05_wait_ld();
        if (CAUSAL && visible < ROWS) {
#pragma unroll
            for (int key = 0; key < ROWS; ++key)
                if (key >= visible) row[key / 32][key % 32] = __float_as_uint(-INFINITY);
        }
        float maxima[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};  // one per part, to shorten the chains
#pragma unroll
        for (int key = 0; key < ROWS; ++key)
            maxima[key / 32] = fmaxf(maxima[key / 32], __uint_as_float(row[key / 32][key % 32]));
        const float maximum = fmaxf(fmaxf(maxima[0], maxima[1]), fmaxf(maxima[2], maxima[3]));
        if (first) {
            top = maximum;
        } else if (__any_sync(0xffffffff, (maximum - top) * scale > TOLERATED)) {  // rare after a few blocks
            const float higher = fmaxf(top, maximum), factor = ptx::exp2_approx((top - higher) * scale);
            rescale(output, factor);
            sum *= factor;
            top = higher;
        }
        float sums[4] = {};
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            uint32_t packed[16];
#pragma unroll
            for (int i = 0; i < 32; i += 2) {
                const float low = ptx::exp2_approx(__uint_as_float(row[part][i]) * scale - top * scale);
                const float high = ptx::exp2_approx(__uint_as_float(row[part][i + 1]) * scale - top * scale);
                sums[i / 2 % 4] += low + high;
                packed[i / 2] = pack(low, high);
            }
            ptx::tcgen05_st_32x32b_x16(scores + part * 16, packed);
        }
        sum += (sums[0] + sums[1]) + (sums[2] + sums[3]);
        ptx::tcgen05_wait_st();
    }
};

// Stores a row of O, divided by the sum of its weights, to a tile in shared memory with 128-byte swizzle.
__device__ void stage_output(uint32_t output, uint32_t tile, int row, float factor) {
    for (int column = 0; column < DIM; column += 32) {
        uint32_t values[32];
        ptx::tcgen05_ld_32x32b_x32(values, output + column);
        ptx::tcgen05_wait_ld();
        alignas(16) uint32_t packed[16];
#pragma unroll
        for (int i = 0; i < 16; ++i)
            packed[i] = pack(__uint_as_float(values[2 * i]) * factor, __uint_as_float(values[2 * i + 1]) * factor);
        const uint32_t to = tile + column / PANEL * PANEL_BYTES + row * 128;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t chunk = (column % PANEL / 8 + i) ^ (row % 8);
            *static_cast<uint4*>(__cvta_shared_to_generic(to + chunk * 16)) = reinterpret_cast<const uint4*>(packed)[i];
        }
    }
}

__device__ void attend(Shared& shared, uint32_t tmem, const CUtensorMap* map_o, float* LSE, const Work& work, int tile,
                       float scale) {
    const int row = threadIdx.x % 128, blocks = work.seen(tile);
    const uint32_t lanes = tmem + (row / 32 * 32 << 16);  // warp w of a warpgroup reaches TMEM lanes 32w..32w+31
    const uint32_t scores = lanes + SCORES + tile * ROWS, output = lanes + OUTPUT + tile * DIM;
    Softmax softmax{scale * 1.4426950408889634f};
    for (int j = 0; j < blocks; ++j) {
        wait_tmem(shared.scores[tile], j % 2);
        softmax.step(scores, output, j == blocks - 1 ? row + 1 : ROWS, j == 0);  // the last block is the diagonal one
        arrive_tmem(shared.weights[tile]);
    }
    LSE[work.row(tile) + row] = softmax.top * scale + logf(softmax.sum);

    wait_tmem(shared.scores[tile], blocks % 2);
    const uint32_t staging = ptx::shared_address(shared.q[tile]);  // all products with Q are complete, too
    stage_output(output, staging, row, 1 / softmax.sum);
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(1 + tile, 128);
    if (row == 0) {
        ptx::tma_store_2d(map_o, staging, 0, work.row(tile));
        ptx::tma_store_2d(map_o, staging + PANEL_BYTES, PANEL, work.row(tile));
        ptx::bulk_commit_group();
        ptx::bulk_wait_group<0>();
    }
}

__global__ void __launch_bounds__(THREADS, 1)
forward(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
        const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* LSE, int S,
        float scale) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const Work work(S);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        for (int tile = 0; tile < TILES; ++tile) {
            init(shared.q_full[tile], 1);
            init(shared.scores[tile], 1);
            init(shared.weights[tile], 4);  // one arrival per warp
            init(shared.consumed[tile], 1);
        }
        for (int stage = 0; stage < STAGES; ++stage) {
            init(shared.full[stage], 1);
            init(shared.empty[stage], 1);
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

    if (warp >= PRODUCER) {
        ptx::setmaxnreg_dec<88>();
        if (warp == PRODUCER && lane == 0) produce(shared, &map_q, &map_k, &map_v, work);
        if (warp == MULTIPLIER && lane == 0) multiply(shared, tmem, work);
    } else {
        ptx::setmaxnreg_inc<208>();  // a row of scores takes 128
        if (warp / 4 < work.tiles) attend(shared, tmem, &map_o, LSE, work, warp / 4, scale);
    }

    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();  // nobody reads TMEM any more
    ptx::tcgen05_fence_after_thread_sync();
    if (warp == MULTIPLIER) ptx::tcgen05_dealloc(shared.tmem, COLUMNS);
}

}  // namespace

extern "C" int launch(const bf16* Q, const bf16* K, const bf16* V, bf16* O, float* LSE, int B, int H, int S, int D,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_q, map_k, map_v, map_o;
    if (int error = ptx::encode_matrix_bf16(&map_q, Q, B * H * S, D, ROWS, PANEL)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_k, K, B * H * S, D, ROWS, PANEL)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_v, V, B * H * S, D, ROWS, PANEL)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_o, O, B * H * S, D, ROWS, PANEL)) return error;
    constexpr int bytes = sizeof(Shared);
    if (int error = cudaFuncSetAttribute(forward, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return error;
    const dim3 grid((S / ROWS + TILES - 1) / TILES, B * H);
    forward<<<grid, THREADS, bytes, stream>>>(map_q, map_k, map_v, map_o, LSE, S, 1 / sqrtf(D));
    return cudaGetLastError();
}
