// O = softmax(Q K^T / sqrt(D)) V and LSE, the logarithm of the sums of exponentials, per batch and head; D = 128; bf16
// with fp32 accumulation, on Hopper's warpgroup matrix instruction.
//
// Step 2: products and exponentials at the same time. A producer warpgroup feeds blocks of K and V through one ring, in
// the order of use; two consumer warpgroups own 64 queries each. A consumer starts Q K^T of a block together with P V
// of the block before, and computes the softmax of the former while the latter runs. The consumers take turns at
// starting products, so that one multiplies while the other computes exponentials. CTAs stay and fetch their next tile
// of queries from a counter, longest tiles first; O leaves through shared memory while the next tile begins.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/barrier.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/math.cuh>
#include <ptxbench/ptx/matrix.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/setmaxnreg.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>
#include <ptxbench/ptx/wgmma.cuh>

namespace {

constexpr bool CAUSAL = true;  // whether a query sees only the keys up to its own position

constexpr int HEAD_DIM = 128, TILE = 128;  // queries of a CTA, keys of a block
constexpr int HALF = 64;  // a row of 64 elements is 128 bytes, one swizzle atom: tiles are [2][rows][HALF]
constexpr int STAGES = 5;
constexpr int CONSUMERS = 2, THREADS = (1 + CONSUMERS) * 128;  // warpgroups
constexpr int GROUP = 8;  // heads worked on at a time, so that their K and V stay in L2
constexpr float LN_2 = 0.6931471805599453f;
constexpr float SCALE = 0.08838834764831845f / LN_2;  // 1 / sqrt(HEAD_DIM), for powers of 2 instead of e

struct Shared {
    alignas(1024) __nv_bfloat16 q[2][TILE][HALF];
    alignas(1024) __nv_bfloat16 ring[STAGES][2][TILE][HALF];
    alignas(1024) __nv_bfloat16 o[CONSUMERS][2][64][HALF];
    alignas(8) uint64_t full[STAGES];
    uint64_t empty[STAGES];
    uint64_t q_full, q_empty;  // guard `tile` too
    int tile;
};

// Where a walker of the ring stands. Producer and consumers each keep their own.
struct Position {
    int stage = 0, phase = 0;

    // Goes on to the next stage; returns the one left.
    __device__ int advance() {
        const int left = stage;
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
        return left;
    }
};

// A tile of queries: its first row, that of its head, and how many blocks of keys it sees.
struct Tile {
    int row, head_row, blocks;

    // Groups of heads one after another; within a group the last queries come first, which see most keys if CAUSAL.
    __device__ Tile(int index, int heads, int S) {
        const int per_head = S / TILE, group = index / (GROUP * per_head), within = index % (GROUP * per_head);
        const int height = min(GROUP, heads - group * GROUP);
        const int block = per_head - 1 - within / height;
        head_row = (group * GROUP + within % height) * S;
        row = head_row + block * TILE;
        blocks = CAUSAL ? block + 1 : per_head;
    }
};

__device__ void load(Shared& shared, Position& at, const CUtensorMap* map, int row) {
    // Parity phase ^ 1: on the first round the stages have never been used and count as empty.
    ptx::mbarrier_wait_parity(ptx::shared_address(&shared.empty[at.stage]), at.phase ^ 1);
    const uint32_t full = ptx::shared_address(&shared.full[at.stage]);
    ptx::mbarrier_arrive_expect_tx(full, sizeof(shared.ring[0]));
    ptx::tma_load_3d(ptx::shared_address(shared.ring[at.stage]), map, full, 0, row, 0);
    at.advance();
}

// Loads tile after tile: Q, then the blocks from last to first, each V one step behind its K.
__device__ void produce(Shared& shared, const CUtensorMap* map_q, const CUtensorMap* map_k, const CUtensorMap* map_v,
                        unsigned* counter, int heads, int S) {
    const uint32_t q_full = ptx::shared_address(&shared.q_full), q_empty = ptx::shared_address(&shared.q_empty);
    const int tiles = heads * (S / TILE);
    Position at;
    for (int index = blockIdx.x, phase = 0;; index = gridDim.x + atomicAdd(counter, 1), phase ^= 1) {
        ptx::mbarrier_wait_parity(q_empty, phase ^ 1);
        shared.tile = index;
        if (index >= tiles) break;
        const Tile tile(index, heads, S);
        ptx::mbarrier_arrive_expect_tx(q_full, sizeof(shared.q));
        ptx::tma_load_3d(ptx::shared_address(shared.q), map_q, q_full, 0, tile.row, 0);
        for (int block = tile.blocks - 1; block >= 0; --block) {
            load(shared, at, map_k, tile.head_row + block * TILE);
            if (block < tile.blocks - 1) load(shared, at, map_v, tile.head_row + (block + 1) * TILE);
        }
        load(shared, at, map_v, tile.head_row);
    }
    ptx::mbarrier_arrive(q_full);
}

// Waits until the block of the ring where `at` stands has arrived.
__device__ void await_block(Shared& shared, const Position& at) {
    ptx::mbarrier_wait_parity(ptx::shared_address(&shared.full[at.stage]), at.phase);
}

// Tells the producer that the caller's warp no longer reads what `barrier` guards.
__device__ void release(uint64_t& barrier) {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(ptx::shared_address(&barrier));
}

// S = Q K^T. Both tiles are K-major: 16 elements along D are 32 bytes, and after 4 steps comes the other half.
__device__ __forceinline__ void multiply_qk(float (&s)[TILE / 2], Shared& shared, int consumer, int stage) {
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; ++step) {
        const uint64_t q = ptx::wgmma_descriptor_k128(ptx::shared_address(shared.q[step / 4][consumer * 64]));
        const uint64_t k = ptx::wgmma_descriptor_k128(ptx::shared_address(shared.ring[stage][step / 4]));
        ptx::wgmma_m64n128k16_bf16_ss(s, q + step % 4 * 2, k + step % 4 * 2, step > 0);
    }
    ptx::wgmma_commit_group();
}

// O += P V. V is stored with D innermost, that is N-major; 16 keys are two atoms of 8 rows.
__device__ __forceinline__ void multiply_pv(float (&o)[HEAD_DIM / 2], const uint32_t (&p)[TILE / 16][4],
                                            Shared& shared, int stage) {
    const uint64_t v = ptx::wgmma_descriptor(ptx::shared_address(shared.ring[stage]), sizeof(shared.ring[0][0]), 1024,
                                             ptx::Swizzle::bytes128);
#pragma unroll
    for (int step = 0; step < TILE / 16; ++step)
        ptx::wgmma_m64n128k16_bf16_rs<ptx::Major::mn>(o, p[step], v + step * (2 * 1024 >> 4), true);
    ptx::wgmma_commit_group();
}

// The consumers' turns at starting products; named barriers 1 and 2 hold the right to go on.
__device__ void await_turn(int consumer) { ptx::bar_sync(1 + consumer, 256); }
__device__ void pass_turn(int consumer) { ptx::bar_arrive(1 + (consumer ^ 1), 256); }

// Hides the keys beyond each query's position in the block on the diagonal.
__device__ __forceinline__ void mask(float (&s)[TILE / 2], int consumer) {
    const int row = consumer * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILE / 2; ++i)
        if (column + i / 4 * 8 + i % 2 > row + i / 2 % 2 * 8) s[i] = -INFINITY;
}

// The running softmax of the two rows of which a thread holds parts. `top` is the maximum of SCALE * S so far, `sum`
// this thread's part of the sum of 2^(SCALE * S - top).
struct Softmax {
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};

    // Turns logits into weights; returns in `correction` by what all earlier weights have to be multiplied.
    __device__ __forceinline__ void update(float (&s)[TILE / 2], float (&correction)[2]) {
        float block_top[2] = {s[0], s[2]};
#pragma unroll
        for (int i = 0; i < TILE / 2; ++i) block_top[i / 2 % 2] = fmaxf(block_top[i / 2 % 2], s[i]);
#pragma unroll
        for (int r = 0; r < 2; ++r) {  // four threads share a row
            block_top[r] = fmaxf(block_top[r], __shfl_xor_sync(0xffffffff, block_top[r], 1));
            block_top[r] = fmaxf(block_top[r], __shfl_xor_sync(0xffffffff, block_top[r], 2));
            const float next = fmaxf(top[r], block_top[r] * SCALE);
            correction[r] = ptx::exp2_approx(top[r] - next);  // 0 for the first block
            sum[r] *= correction[r];
            top[r] = next;
        }
#pragma unroll
        for (int i = 0; i < TILE / 2; ++i) {
            s[i] = ptx::exp2_approx(fmaf(s[i], SCALE, -top[i / 2 % 2]));
            sum[i / 2 % 2] += s[i];
        }
    }

    // The sum over the whole row; call it once.
    __device__ float total(int r) {
        sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 1);
        return sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 2);
    }
};

__device__ __forceinline__ void scale(float (&o)[HEAD_DIM / 2], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < HEAD_DIM / 2; ++i) o[i] *= factor[i / 2 % 2];
}

// Rounds neighbours to bf16. Accumulators of 16 columns are A registers of a product over these columns.
__device__ __forceinline__ void pack(uint32_t (&packed)[TILE / 16][4], const float (&x)[TILE / 2]) {
#pragma unroll
    for (int i = 0; i < TILE / 4; ++i) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
        packed[i / 4][i % 4] = reinterpret_cast<const uint32_t&>(pair);
    }
}

// Computes the rows of one tile that belong to this consumer.
__device__ __forceinline__ void attend(float (&o)[HEAD_DIM / 2], Softmax& softmax, Shared& shared, Position& at,
                                       int consumer, int blocks) {
    float s[TILE / 2], correction[2];
    uint32_t p[TILE / 16][4];
    await_block(shared, at);
    int k = at.advance(), v;
    ptx::wgmma_fence();
    multiply_qk(s, shared, consumer, k);
    ptx::wgmma_wait_group<0>();
    release(shared.empty[k]);
    if (CAUSAL) mask(s, consumer);
    softmax.update(s, correction);
    pack(p, s);

    await_block(shared, at);
    for (int block = 1; block < blocks; ++block) {
        k = at.advance();
        await_turn(consumer);
        ptx::wgmma_fence();
        multiply_qk(s, shared, consumer, k);
        await_block(shared, at);
        v = at.advance();
        ptx::wgmma_fence();
        multiply_pv(o, p, shared, v);
        pass_turn(consumer);
        ptx::wgmma_wait_group<1>();
        release(shared.empty[k]);
        softmax.update(s, correction);
        await_block(shared, at);  // the next one, already here: else ptxas moves the exponentials behind the next wait
        ptx::wgmma_wait_group<0>();
        release(shared.empty[v]);
        scale(o, correction);
        pack(p, s);
    }
    release(shared.q_empty);

    v = at.advance();
    ptx::wgmma_fence();
    multiply_pv(o, p, shared, v);
    ptx::wgmma_wait_group<0>();
    release(shared.empty[v]);
}

// Writes this consumer's 64 rows of O, first the one numbered `row`, through shared memory.
__device__ __forceinline__ void store(const float (&o)[HEAD_DIM / 2], Shared& shared, const CUtensorMap* map_o,
                                      int consumer, int row) {
    const int thread = threadIdx.x % 128, lane = thread % 32, r = thread / 32 * 16 + lane % 16;
    uint32_t packed[HEAD_DIM / 16][4];
    pack(packed, o);
    if (thread == 0) ptx::bulk_wait_group_read<0>();  // the store of the tile before has been read
    ptx::bar_sync(3 + consumer, 128);
#pragma unroll
    for (int j = 0; j < HEAD_DIM / 16; ++j) {  // 16x16 elements at a time, lane by lane one 16-byte row of 8
        const uint32_t row_of_half = ptx::shared_address(shared.o[consumer][j / 4][r]), chunk = j % 4 * 2 + lane / 16;
        ptx::stmatrix_x4(row_of_half + ((chunk ^ r % 8) << 4), packed[j]);  // 128-byte swizzle
    }
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(3 + consumer, 128);
    if (thread == 0) {
        ptx::tma_store_3d(map_o, ptx::shared_address(shared.o[consumer]), 0, row, 0);
        ptx::bulk_commit_group();
    }
}

__device__ __forceinline__ void consume(Shared& shared, const CUtensorMap* map_o, float* LSE, int consumer, int heads,
                                        int S) {
    const int thread = threadIdx.x % 128, row_in_warp = thread % 32 / 4;
    Position at;
    if (consumer == 1) pass_turn(consumer);  // consumer 0 begins
    for (int phase = 0;; phase ^= 1) {
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.q_full), phase);
        if (shared.tile >= heads * (S / TILE)) break;
        const Tile tile(shared.tile, heads, S);
        float o[HEAD_DIM / 2] = {};
        Softmax softmax;
        attend(o, softmax, shared, at, consumer, tile.blocks);

        const int row = tile.row + consumer * 64;
        float inverse[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float total = softmax.total(r);
            inverse[r] = __fdividef(1, total);
            if (thread % 4 == 0)
                LSE[row + thread / 32 * 16 + row_in_warp + r * 8] = (softmax.top[r] + __log2f(total)) * LN_2;
        }
        scale(o, inverse);
        store(o, shared, map_o, consumer, row);
    }
    if (consumer == 0) await_turn(consumer);  // takes the turn that is left over
    if (thread == 0) ptx::bulk_wait_group<0>();
}

__global__ void __launch_bounds__(THREADS, 1)
attention(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
          const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* LSE,
          unsigned* counter, int heads, int S) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);  // uniform, so that descriptors are as well

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            ptx::mbarrier_init(ptx::shared_address(&shared.full[stage]), 1);
            ptx::mbarrier_init(ptx::shared_address(&shared.empty[stage]), CONSUMERS * 4);  // one arrival per warp
        }
        ptx::mbarrier_init(ptx::shared_address(&shared.q_full), 1);
        ptx::mbarrier_init(ptx::shared_address(&shared.q_empty), CONSUMERS * 4);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    if (warpgroup == 0) {
        ptx::setmaxnreg_dec<24>();
        if (threadIdx.x == 0) produce(shared, &map_q, &map_k, &map_v, counter, heads, S);
    } else {
        ptx::setmaxnreg_inc<240>();
        consume(shared, &map_o, LSE, warpgroup - 1, heads, S);
    }
}

// Rows of HEAD_DIM elements seen as two halves, so that one copy moves a whole tile: (column, row, half).
int encode_halves(CUtensorMap* map, const void* base, int rows, int box_rows) {
    const cuuint64_t dims[3] = {HALF, static_cast<cuuint64_t>(rows), 2};
    const cuuint64_t strides[2] = {HEAD_DIM * sizeof(__nv_bfloat16), HALF * sizeof(__nv_bfloat16)};
    const cuuint32_t box[3] = {HALF, static_cast<cuuint32_t>(box_rows), 2};
    return ptx::encode_tiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, base, dims, strides, box,
                             CU_TENSOR_MAP_SWIZZLE_128B);
}

}  // namespace

extern "C" size_t workspace_bytes(int B, int H, int S, int D) { return sizeof(unsigned); }

extern "C" int launch(const __nv_bfloat16* Q, const __nv_bfloat16* K, const __nv_bfloat16* V, __nv_bfloat16* O,
                      float* LSE, int B, int H, int S, int D, void* workspace, cudaStream_t stream) {
    CUtensorMap map_q, map_k, map_v, map_o;
    if (int error = encode_halves(&map_q, Q, B * H * S, TILE)) return error;
    if (int error = encode_halves(&map_k, K, B * H * S, TILE)) return error;
    if (int error = encode_halves(&map_v, V, B * H * S, TILE)) return error;
    if (int error = encode_halves(&map_o, O, B * H * S, 64)) return error;
    constexpr int bytes = sizeof(Shared);
    if (int error = cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return error;
    int device, processors;
    if (int error = cudaGetDevice(&device)) return error;
    if (int error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)) return error;
    unsigned* counter = static_cast<unsigned*>(workspace);
    if (int error = cudaMemsetAsync(counter, 0, sizeof(unsigned), stream)) return error;
    const int tiles = B * H * (S / TILE), ctas = tiles < processors ? tiles : processors;
    attention<<<ctas, THREADS, bytes, stream>>>(map_q, map_k, map_v, map_o, LSE, counter, B * H, S);
    return cudaGetLastError();
}
