// Gradients dQ, dK, dV of attention O = softmax(Q*K^T / sqrt(D)) * V, on Blackwell's fifth-generation tensor cores.
//
// With P the softmax weights, delta = rowsum(dO o O) and dP = dO*V^T,
//     dS = P o (dP - delta),   dV = P^T*dO,   dK = dS^T*Q / sqrt(D),   dQ = dS*K / sqrt(D).
// A CTA has 128 keys of one head and walks over the queries, 128 at a time. All five products end in tensor memory
// (TMEM), which they fill: S^T = K*Q^T, whose place P^T takes as the A operand of dV; dP^T = V*dO^T, whose place dQ
// takes; dV; dK. dS^T goes through shared memory, where it serves dK as it lies and dQ transposed. Two warpgroups
// compute P^T and dS^T, a key per thread, one adds dQ to an fp32 workspace, one warp loads and one multiplies. A kernel
// before prepares delta and zeros, one behind rounds dQ.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/barrier.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/math.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/reduction.cuh>
#include <ptxbench/ptx/tcgen05.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>

namespace {

using bf16 = __nv_bfloat16;

constexpr bool CAUSAL = true;  // whether a query sees only the keys up to its own position
constexpr int ROWS = 128, DIM = 128;  // a tile of queries or keys
constexpr int PANEL = 64;             // columns of a panel: 128 bytes, one swizzle atom; a tile is two panels
constexpr int PANEL_BYTES = ROWS * PANEL * sizeof(bf16), TILE_BYTES = 2 * PANEL_BYTES;
constexpr int STATS_BYTES = ROWS * sizeof(float2);
constexpr int STAGES = 2;
constexpr int SCORES = 0, SLOPES = 128, VALUES = 256, KEYS = 384, COLUMNS = 512;  // TMEM: S^T, P^T; dP^T, dQ; dV; dK
constexpr int PRODUCER = 12, MULTIPLIER = 13, THREADS = 14 * 32;  // warps; warpgroup 0 adds dQ, 1 and 2 compute dS^T
constexpr float LOG2E = 1.4426950408889634f;

// What lies in the workspace, for all rows of Q. Sums of dS*K are stored tile by tile, [DIM / 4][ROWS][4], so that the
// additions of a warp, whose lanes are rows, go to consecutive addresses.
struct Workspace {
    float* dq;
    float2* stats;  // LSE in units of log2, and delta

    __host__ __device__ Workspace(void* base, size_t rows)
        : dq(static_cast<float*>(base)), stats(reinterpret_cast<float2*>(dq + rows * DIM)) {}
};

struct Shared {
    alignas(1024) bf16 k[ROWS * DIM];  // dK at the end
    alignas(1024) bf16 v[ROWS * DIM];  // dV at the end
    alignas(1024) bf16 q[STAGES][ROWS * DIM];
    alignas(1024) bf16 d_out[STAGES][ROWS * DIM];
    alignas(1024) bf16 ds[ROWS * ROWS];  // dS^T: a row per key, two panels of queries
    alignas(16) float2 stats[STAGES][ROWS];
    alignas(8) uint64_t keys_full, full[STAGES], empty[STAGES];
    uint64_t scores, slopes;    // S^T, dP^T is complete
    uint64_t weights, ds_full;  // P^T is in TMEM; dS^T is in shared memory, and dP^T has been read
    uint64_t consumed;          // P^T has been multiplied
    uint64_t dq_full, dq_read;  // dQ is complete, and so is everything before it; dQ has been read
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

// First rows of this CTA's tile of keys and of its tiles of queries, and the number of the latter.
struct Work {
    int key_row, first_row, blocks;

    __device__ explicit Work(int S) : key_row(blockIdx.y * S + blockIdx.x * ROWS) {
        const int first = CAUSAL ? blockIdx.x : 0;
        first_row = blockIdx.y * S + first * ROWS;
        blocks = S / ROWS - first;
    }
    __device__ int query_row(int block) const { return first_row + block * ROWS; }
};

__device__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
}

// Stores eight elements of a row to a tile in shared memory with 128-byte swizzle.
__device__ void store_chunk(uint32_t tile, int row, int column, const float (&v)[8]) {
    const uint32_t chunk = column % PANEL / 8 ^ row % 8;
    *static_cast<uint4*>(__cvta_shared_to_generic(tile + column / PANEL * PANEL_BYTES + row * 128 + chunk * 16)) =
        make_uint4(pack(v[0], v[1]), pack(v[2], v[3]), pack(v[4], v[5]), pack(v[6], v[7]));
}

// Delta, LSE in log2 units, and a row of zeros; a warp per row.
__global__ void prepare(const bf16* O, const bf16* dO, const float* LSE, Workspace workspace) {
    const size_t row = static_cast<size_t>(blockIdx.x) * 8 + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const auto* out = reinterpret_cast<const __nv_bfloat162*>(O + row * DIM) + lane * 2;
    const auto* d_out = reinterpret_cast<const __nv_bfloat162*>(dO + row * DIM) + lane * 2;
    float delta = 0;
    for (int i = 0; i < 2; ++i) {
        const float2 a = __bfloat1622float2(out[i]), b = __bfloat1622float2(d_out[i]);
        delta += a.x * b.x + a.y * b.y;
    }
    for (int distance = 16; distance > 0; distance /= 2) delta += __shfl_xor_sync(0xffffffff, delta, distance);
    if (lane == 0) workspace.stats[row] = {LSE[row] * LOG2E, delta};
    reinterpret_cast<float4*>(workspace.dq + row * DIM)[lane] = {};
}

// Rounds the sums to dQ; a CTA per tile, 8 columns of a row at a time.
__global__ void finish(Workspace workspace, bf16* dQ, float scale) {
    const int row = threadIdx.x % ROWS;
    const size_t row0 = static_cast<size_t>(blockIdx.x) * ROWS;
    const float4* sums = reinterpret_cast<const float4*>(workspace.dq + row0 * DIM);
    uint4* to = reinterpret_cast<uint4*>(dQ + (row0 + row) * DIM);
    for (int i = threadIdx.x / ROWS; i < DIM / 8; i += blockDim.x / ROWS) {
        const float4 a = sums[2 * i * ROWS + row], b = sums[(2 * i + 1) * ROWS + row];
        to[i] = make_uint4(pack(a.x * scale, a.y * scale), pack(a.z * scale, a.w * scale),
                           pack(b.x * scale, b.y * scale), pack(b.z * scale, b.w * scale));
    }
}

__device__ void load_tile(const bf16* tile, const CUtensorMap* map, uint32_t barrier, int row) {
    ptx::tma_load_2d(ptx::shared_address(tile), map, barrier, 0, row);
    ptx::tma_load_2d(ptx::shared_address(tile) + PANEL_BYTES, map, barrier, PANEL, row);
}

__device__ void produce(Shared& shared, const CUtensorMap* map_q, const CUtensorMap* map_k, const CUtensorMap* map_v,
                        const CUtensorMap* map_d_out, const float2* stats, const Work& work) {
    const uint32_t keys_full = ptx::shared_address(&shared.keys_full);
    ptx::mbarrier_arrive_expect_tx(keys_full, 2 * TILE_BYTES);
    load_tile(shared.k, map_k, keys_full, work.key_row);
    load_tile(shared.v, map_v, keys_full, work.key_row);
    for (int i = 0; i < work.blocks + STAGES; ++i) {
        // On the first round the stages have never been used and count as empty. The last one only waits, so that no
        // arrival comes after the end of the CTA.
        const int stage = i % STAGES, row = work.query_row(i);
        wait(shared.empty[stage], i / STAGES % 2 ^ 1);
        if (i >= work.blocks) continue;
        const uint32_t full = ptx::shared_address(&shared.full[stage]);
        ptx::mbarrier_arrive_expect_tx(full, 2 * TILE_BYTES + STATS_BYTES);
        load_tile(shared.q[stage], map_q, full, row);
        load_tile(shared.d_out[stage], map_d_out, full, row);
        ptx::bulk_load(ptx::shared_address(shared.stats[stage]), stats + row, STATS_BYTES, full);
    }
}

// Descriptor of 16 elements of a tile along K. If its rows run along K, they are 32 bytes of each row, +2 in the
// descriptor, and four times that is a panel. If its rows run along M or N (MN-major), they are 16 rows, 2048 bytes;
// panels are the leading distance and 8 rows the stride.
template <bool MN_MAJOR>
__device__ uint64_t operand(uint32_t tile, int step) {
    return MN_MAJOR ? ptx::tcgen05_descriptor(tile + step * 2048, PANEL_BYTES, 1024, ptx::Swizzle::bytes128)
                    : ptx::tcgen05_descriptor_k128(tile + step / 4 * PANEL_BYTES) + step % 4 * 2;
}

// D (+)= A*B of tiles in shared memory; D in TMEM.
template <bool A_MN_MAJOR, bool B_MN_MAJOR>
__device__ void product(uint32_t d, uint32_t a, uint32_t b, bool accumulate) {
    constexpr uint32_t instruction = ptx::tcgen05_instruction_bf16<ROWS, ROWS>(A_MN_MAJOR, B_MN_MAJOR);
#pragma unroll
    for (int step = 0; step < ROWS / 16; ++step)
        ptx::tcgen05_mma_f16_ss(d, operand<A_MN_MAJOR>(a, step), operand<B_MN_MAJOR>(b, step), instruction,
                                accumulate || step > 0);
}

// dV (+)= P^T*dO with P^T in TMEM, 16 queries in 8 columns; each panel of it starts where that of S^T did.
__device__ void product_of_weights(uint32_t dv, uint32_t weights, uint32_t d_out, bool accumulate) {
    constexpr uint32_t instruction = ptx::tcgen05_instruction_bf16<ROWS, DIM>(false, true);
#pragma unroll
    for (int step = 0; step < ROWS / 16; ++step)
        ptx::tcgen05_mma_f16_ts(dv, weights + step / 4 * PANEL + step % 4 * 8, operand<true>(d_out, step), instruction,
                                accumulate || step > 0);
}

// For i = 0, 1, ...: S^T of block i; dK and dQ of block i - 1, while its exponentials are computed; dP^T and dV of
// block i. The ISA orders products on the same accumulator only, so what overwrites an operand waits for its product.
__device__ void multiply(Shared& shared, uint32_t tmem, const Work& work) {
    const uint32_t k = ptx::shared_address(shared.k), v = ptx::shared_address(shared.v);
    const uint32_t ds = ptx::shared_address(shared.ds);
    wait(shared.keys_full, 0);
    for (int i = 0; i <= work.blocks; ++i) {
        const uint32_t d_out = ptx::shared_address(shared.d_out[i % STAGES]);
        const int before = i - 1;
        if (i < work.blocks) {
            wait(shared.full[i % STAGES], i / STAGES % 2);
            if (i > 0) {
                commit(shared.consumed);
                wait_tmem(shared.consumed, before % 2);
            }
            product<false, false>(tmem + SCORES, k, ptx::shared_address(shared.q[i % STAGES]), false);
            commit(shared.scores);
        }
        if (i > 0) {
            wait_tmem(shared.ds_full, before % 2);
            product<false, true>(tmem + KEYS, ds, ptx::shared_address(shared.q[before % STAGES]), i > 1);
            product<true, true>(tmem + SLOPES, ds, k, false);
            commit(shared.empty[before % STAGES]);
            commit(shared.dq_full);
        }
        if (i < work.blocks) {
            if (i > 0) wait_tmem(shared.dq_read, before % 2);
            product<false, false>(tmem + SLOPES, v, d_out, false);
            commit(shared.slopes);
            wait_tmem(shared.weights, i % 2);
            product_of_weights(tmem + VALUES, tmem + SCORES, d_out, i > 0);
        }
    }
}

// Reads 32 columns of a TMEM lane.
__device__ void read_columns(float (&values)[32], uint32_t tmem) {
    uint32_t bits[32];
    ptx::tcgen05_ld_32x32b_x32(bits, tmem);
    ptx::tcgen05_wait_ld();
#pragma unroll
    for (int i = 0; i < 32; ++i) values[i] = __uint_as_float(bits[i]);
}

// P^T and dS^T: a thread has one key and a panel of 64 queries. `lanes` is the panel's first column, in the lane of
// the key.
__device__ void differentiate(Shared& shared, uint32_t lanes, int panel, const Work& work, float scale) {
    const int row = threadIdx.x % 128;
    for (int i = 0; i < work.blocks; ++i) {
        const float2* stats = shared.stats[i % STAGES] + panel * PANEL;
        const int hidden = CAUSAL && i == 0 ? row - panel * PANEL : 0;  // queries of the panel that come before the key
        wait(shared.full[i % STAGES], i / STAGES % 2);
        wait_tmem(shared.scores, i % 2);
        float p[2][32];
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            read_columns(p[part], lanes + SCORES + part * 32);
#pragma unroll
            for (int j = 0; j < 32; ++j) {
                p[part][j] = ptx::exp2_approx(p[part][j] * (scale * LOG2E) - stats[part * 32 + j].x);
                if (CAUSAL && part * 32 + j < hidden) p[part][j] = 0;
            }
            uint32_t packed[16];
#pragma unroll
            for (int j = 0; j < 16; ++j) packed[j] = pack(p[part][2 * j], p[part][2 * j + 1]);
            ptx::tcgen05_st_32x32b_x16(lanes + SCORES + part * 16, packed);  // over scores that have been read
        }
        ptx::tcgen05_wait_st();
        arrive_tmem(shared.weights);

        // dP^T of this block comes after dQ of the last one has been read: dS^T of the last block is free, too.
        wait_tmem(shared.slopes, i % 2);
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            float dp[32];
            read_columns(dp, lanes + SLOPES + part * 32);
#pragma unroll
            for (int j = 0; j < 32; j += 8) {
                float ds[8];
#pragma unroll
                for (int e = 0; e < 8; ++e) ds[e] = p[part][j + e] * (dp[j + e] - stats[part * 32 + j + e].y);
                store_chunk(ptx::shared_address(shared.ds), row, panel * PANEL + part * 32 + j, ds);
            }
        }
        ptx::fence_proxy_async_shared();
        arrive_tmem(shared.ds_full);
    }
}

// Adds dQ of every block of queries to the workspace, a query per thread.
__device__ void add_queries(Shared& shared, uint32_t dq, float* sums, const Work& work) {
    for (int i = 0; i < work.blocks; ++i) {
        float* to = sums + static_cast<size_t>(work.query_row(i)) * DIM + threadIdx.x * 4;
        wait_tmem(shared.dq_full, i % 2);
        for (int column = 0; column < DIM; column += 32) {
            float v[32];
            read_columns(v, dq + column);
            if (column + 32 == DIM) arrive_tmem(shared.dq_read);
#pragma unroll
            for (int j = 0; j < 32; j += 4)
                ptx::reduce_add_f32x4(to + (column + j) * ROWS, v[j], v[j + 1], v[j + 2], v[j + 3]);
        }
    }
}

// Rounds an accumulator, a row per thread, and stores it through a tile in shared memory.
__device__ void store_gradient(uint32_t accumulator, uint32_t tile, const CUtensorMap* map, int row0, float scale,
                               int barrier) {
    const int row = threadIdx.x % 128;
    for (int column = 0; column < DIM; column += 32) {
        float values[32];
        read_columns(values, accumulator + column);
#pragma unroll
        for (int j = 0; j < 32; j += 8) {
            float scaled[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) scaled[e] = values[j + e] * scale;
            store_chunk(tile, row, column + j, scaled);
        }
    }
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(barrier, 128);
    if (row == 0) {
        ptx::tma_store_2d(map, tile, 0, row0);
        ptx::tma_store_2d(map, tile + PANEL_BYTES, PANEL, row0);
        ptx::bulk_commit_group();
        ptx::bulk_wait_group<0>();
    }
}

__global__ void __launch_bounds__(THREADS, 1)
backward(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
         const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_d_out,
         const __grid_constant__ CUtensorMap map_dk, const __grid_constant__ CUtensorMap map_dv, Workspace workspace,
         int S, float scale) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const Work work(S);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            init(shared.full[stage], 1);
            init(shared.empty[stage], 1);
        }
        init(shared.keys_full, 1);
        init(shared.scores, 1);
        init(shared.slopes, 1);
        init(shared.weights, 8);  // one arrival per warp
        init(shared.ds_full, 8);
        init(shared.consumed, 1);
        init(shared.dq_full, 1);
        init(shared.dq_read, 4);
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
    const uint32_t lanes = tmem + (warp % 4 * 32 << 16);  // warp w of a warpgroup reaches TMEM lanes 32w..32w+31

    if (warp == PRODUCER) {
        if (lane == 0) produce(shared, &map_q, &map_k, &map_v, &map_d_out, workspace.stats, work);
    } else if (warp == MULTIPLIER) {
        if (lane == 0) multiply(shared, tmem, work);
    } else if (warp < 4) {
        add_queries(shared, lanes + SLOPES, workspace.dq, work);
    } else {
        const int panel = warp / 4 - 1;
        differentiate(shared, lanes + panel * PANEL, panel, work, scale);
        wait_tmem(shared.dq_full, (work.blocks - 1) % 2);
        if (panel == 0)
            store_gradient(lanes + VALUES, ptx::shared_address(shared.v), &map_dv, work.key_row, 1.0f, 1);
        else
            store_gradient(lanes + KEYS, ptx::shared_address(shared.k), &map_dk, work.key_row, scale, 2);
    }

    ptx::tcgen05_fence_before_thread_sync();
    __syncthreads();  // nobody reads TMEM any more
    ptx::tcgen05_fence_after_thread_sync();
    if (warp == MULTIPLIER) ptx::tcgen05_dealloc(shared.tmem, COLUMNS);
}

}  // namespace

extern "C" size_t workspace_bytes(int B, int H, int S, int D) {
    return static_cast<size_t>(B) * H * S * (D + 2) * sizeof(float);
}

extern "C" int launch(const bf16* Q, const bf16* K, const bf16* V, const bf16* O, const bf16* dO, const float* LSE,
                      bf16* dQ, bf16* dK, bf16* dV, int B, int H, int S, int D, void* workspace, cudaStream_t stream) {
    const int rows = B * H * S;
    const float scale = 1 / sqrtf(D);
    const Workspace parts(workspace, rows);
    CUtensorMap map_q, map_k, map_v, map_d_out, map_dk, map_dv;
    if (int error = ptx::encode_matrix_bf16(&map_q, Q, rows, D, ROWS, PANEL)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_k, K, rows, D, ROWS, PANEL)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_v, V, rows, D, ROWS, PANEL)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_d_out, dO, rows, D, ROWS, PANEL)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_dk, dK, rows, D, ROWS, PANEL)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_dv, dV, rows, D, ROWS, PANEL)) return error;
    constexpr int bytes = sizeof(Shared);
    if (int error = cudaFuncSetAttribute(backward, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return error;
    prepare<<<rows / 8, 256, 0, stream>>>(O, dO, LSE, parts);
    backward<<<dim3(S / ROWS, B * H), THREADS, bytes, stream>>>(map_q, map_k, map_v, map_d_out, map_dk, map_dv, parts,
                                                               S, scale);
    finish<<<rows / ROWS, 256, 0, stream>>>(parts, dQ, scale);
    return cudaGetLastError();
}
