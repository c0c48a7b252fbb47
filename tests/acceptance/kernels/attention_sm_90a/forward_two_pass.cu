// No online softmax: a first pass over the keys finds each row's maximum, a second one makes the weights with it, so that
// nothing is ever rescaled.
#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/attention.cuh"
#include "parts/attention_hopper.cuh"

constexpr int TILE_Q = 64, TILE_KV = 64, CAUSAL = 0;

struct Shared {
    alignas(1024) bf16 q[TILE_Q * DIM];
    alignas(1024) bf16 k[TILE_KV * DIM];
    alignas(1024) bf16 v[TILE_KV * DIM];
    uint64_t full;
};

__global__ void __launch_bounds__(128)
attention(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
          const __grid_constant__ CUtensorMap map_v, bf16* O, float* LSE, int S) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int head = blockIdx.y * S, q0 = blockIdx.x * TILE_Q, blocks = (CAUSAL ? q0 + TILE_Q : S) / TILE_KV;
    const uint32_t q = address(shared.q), k = address(shared.k), v = address(shared.v);
    int phase = 0;
    if (threadIdx.x == 0) {
        init(shared.full, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();

    float s[TILE_KV / 2];
    const auto scores = [&](int block, bool with_values) {
        if (threadIdx.x == 0) {
            const bool first = block == 0 && !with_values;
            const int tiles = 1 + first + with_values;
            const uint32_t full = expect(shared.full, tiles * TILE_KV * DIM * 2);
            if (first) load_tile<TILE_Q>(q, &map_q, full, head + q0);
            load_tile<TILE_KV>(k, &map_k, full, head + block * TILE_KV);
            if (with_values) load_tile<TILE_KV>(v, &map_v, full, head + block * TILE_KV);
        }
        wait(shared.full, phase);
        phase ^= 1;
        ptx::wgmma_fence();
        multiply_over_dim<TILE_Q>(s, q, k);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        if (CAUSAL && block == blocks - 1) mask(s, q0, block * TILE_KV);
    };

    float top[2] = {-INFINITY, -INFINITY}, sum[2] = {}, o[DIM / 2] = {};
    for (int block = 0; block < blocks; ++block) {
        float block_top[2];
        scores(block, false);
        row_maxima(block_top, s);
        for (int r = 0; r < 2; ++r) top[r] = fmaxf(top[r], block_top[r]);
        __syncthreads();
    }
    for (int block = 0; block < blocks; ++block) {
        scores(block, true);
#pragma unroll
        for (int i = 0; i < TILE_KV / 2; ++i) {
            s[i] = expf((s[i] - top[i / 2 % 2]) * (SCALE * LN2));
            sum[i / 2 % 2] += s[i];
        }
        uint32_t p[TILE_KV / 16][4];
        to_fragments(p, s);
        ptx::wgmma_fence();
        multiply_weights<TILE_KV>(o, p, v);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
    }
    sum[0] = sum_of_four(sum[0]);
    sum[1] = sum_of_four(sum[1]);
    store_rows(o, O, head + q0, 1 / sum[0], 1 / sum[1]);
    if (threadIdx.x % 4 == 0)
        for (int r = 0; r < 2; ++r) LSE[head + q0 + row_of(2 * r)] = top[r] * (SCALE * LN2) + logf(sum[r]);
}

extern "C" int launch(const bf16* Q, const bf16* K, const bf16* V, bf16* O, float* LSE, int B, int H, int S, int D,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_q, map_k, map_v;
    if (int error = encode(&map_q, Q, B * H * S, D, TILE_Q)) return error;
    if (int error = encode(&map_k, K, B * H * S, D, TILE_KV)) return error;
    if (int error = encode(&map_v, V, B * H * S, D, TILE_KV)) return error;
    if (int error = allow_shared(attention, sizeof(Shared))) return error;
    attention<<<dim3(S / TILE_Q, B * H), 128, sizeof(Shared), stream>>>(map_q, map_k, map_v, O, LSE, S);
    return cudaGetLastError();
}
