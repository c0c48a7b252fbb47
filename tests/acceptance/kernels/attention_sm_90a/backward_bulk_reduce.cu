// One pass over the queries for 64 keys; dQ is added up in an fp32 workspace by one bulk reduction per tile, from where a
// last kernel rounds it. Delta is computed anew in every CTA.
#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/attention.cuh"
#include "parts/attention_hopper.cuh"

constexpr int CAUSAL = 0;
constexpr int TILE = 64;

struct Shared {
    alignas(1024) bf16 k[TILE * DIM], v[TILE * DIM], q[TILE * DIM], d_out[TILE * DIM];
    alignas(1024) bf16 ds[TILE * TILE];  // a row per key
    alignas(128) float dq[TILE * DIM];
    float lse[TILE], delta[TILE];
    uint64_t full;
};

struct Maps {
    CUtensorMap q, k, v, d_out;
};

__global__ void __launch_bounds__(128)
backward(const __grid_constant__ Maps maps, const bf16* O, const bf16* dO, const float* LSE, float* sums, bf16* dK,
         bf16* dV, int S) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int head = blockIdx.y * S, key = blockIdx.x * TILE, first = CAUSAL ? key : 0;
    const uint32_t k = address(shared.k), ds = address(shared.ds), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        init(shared.full, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    float dk[DIM / 2] = {}, dv[DIM / 2] = {};
    for (int query = first, phase = 0; query < S; query += TILE, phase ^= 1) {
        if (threadIdx.x == 0) {
            const uint32_t full = expect(shared.full, (query == first ? 4 : 2) * sizeof(shared.q));
            if (query == first) {
                load_tile<TILE>(k, &maps.k, full, head + key);
                load_tile<TILE>(address(shared.v), &maps.v, full, head + key);
            }
            load_tile<TILE>(address(shared.q), &maps.q, full, head + query);
            load_tile<TILE>(address(shared.d_out), &maps.d_out, full, head + query);
        }
        const size_t row = size_t(head + query + threadIdx.x / 2) * DIM + threadIdx.x % 2 * PANEL;  // half a row a thread
        float delta = 0;
        for (int i = 0; i < PANEL; ++i) delta += __bfloat162float(O[row + i]) * __bfloat162float(dO[row + i]);
        delta += __shfl_xor_sync(0xffffffff, delta, 1);
        if (threadIdx.x % 2 == 0) {
            shared.delta[threadIdx.x / 2] = delta;
            shared.lse[threadIdx.x / 2] = LSE[head + query + threadIdx.x / 2] * LOG2E;
        }
        __syncthreads();
        wait(shared.full, phase);

        float s[TILE / 2], dp[TILE / 2];
        ptx::wgmma_fence();
        multiply_over_dim<TILE>(s, k, address(shared.q));
        multiply_over_dim<TILE>(dp, address(shared.v), address(shared.d_out));
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
#pragma unroll
        for (int i = 0; i < TILE / 2; ++i) {
            const int at = column_of(i);
            s[i] = CAUSAL && key + row_of(i) > query + at ? 0 : ptx::exp2_approx(s[i] * SCALE - shared.lse[at]);
            dp[i] = s[i] * (dp[i] - shared.delta[at]);
        }
        uint32_t p[TILE / 16][4], packed[TILE / 16][4];
        to_fragments(p, s);
        to_fragments(packed, dp);
#pragma unroll
        for (int j = 0; j < TILE / 16; ++j) {
            const uint32_t r = warp * 16 + lane % 16, chunk = j * 2 + lane / 16;
            ptx::stmatrix_x4(ds + r * 128 + ((chunk ^ r % 8) << 4), packed[j]);
        }
        ptx::fence_proxy_async_shared();
        if (threadIdx.x == 0) ptx::bulk_wait_group_read<0>();  // the sums of the tile before have left
        __syncthreads();

        float dq[DIM / 2];
        ptx::wgmma_fence();
        multiply_weights<TILE>(dv, p, address(shared.d_out));
        multiply_weights<TILE>(dk, packed, address(shared.q));
#pragma unroll
        for (int step = 0; step < TILE / 16; ++step)
            mma<ptx::Major::mn, ptx::Major::mn>(
                dq, ptx::wgmma_descriptor(ds, 0, 1024, ptx::Swizzle::bytes128) + 128 * step,
                ptx::wgmma_descriptor(k, TILE * 128, 1024, ptx::Swizzle::bytes128) + 128 * step, step > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
#pragma unroll
        for (int i = 0; i < DIM / 2; i += 2)
            *reinterpret_cast<float2*>(shared.dq + row_of(i) * DIM + column_of(i)) = {dq[i], dq[i + 1]};
        ptx::fence_proxy_async_shared();
        __syncthreads();
        if (threadIdx.x == 0) {
            ptx::bulk_reduce_add_f32(sums + size_t(head + query) * DIM, address(shared.dq), sizeof(shared.dq));
            ptx::bulk_commit_group();
        }
    }
    if (threadIdx.x == 0) ptx::bulk_wait_group<0>();
    store_rows(dk, dK, head + key, SCALE * LN2, SCALE * LN2);
    store_rows(dv, dV, head + key, 1, 1);
}

__global__ void finish(const float* sums, bf16* dQ) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    dQ[i] = __float2bfloat16_rn(sums[i] * (SCALE * LN2));
}

extern "C" size_t workspace_bytes(int B, int H, int S, int D) { return size_t(B) * H * S * D * sizeof(float); }

extern "C" int launch(const bf16* Q, const bf16* K, const bf16* V, const bf16* O, const bf16* dO, const float* LSE,
                      bf16* dQ, bf16* dK, bf16* dV, int B, int H, int S, int D, void* workspace, cudaStream_t stream) {
    const int rows = B * H * S;
    Maps maps;
    if (int error = encode(&maps.q, Q, rows, D, TILE)) return error;
    if (int error = encode(&maps.k, K, rows, D, TILE)) return error;
    if (int error = encode(&maps.v, V, rows, D, TILE)) return error;
    if (int error = encode(&maps.d_out, dO, rows, D, TILE)) return error;
    if (int error = allow_shared(backward, sizeof(Shared))) return error;
    float* sums = static_cast<float*>(workspace);
    if (int error = cudaMemsetAsync(sums, 0, workspace_bytes(B, H, S, D), stream)) return error;
    backward<<<dim3(S / TILE, B * H), 128, sizeof(Shared), stream>>>(maps, O, dO, LSE, sums, dK, dV, S);
    finish<<<rows / 2, 2 * DIM, 0, stream>>>(sums, dQ);
    return cudaGetLastError();
}
