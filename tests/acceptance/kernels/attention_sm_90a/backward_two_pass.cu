// Two passes without atomics: one kernel walks over the queries for 64 keys (dK, dV), the other over the keys for 64
// queries (dQ); both compute S and dP again. RECOMPUTE ignores the given O and LSE: a pass over the keys finds the LSE,
// and delta as the sum of P o dP.
#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/attention.cuh"
#include "parts/attention_hopper.cuh"

constexpr int CAUSAL = 0, RECOMPUTE = 0;
constexpr int TILE = 64;

struct Shared {
    alignas(1024) bf16 x1[TILE * DIM], x2[TILE * DIM];  // stay: K and V, or Q and dO
    alignas(1024) bf16 y1[TILE * DIM], y2[TILE * DIM];  // walked over: Q and dO, or K and V
    uint64_t full;
};

struct Maps {
    CUtensorMap q, k, v, d_out;
};

struct Statistics {
    float* lse;  // in powers of two
    float* delta;
};

// s = X1 Y1^T and dp = X2 Y2^T of the tiles at the rows x and y; X is loaded in step 0.
__device__ __forceinline__ void products(float (&s)[TILE / 2], float (&dp)[TILE / 2], Shared& shared,
                                         const CUtensorMap* x1, const CUtensorMap* x2, const CUtensorMap* y1,
                                         const CUtensorMap* y2, int x, int y, int step) {
    if (threadIdx.x == 0) {
        const uint32_t full = expect(shared.full, (step == 0 ? 4 : 2) * sizeof(shared.y1));
        if (step == 0) {
            load_tile<TILE>(address(shared.x1), x1, full, x);
            load_tile<TILE>(address(shared.x2), x2, full, x);
        }
        load_tile<TILE>(address(shared.y1), y1, full, y);
        load_tile<TILE>(address(shared.y2), y2, full, y);
    }
    wait(shared.full, step & 1);
    ptx::wgmma_fence();
    multiply_over_dim<TILE>(s, address(shared.x1), address(shared.y1));
    multiply_over_dim<TILE>(dp, address(shared.x2), address(shared.y2));
    ptx::wgmma_commit_group();
    ptx::wgmma_wait_group<0>();
}

__device__ Shared& set_up() {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    if (threadIdx.x == 0) {
        init(shared.full, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    return shared;
}

__global__ void __launch_bounds__(128) gradients_of_keys(const __grid_constant__ Maps maps, Statistics given, bf16* dK,
                                                         bf16* dV, int S) {
    Shared& shared = set_up();
    const int head = blockIdx.y * S, key = blockIdx.x * TILE, first = CAUSAL ? key : 0;
    float dk[DIM / 2] = {}, dv[DIM / 2] = {};
    for (int query = first; query < S; query += TILE) {
        float s[TILE / 2], dp[TILE / 2];
        products(s, dp, shared, &maps.k, &maps.v, &maps.q, &maps.d_out, head + key, head + query, (query - first) / TILE);
#pragma unroll
        for (int i = 0; i < TILE / 2; ++i) {
            const int at = query + column_of(i);
            s[i] = CAUSAL && key + row_of(i) > at ? 0 : ptx::exp2_approx(fmaf(s[i], SCALE, -given.lse[head + at]));
            dp[i] = s[i] * (dp[i] - given.delta[head + at]);
        }
        uint32_t p[TILE / 16][4], ds[TILE / 16][4];
        to_fragments(p, s);
        to_fragments(ds, dp);
        ptx::wgmma_fence();
        multiply_weights<TILE>(dv, p, address(shared.y2));
        multiply_weights<TILE>(dk, ds, address(shared.y1));
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
    }
    store_rows(dk, dK, head + key, SCALE * LN2, SCALE * LN2);
    store_rows(dv, dV, head + key, 1, 1);
}

__global__ void __launch_bounds__(128) gradients_of_queries(const __grid_constant__ Maps maps, Statistics given, bf16* dQ,
                                                            int S) {
    Shared& shared = set_up();
    const int head = blockIdx.y * S, query = blockIdx.x * TILE, last = CAUSAL ? query + TILE : S;
    float dq[DIM / 2] = {}, lse[2], delta[2];
    for (int r = 0; r < 2; ++r) {
        lse[r] = given.lse[head + query + row_of(2 * r)];
        delta[r] = given.delta[head + query + row_of(2 * r)];
    }
    for (int key = 0; key < last; key += TILE) {
        float s[TILE / 2], dp[TILE / 2];
        products(s, dp, shared, &maps.q, &maps.d_out, &maps.k, &maps.v, head + query, head + key, key / TILE);
        if (CAUSAL && key == query) mask(s, query, key);
#pragma unroll
        for (int i = 0; i < TILE / 2; ++i)
            dp[i] = ptx::exp2_approx(fmaf(s[i], SCALE, -lse[i / 2 % 2])) * (dp[i] - delta[i / 2 % 2]);
        uint32_t ds[TILE / 16][4];
        to_fragments(ds, dp);
        ptx::wgmma_fence();
        multiply_weights<TILE>(dq, ds, address(shared.y1));
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
    }
    store_rows(dq, dQ, head + query, SCALE * LN2, SCALE * LN2);
}

__global__ void __launch_bounds__(128) recompute(const __grid_constant__ Maps maps, Statistics found, int S) {
    Shared& shared = set_up();
    const int head = blockIdx.y * S, query = blockIdx.x * TILE, last = CAUSAL ? query + TILE : S;
    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, weighted[2] = {};
    for (int key = 0; key < last; key += TILE) {
        float s[TILE / 2], dp[TILE / 2], block_top[2];
        products(s, dp, shared, &maps.q, &maps.d_out, &maps.k, &maps.v, head + query, head + key, key / TILE);
        if (CAUSAL && key == query) mask(s, query, key);
        row_maxima(block_top, s);
        for (int r = 0; r < 2; ++r) {
            const float next = fmaxf(top[r], block_top[r] * SCALE), correction = ptx::exp2_approx(top[r] - next);
            sum[r] *= correction;
            weighted[r] *= correction;
            top[r] = next;
        }
#pragma unroll
        for (int i = 0; i < TILE / 2; ++i) {
            const float p = ptx::exp2_approx(fmaf(s[i], SCALE, -top[i / 2 % 2]));
            sum[i / 2 % 2] += p;
            weighted[i / 2 % 2] += p * dp[i];
        }
        __syncthreads();
    }
    for (int r = 0; r < 2; ++r) {
        const float total = sum_of_four(sum[r]), products = sum_of_four(weighted[r]);
        if (threadIdx.x % 4) continue;
        found.lse[head + query + row_of(2 * r)] = top[r] + log2f(total);
        found.delta[head + query + row_of(2 * r)] = products / total;
    }
}

__global__ void prepare(const bf16* O, const bf16* dO, const float* LSE, Statistics found) {  // a warp per row
    const size_t row = size_t(blockIdx.x) * 4 + threadIdx.x / 32;
    float sum = 0;
    for (int i = threadIdx.x % 32; i < DIM; i += 32)
        sum += __bfloat162float(O[row * DIM + i]) * __bfloat162float(dO[row * DIM + i]);
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    if (threadIdx.x % 32) return;
    found.delta[row] = sum;
    found.lse[row] = LSE[row] * LOG2E;
}

extern "C" size_t workspace_bytes(int B, int H, int S, int D) { return size_t(B) * H * S * 2 * sizeof(float); }

extern "C" int launch(const bf16* Q, const bf16* K, const bf16* V, const bf16* O, const bf16* dO, const float* LSE,
                      bf16* dQ, bf16* dK, bf16* dV, int B, int H, int S, int D, void* workspace, cudaStream_t stream) {
    const int rows = B * H * S;
    Maps maps;
    if (int error = encode(&maps.q, Q, rows, D, TILE)) return error;
    if (int error = encode(&maps.k, K, rows, D, TILE)) return error;
    if (int error = encode(&maps.v, V, rows, D, TILE)) return error;
    if (int error = encode(&maps.d_out, dO, rows, D, TILE)) return error;
    if (int error = allow_shared(gradients_of_keys, sizeof(Shared))) return error;
    if (int error = allow_shared(gradients_of_queries, sizeof(Shared))) return error;
    if (int error = allow_shared(recompute, sizeof(Shared))) return error;
    const Statistics found{static_cast<float*>(workspace), static_cast<float*>(workspace) + rows};
    const dim3 grid(S / TILE, B * H);
    if (RECOMPUTE)
        recompute<<<grid, 128, sizeof(Shared), stream>>>(maps, found, S);
    else
        prepare<<<rows / 4, 128, 0, stream>>>(O, dO, LSE, found);
    gradients_of_keys<<<grid, 128, sizeof(Shared), stream>>>(maps, found, dK, dV, S);
    gradients_of_queries<<<grid, 128, sizeof(Shared), stream>>>(maps, found, dQ, S);
    return cudaGetLastError();
}
