// Gradients dQ, dK, dV of softmax attention O = softmax(Q*K^T / sqrt(D)) * V, on Hopper's warpgroup matrix instruction.
//
// Step 1: the plain scheme. With P the softmax weights, delta = rowsum(dO o O) and dP = dO*V^T,
//     dS = P o (dP - delta),   dV = P^T*dO,   dK = dS^T*Q / sqrt(D),   dQ = dS*K / sqrt(D).
// A CTA keeps 128 keys of one head and walks over the queries, 64 at a time; each of its two warpgroups has 64 keys. It
// computes the transposed tiles S^T = K*Q^T and dP^T = V*dO^T, because then the accumulators of P^T and dS^T, rounded
// to bf16, are already the A fragments of dV += P^T*dO and dK += dS^T*Q. Only dQ = dS*K, which sums over the keys of
// both warpgroups and of all CTAs, takes dS through shared memory and ends in atomic additions to an fp32 workspace.
// A first kernel prepares delta and zeros, a last one rounds dQ. Nothing overlaps yet: load, multiply, load, multiply.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/math.cuh>
#include <ptxbench/ptx/matrix.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>
#include <ptxbench/ptx/wgmma.cuh>

namespace {

using bf16 = __nv_bfloat16;

constexpr bool CAUSAL = true;  // whether a query sees only the keys up to its own position
constexpr int DIM = 128, KEYS = 128, QUERIES = 64;
constexpr int THREADS = 256;
constexpr int HALF = 64;  // columns of a panel: 128 bytes, one swizzle atom
constexpr float LOG2E = 1.4426950408889634f;

// What lies in the workspace; rows are those of Q, all heads one after the other.
struct Workspace {
    float* dq;     // [rows][DIM], sums of dS*K
    float* lse;    // [rows], LSE in units of log2
    float* delta;  // [rows]

    __host__ __device__ Workspace(void* base, size_t rows)
        : dq(static_cast<float*>(base)), lse(dq + rows * DIM), delta(lse + rows) {}
};

// Tiles of DIM columns are two panels of 64 columns, as TMA writes them.
struct Shared {
    alignas(1024) bf16 k[2][KEYS * HALF];
    alignas(1024) bf16 v[2][KEYS * HALF];
    alignas(1024) bf16 q[2][QUERIES * HALF];
    alignas(1024) bf16 d_out[2][QUERIES * HALF];
    alignas(1024) bf16 ds[KEYS * QUERIES];  // dS^T: a row per key
    alignas(8) uint64_t keys_full, queries_full;
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

// Rounds the sums to dQ; four elements per thread.
__global__ void finish(Workspace workspace, bf16* dQ, float scale) {
    const size_t index = static_cast<size_t>(blockIdx.x) * 256 + threadIdx.x;
    const float4 sum = reinterpret_cast<const float4*>(workspace.dq)[index];
    reinterpret_cast<uint2*>(dQ)[index] = {pack(sum.x * scale, sum.y * scale), pack(sum.z * scale, sum.w * scale)};
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

// Rounds 64 rows of accumulators to bf16 and stores them at `row`.
__device__ __forceinline__ void store(const float (&d)[DIM / 2], bf16* to, size_t row, float scale) {
    const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    uint32_t* upper = reinterpret_cast<uint32_t*>(to + (row + warp * 16 + lane / 4) * DIM) + lane % 4;
#pragma unroll
    for (int j = 0; j < DIM / 8; ++j) {
        upper[4 * j] = pack(d[4 * j] * scale, d[4 * j + 1] * scale);
        upper[4 * j + 8 * DIM / 2] = pack(d[4 * j + 2] * scale, d[4 * j + 3] * scale);
    }
}

__global__ void __launch_bounds__(THREADS, 1)
backward(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
         const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_d_out, Workspace workspace,
         bf16* dK, bf16* dV, int S, float scale) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const uint32_t k = ptx::shared_address(shared.k), v = ptx::shared_address(shared.v);
    const uint32_t q = ptx::shared_address(shared.q), d_out = ptx::shared_address(shared.d_out);
    const uint32_t ds = ptx::shared_address(shared.ds);
    const uint32_t keys_full = ptx::shared_address(&shared.keys_full);
    const uint32_t queries_full = ptx::shared_address(&shared.queries_full);
    const int warpgroup = threadIdx.x / 128, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
    const int head = blockIdx.x / (S / KEYS) * S;  // the head's first row in Q, K, ...
    const int key0 = blockIdx.x % (S / KEYS) * KEYS;

    if (threadIdx.x == 0) {
        ptx::mbarrier_init(keys_full, 1);
        ptx::mbarrier_init(queries_full, 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect_tx(keys_full, 2 * KEYS * DIM * sizeof(bf16));
        for (int panel = 0; panel < 2; ++panel) {
            ptx::tma_load_2d(k + panel * KEYS * 128, &map_k, keys_full, panel * HALF, head + key0);
            ptx::tma_load_2d(v + panel * KEYS * 128, &map_v, keys_full, panel * HALF, head + key0);
        }
    }
    __syncthreads();
    ptx::mbarrier_wait_parity(keys_full, 0);

    float dk[DIM / 2] = {}, dv[DIM / 2] = {};
    const int own = warpgroup * 64;  // first key of this warpgroup, in the tile
    int phase = 0;
    for (int query0 = CAUSAL ? key0 : 0; query0 < S; query0 += QUERIES, phase ^= 1) {
        if (threadIdx.x == 0) {
            ptx::mbarrier_arrive_expect_tx(queries_full, 2 * QUERIES * DIM * sizeof(bf16));
            for (int panel = 0; panel < 2; ++panel) {
                ptx::tma_load_2d(q + panel * QUERIES * 128, &map_q, queries_full, panel * HALF, head + query0);
                ptx::tma_load_2d(d_out + panel * QUERIES * 128, &map_d_out, queries_full, panel * HALF, head + query0);
            }
        }
        ptx::mbarrier_wait_parity(queries_full, phase);

        float s[QUERIES / 2], dp[QUERIES / 2];  // of the transposed tiles, keys by queries
        ptx::wgmma_fence();
        multiply_over_dim(s, k + own * 128, q);
        multiply_over_dim(dp, v + own * 128, d_out);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();

        // For every 8 queries a thread holds two adjacent ones of two keys, 8 apart.
        uint32_t p_packed[4][4], ds_packed[4][4];
#pragma unroll
        for (int j = 0; j < QUERIES / 8; ++j) {
            const int query = query0 + j * 8 + lane % 4 * 2, key = key0 + own + warp * 16 + lane / 4;
            const float2 lse = *reinterpret_cast<const float2*>(workspace.lse + head + query);
            const float2 delta = *reinterpret_cast<const float2*>(workspace.delta + head + query);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int at = 4 * j + 2 * i;
                float p0 = ptx::exp2_approx(s[at] * (scale * LOG2E) - lse.x);
                float p1 = ptx::exp2_approx(s[at + 1] * (scale * LOG2E) - lse.y);
                if (CAUSAL && key + 8 * i > query) p0 = 0;
                if (CAUSAL && key + 8 * i > query + 1) p1 = 0;
                p_packed[j / 2][j % 2 * 2 + i] = pack(p0, p1);
                ds_packed[j / 2][j % 2 * 2 + i] = pack(p0 * (dp[at] - delta.x), p1 * (dp[at + 1] - delta.y));
            }
        }
#pragma unroll
        for (int step = 0; step < QUERIES / 16; ++step) {  // 16x16 elements, lane by lane one 16-byte row of 8
            const uint32_t row = own + warp * 16 + lane % 16, chunk = step * 2 + lane / 16;
            ptx::stmatrix_x4(ds + row * 128 + ((chunk ^ row % 8) << 4), ds_packed[step]);  // 128-byte swizzle
        }
        ptx::fence_proxy_async_shared();
        __syncthreads();

        float dq[HALF / 2];  // 64 queries and this warpgroup's half of the columns
        ptx::wgmma_fence();
        multiply_over_queries(dv, p_packed, d_out);
        multiply_over_queries(dk, ds_packed, q);
        multiply_over_keys(dq, ds, k + warpgroup * KEYS * 128);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();  // every warp is done with the tiles before they are written again

        const size_t row = head + query0 + warp * 16 + lane / 4;
        float2* sums = reinterpret_cast<float2*>(workspace.dq + row * DIM + warpgroup * HALF) + lane % 4;
#pragma unroll
        for (int j = 0; j < HALF / 8; ++j) {
            atomicAdd(sums + 4 * j, float2{dq[4 * j], dq[4 * j + 1]});
            atomicAdd(sums + 4 * j + 8 * DIM / 2, float2{dq[4 * j + 2], dq[4 * j + 3]});
        }
    }

    store(dk, dK, head + key0 + own, scale);
    store(dv, dV, head + key0 + own, 1.0f);
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
    CUtensorMap map_q, map_k, map_v, map_d_out;
    if (int error = ptx::encode_matrix_bf16(&map_q, Q, rows, D, QUERIES, HALF)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_k, K, rows, D, KEYS, HALF)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_v, V, rows, D, KEYS, HALF)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_d_out, dO, rows, D, QUERIES, HALF)) return error;
    constexpr int bytes = sizeof(Shared);
    if (int error = cudaFuncSetAttribute(backward, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return error;
    prepare<<<rows / 8, 256, 0, stream>>>(O, dO, LSE, parts);
    backward<<<rows / KEYS, THREADS, bytes, stream>>>(map_q, map_k, map_v, map_d_out, parts, dK, dV, S, scale);
    finish<<<rows / 8, 256, 0, stream>>>(parts, dQ, scale);
    return cudaGetLastError();
}
