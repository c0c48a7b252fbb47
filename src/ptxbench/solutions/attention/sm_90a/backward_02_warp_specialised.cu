// Gradients dQ, dK, dV of softmax attention O = softmax(Q*K^T / sqrt(D)) * V, on Hopper's warpgroup matrix instruction.
//
// Step 2: warp specialisation and a pipeline. The scheme is that of step 1: 128 keys per CTA, transposed tiles, P^T
// and dS^T as A fragments, dS through shared memory for dQ. Now one warpgroup only loads and two only compute; Q and dO
// come through a ring of two stages. A consumer keeps products in flight beside its other work: dP^T beside the
// exponentials, dV beside the stores of dS, dK beside those of dQ. dS has two buffers, so that the consumers meet once
// per step. dQ is collected in shared memory in the order in which threads hold it (no bank conflicts) and leaves as
// one bulk reduction per consumer and step; `finish` undoes that order. dK and dV leave by stmatrix and TMA.
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

using bf16 = __nv_bfloat16;

constexpr bool CAUSAL = false;  // whether a query sees only the keys up to its own position
constexpr int DIM = 128, KEYS = 128, QUERIES = 64;
constexpr int STAGES = 2;
constexpr int CONSUMERS = 2, THREADS = (1 + CONSUMERS) * 128;  // warpgroups; a consumer has 64 keys
constexpr int HALF = 64;  // columns of a panel: 128 bytes, one swizzle atom
constexpr float LOG2E = 1.4426950408889634f;

// What lies in the workspace; rows are those of Q, all heads one after the other.
struct Workspace {
    float* dq;     // [rows / QUERIES][CONSUMERS][8][128][4], sums of dS*K as the accumulators of 128 threads
    float* lse;    // [rows], LSE in units of log2
    float* delta;  // [rows]

    __host__ __device__ Workspace(void* base, size_t rows)
        : dq(static_cast<float*>(base)), lse(dq + rows * DIM), delta(lse + rows) {}
};

// What a CTA works on: its keys, and the queries that see them.
struct Tile {
    int head;          // the head's first row in Q, K, ...
    int key0, query0;  // positions in the head
    int steps;

    __device__ explicit Tile(int S)
        : head(blockIdx.x / (S / KEYS) * S), key0(blockIdx.x % (S / KEYS) * KEYS), query0(CAUSAL ? key0 : 0),
          steps((S - query0) / QUERIES) {}
};

// Tiles of DIM columns are two panels of 64 columns, as TMA writes them.
struct Shared {
    alignas(1024) bf16 k[2][KEYS * HALF];
    alignas(1024) bf16 v[2][KEYS * HALF];
    alignas(1024) bf16 q[STAGES][2][QUERIES * HALF];
    alignas(1024) bf16 d_out[STAGES][2][QUERIES * HALF];
    alignas(1024) bf16 ds[2][KEYS * QUERIES];  // dS^T: a row per key
    alignas(1024) float4 staging[CONSUMERS][8 * 128];
    alignas(16) float lse[STAGES][QUERIES];
    float delta[STAGES][QUERIES];
    alignas(8) uint64_t keys_full;
    uint64_t q_full[STAGES], d_out_full[STAGES], empty[STAGES];
};

__device__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
}

// delta, LSE in log2 units, and a row of zeros; a warp per row.
__global__ void prepare(const bf16* O, const bf16* dO, const float* LSE, Workspace workspace) {
    const size_t row = blockIdx.x * 8 + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    const auto* o = reinterpret_cast<const __nv_bfloat162*>(O + row * DIM);
    const auto* d_out = reinterpret_cast<const __nv_bfloat162*>(dO + row * DIM);
    float sum = 0;
    for (int i = lane; i < DIM / 2; i += 32) {
        const float2 x = __bfloat1622float2(o[i]), y = __bfloat1622float2(d_out[i]);
        sum += x.x * y.x + x.y * y.y;
    }
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    if (lane == 0) {
        workspace.delta[row] = sum;
        workspace.lse[row] = LSE[row] * LOG2E;
    }
    reinterpret_cast<float4*>(workspace.dq + row * DIM)[lane] = {};
}

// Rounds the sums to dQ. A thread has two adjacent columns of two rows, 8 apart.
__global__ void finish(Workspace workspace, bf16* dQ, float scale) {
    const size_t index = static_cast<size_t>(blockIdx.x) * 256 + threadIdx.x;
    const float4 sum = reinterpret_cast<const float4*>(workspace.dq)[index];
    const int thread = index % 128, j = index / 128 % 8, half = index / 1024 % 2;
    const size_t row = index / 2048 * QUERIES + thread / 32 * 16 + thread % 32 / 4;
    uint32_t* upper = reinterpret_cast<uint32_t*>(dQ + row * DIM + half * HALF + j * 8) + thread % 4;
    upper[0] = pack(sum.x * scale, sum.y * scale);
    upper[8 * DIM / 2] = pack(sum.z * scale, sum.w * scale);
}

// D[64 keys][64 queries] = A*B^T over DIM, both K-major in two panels; `a` and `b` are bytes of the first panels.
__device__ __forceinline__ void multiply_over_dim(float (&d)[QUERIES / 2], uint32_t a, uint32_t b) {
#pragma unroll
    for (int step = 0; step < DIM / 16; ++step) {  // 16 elements along K are 32 bytes: +2 in the descriptor
        const uint32_t panel = step / 4, within = step % 4 * 2;
        ptx::wgmma_m64n64k16_bf16_ss(d, ptx::wgmma_descriptor_k128(a + panel * KEYS * 128) + within,
                                     ptx::wgmma_descriptor_k128(b + panel * QUERIES * 128) + within, step > 0);
    }
}

// D[64 keys][DIM] += A[64 keys][64 queries] * B[64 queries][DIM]. A is in registers; B runs along DIM (MN-major): its
// panels are the leading distance, 8 rows the stride, and 16 rows, 2048 bytes, are +128 in the descriptor.
__device__ __forceinline__ void multiply_over_queries(float (&d)[DIM / 2], const uint32_t (&a)[4][4], uint32_t b) {
    const uint64_t descriptor = ptx::wgmma_descriptor(b, QUERIES * 128, 1024, ptx::Swizzle::bytes128);
#pragma unroll
    for (int step = 0; step < QUERIES / 16; ++step)
        ptx::wgmma_m64n128k16_bf16_rs<ptx::Major::mn>(d, a[step], descriptor + 128 * step, true);
}

// D[64 queries][64 of DIM] = A*B over the keys, where A = dS and B = a panel of K, both MN-major and one panel wide.
__device__ __forceinline__ void multiply_over_keys(float (&d)[HALF / 2], uint32_t a, uint32_t b) {
#pragma unroll
    for (int step = 0; step < KEYS / 16; ++step)
        ptx::wgmma_m64n64k16_bf16_ss<ptx::Major::mn, ptx::Major::mn>(
            d, ptx::wgmma_descriptor(a, 0, 1024, ptx::Swizzle::bytes128) + 128 * step,
            ptx::wgmma_descriptor(b, 0, 1024, ptx::Swizzle::bytes128) + 128 * step, step > 0);
}

// Loads K and V once, then step by step Q with LSE and dO with delta; they have barriers of their own, as Q is needed
// first.
__device__ void produce(Shared& shared, const CUtensorMap* map_q, const CUtensorMap* map_k, const CUtensorMap* map_v,
                        const CUtensorMap* map_d_out, const Workspace& workspace, const Tile& tile) {
    const uint32_t keys_full = ptx::shared_address(&shared.keys_full);
    const int row = tile.head + tile.key0;
    ptx::mbarrier_arrive_expect_tx(keys_full, sizeof(shared.k) + sizeof(shared.v));
    for (int panel = 0; panel < 2; ++panel) {
        ptx::tma_load_2d(ptx::shared_address(shared.k[panel]), map_k, keys_full, panel * HALF, row);
        ptx::tma_load_2d(ptx::shared_address(shared.v[panel]), map_v, keys_full, panel * HALF, row);
    }
    for (int i = 0; i < tile.steps; ++i) {
        const int stage = i % STAGES, phase = i / STAGES % 2, row = tile.head + tile.query0 + i * QUERIES;
        const uint32_t q_full = ptx::shared_address(&shared.q_full[stage]);
        const uint32_t d_out_full = ptx::shared_address(&shared.d_out_full[stage]);
        // Parity phase ^ 1: on the first round the stages have never been used and count as empty.
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.empty[stage]), phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(q_full, sizeof(shared.q[0]) + sizeof(shared.lse[0]));
        for (int panel = 0; panel < 2; ++panel)
            ptx::tma_load_2d(ptx::shared_address(shared.q[stage][panel]), map_q, q_full, panel * HALF, row);
        ptx::bulk_load(ptx::shared_address(shared.lse[stage]), workspace.lse + row, sizeof(shared.lse[0]), q_full);
        ptx::mbarrier_arrive_expect_tx(d_out_full, sizeof(shared.d_out[0]) + sizeof(shared.delta[0]));
        for (int panel = 0; panel < 2; ++panel)
            ptx::tma_load_2d(ptx::shared_address(shared.d_out[stage][panel]), map_d_out, d_out_full, panel * HALF, row);
        ptx::bulk_load(ptx::shared_address(shared.delta[stage]), workspace.delta + row, sizeof(shared.delta[0]),
                       d_out_full);
    }
}

// Rounds 64 rows of accumulators to bf16 and lets TMA store them at `row` by way of the consumer's staging memory.
__device__ __forceinline__ void store(const float (&d)[DIM / 2], Shared& shared, const CUtensorMap* map, int consumer,
                                      int row, float scale) {
    const int thread = threadIdx.x % 128, lane = thread % 32;
    const uint32_t staging = ptx::shared_address(shared.staging[consumer]), panel_bytes = 64 * 128;
    if (thread == 0) ptx::bulk_wait_group_read<0>();  // what left from here before has been read
    ptx::bar_sync(1 + consumer, 128);
#pragma unroll
    for (int j = 0; j < DIM / 16; ++j) {  // 16x16 elements at a time, lane by lane one 16-byte row of 8
        uint32_t packed[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) packed[i] = pack(d[j * 8 + i * 2] * scale, d[j * 8 + i * 2 + 1] * scale);
        const uint32_t r = thread / 32 * 16 + lane % 16, chunk = j % 4 * 2 + lane / 16;
        ptx::stmatrix_x4(staging + j / 4 * panel_bytes + r * 128 + ((chunk ^ r % 8) << 4), packed);  // 128-byte swizzle
    }
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(1 + consumer, 128);
    if (thread == 0) {
        for (int panel = 0; panel < 2; ++panel)
            ptx::tma_store_2d(map, staging + panel * panel_bytes, panel * HALF, row);
        ptx::bulk_commit_group();
    }
}

// Adds a consumer's part of dQ to the workspace; the staging memory must be free.
__device__ __forceinline__ void add(const float (&dq)[HALF / 2], Shared& shared, float* sums, int consumer) {
    const int thread = threadIdx.x % 128;
#pragma unroll
    for (int j = 0; j < HALF / 8; ++j)
        shared.staging[consumer][j * 128 + thread] = {dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]};
    ptx::fence_proxy_async_shared();
    ptx::bar_sync(1 + consumer, 128);
    if (thread == 0) {
        ptx::bulk_reduce_add_f32(sums, ptx::shared_address(shared.staging[consumer]), QUERIES * HALF * 4);
        ptx::bulk_commit_group();
    }
}

// Hides the keys behind each query in S^T, whose first key is `ahead` positions behind its first query.
__device__ __forceinline__ void hide_later_keys(float (&s)[QUERIES / 2], int ahead) {
    const int row = ahead + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < QUERIES / 2; ++i)
        if (row + i / 2 % 2 * 8 > column + i / 4 * 8 + i % 2) s[i] = -INFINITY;
}

// All steps of one consumer; dk and dv belong to its 64 keys.
__device__ __forceinline__ void consume(float (&dk)[DIM / 2], float (&dv)[DIM / 2], Shared& shared,
                                        const Workspace& workspace, const Tile& tile, int consumer, float scale) {
    const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, own = consumer * 64;
    const uint32_t k = ptx::shared_address(shared.k) + own * 128, v = ptx::shared_address(shared.v) + own * 128;
    const uint32_t k_panel = ptx::shared_address(shared.k[consumer]);
    float* sums = workspace.dq + static_cast<size_t>(tile.head + tile.query0) * DIM + consumer * (QUERIES * HALF);

    ptx::mbarrier_wait_parity(ptx::shared_address(&shared.keys_full), 0);
    for (int i = 0; i < tile.steps; ++i, sums += QUERIES * DIM) {
        const int stage = i % STAGES, phase = i / STAGES % 2;
        const uint32_t q = ptx::shared_address(shared.q[stage]), d_out = ptx::shared_address(shared.d_out[stage]);
        const uint32_t ds = ptx::shared_address(shared.ds[i % 2]);

        float s[QUERIES / 2], dp[QUERIES / 2];  // of the transposed tiles, keys by queries; s becomes P^T
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.q_full[stage]), phase);
        ptx::wgmma_fence();
        multiply_over_dim(s, k, q);
        ptx::wgmma_commit_group();
        ptx::mbarrier_wait_parity(ptx::shared_address(&shared.d_out_full[stage]), phase);
        ptx::wgmma_fence();
        multiply_over_dim(dp, v, d_out);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>();  // S^T

        const int ahead = tile.key0 + own - tile.query0 - i * QUERIES;
        if (CAUSAL && ahead + 63 > 0) hide_later_keys(s, ahead);
        // For every 8 queries a thread holds two adjacent ones of two keys, 8 apart.
        uint32_t p_packed[4][4], ds_packed[4][4];
#pragma unroll
        for (int j = 0; j < QUERIES / 8; ++j) {
            const float2 lse = reinterpret_cast<const float2&>(shared.lse[stage][j * 8 + lane % 4 * 2]);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                float &p0 = s[4 * j + 2 * h], &p1 = s[4 * j + 2 * h + 1];
                p0 = ptx::exp2_approx(p0 * (scale * LOG2E) - lse.x);
                p1 = ptx::exp2_approx(p1 * (scale * LOG2E) - lse.y);
                p_packed[j / 2][j % 2 * 2 + h] = pack(p0, p1);
            }
        }
        ptx::wgmma_wait_group<0>();  // dP^T
#pragma unroll
        for (int j = 0; j < QUERIES / 8; ++j) {
            const float2 delta = reinterpret_cast<const float2&>(shared.delta[stage][j * 8 + lane % 4 * 2]);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int at = 4 * j + 2 * h;
                ds_packed[j / 2][j % 2 * 2 + h] = pack(s[at] * (dp[at] - delta.x), s[at + 1] * (dp[at + 1] - delta.y));
            }
        }
        ptx::wgmma_fence();
        multiply_over_queries(dv, p_packed, d_out);
        ptx::wgmma_commit_group();

#pragma unroll
        for (int step = 0; step < QUERIES / 16; ++step) {  // 16x16 elements, lane by lane one 16-byte row of 8
            const uint32_t row = own + warp * 16 + lane % 16, chunk = step * 2 + lane / 16;
            ptx::stmatrix_x4(ds + row * 128 + ((chunk ^ row % 8) << 4), ds_packed[step]);  // 128-byte swizzle
        }
        ptx::fence_proxy_async_shared();
        if (thread == 0) ptx::bulk_wait_group_read<0>();  // the staging memory is free again
        ptx::bar_sync(1 + CONSUMERS, CONSUMERS * 128);

        float dq[HALF / 2];  // 64 queries and this consumer's half of the columns
        ptx::wgmma_fence();
        multiply_over_keys(dq, ds, k_panel);
        ptx::wgmma_commit_group();
        multiply_over_queries(dk, ds_packed, q);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>();  // dV and dQ
        add(dq, shared, sums, consumer);
        ptx::wgmma_wait_group<0>();  // dK
        if (lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&shared.empty[stage]));  // the producer may refill it
    }
}

__global__ void __launch_bounds__(THREADS, 1)
backward(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
         const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_d_out,
         const __grid_constant__ CUtensorMap map_dk, const __grid_constant__ CUtensorMap map_dv, Workspace workspace,
         int S, float scale) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const Tile tile(S);
    const int warpgroup = threadIdx.x / 128;

    if (threadIdx.x == 0) {
        ptx::mbarrier_init(ptx::shared_address(&shared.keys_full), 1);
        for (int stage = 0; stage < STAGES; ++stage) {
            ptx::mbarrier_init(ptx::shared_address(&shared.q_full[stage]), 1);
            ptx::mbarrier_init(ptx::shared_address(&shared.d_out_full[stage]), 1);
            ptx::mbarrier_init(ptx::shared_address(&shared.empty[stage]), CONSUMERS * 4);  // one arrival per warp
        }
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    if (warpgroup == 0) {
        ptx::setmaxnreg_dec<24>();
        if (threadIdx.x == 0) produce(shared, &map_q, &map_k, &map_v, &map_d_out, workspace, tile);
    } else {
        ptx::setmaxnreg_inc<240>();
        const int consumer = warpgroup - 1, row = tile.head + tile.key0 + consumer * 64;
        float dk[DIM / 2] = {}, dv[DIM / 2] = {};
        consume(dk, dv, shared, workspace, tile, consumer, scale);
        store(dv, shared, &map_dv, consumer, row, 1.0f);
        store(dk, shared, &map_dk, consumer, row, scale);
        if (threadIdx.x % 128 == 0) ptx::bulk_wait_group<0>();
    }
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
    if (int error = ptx::encode_matrix_bf16(&map_q, Q, rows, D, QUERIES, HALF)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_k, K, rows, D, KEYS, HALF)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_v, V, rows, D, KEYS, HALF)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_d_out, dO, rows, D, QUERIES, HALF)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_dk, dK, rows, D, 64, HALF)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_dv, dV, rows, D, 64, HALF)) return error;
    constexpr int bytes = sizeof(Shared);
    if (int error = cudaFuncSetAttribute(backward, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return error;
    prepare<<<rows / 8, 256, 0, stream>>>(O, dO, LSE, parts);
    backward<<<rows / KEYS, THREADS, bytes, stream>>>(map_q, map_k, map_v, map_d_out, map_dk, map_dv, parts, S,
                                                   scale);
    finish<<<rows / 8, 256, 0, stream>>>(parts, dQ, scale);
    return cudaGetLastError();
}
