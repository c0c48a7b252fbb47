// The weights go through shared memory: stmatrix puts them into a swizzled tile, and both operands of the second product
// come from there. Keys are walked from the last block to the first.
#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/attention.cuh"
#include "parts/attention_hopper.cuh"

constexpr int TILE_Q = 64, TILE_KV = 64, CAUSAL = 0;

struct Shared {
    alignas(1024) bf16 q[TILE_Q * DIM];
    alignas(1024) bf16 k[TILE_KV * DIM];
    alignas(1024) bf16 v[TILE_KV * DIM];
    alignas(1024) bf16 p[TILE_Q * TILE_KV];
    uint64_t q_full, k_full, v_full;
};

__global__ void __launch_bounds__(128)
attention(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
          const __grid_constant__ CUtensorMap map_v, bf16* O, float* LSE, int S) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int head = blockIdx.y * S, q0 = blockIdx.x * TILE_Q, blocks = (CAUSAL ? q0 + TILE_Q : S) / TILE_KV;
    const uint32_t k = address(shared.k), v = address(shared.v), p = address(shared.p);
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const auto load_keys = [&](int block) {
        load_tile<TILE_KV>(k, &map_k, expect(shared.k_full, sizeof(shared.k)), head + block * TILE_KV);
    };
    const auto load_values = [&](int block) {
        load_tile<TILE_KV>(v, &map_v, expect(shared.v_full, sizeof(shared.v)), head + block * TILE_KV);
    };
    if (threadIdx.x == 0) {
        init(shared.q_full, 1);
        init(shared.k_full, 1);
        init(shared.v_full, 1);
        ptx::fence_mbarrier_init();
        load_tile<TILE_Q>(address(shared.q), &map_q, expect(shared.q_full, sizeof(shared.q)), head + q0);
        load_keys(blocks - 1);
        load_values(blocks - 1);
    }
    __syncthreads();
    wait(shared.q_full, 0);

    float o[DIM / 2] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int done = 0; done < blocks; ++done) {
        const int block = blocks - 1 - done;
        float s[TILE_KV / 2], block_top[2];
        wait(shared.k_full, done & 1);
        ptx::wgmma_fence();
        multiply_over_dim<TILE_Q>(s, address(shared.q), k);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
        if (threadIdx.x == 0 && block > 0) load_keys(block - 1);  // while the weights are made
        if (CAUSAL && done == 0) mask(s, q0, block * TILE_KV);
        row_maxima(block_top, s);
        float correction[2];
        for (int r = 0; r < 2; ++r) {
            const float next = fmaxf(top[r], block_top[r]);
            correction[r] = exp2f((top[r] - next) * SCALE);
            sum[r] *= correction[r];
            top[r] = next;
        }
#pragma unroll
        for (int i = 0; i < TILE_KV / 2; ++i) {
            s[i] = exp2f((s[i] - top[i / 2 % 2]) * SCALE);
            sum[i / 2 % 2] += s[i];
        }
#pragma unroll
        for (int i = 0; i < DIM / 2; ++i) o[i] *= correction[i / 2 % 2];
        uint32_t rounded[TILE_KV / 16][4];
        to_fragments(rounded, s);
#pragma unroll
        for (int j = 0; j < TILE_KV / 16; ++j) {
            const uint32_t row = warp * 16 + lane % 16, chunk = j * 2 + lane / 16;
            ptx::stmatrix_x4(p + row * 128 + ((chunk ^ row % 8) << 4), rounded[j]);
        }
        ptx::fence_proxy_async_shared();
        __syncthreads();
        wait(shared.v_full, done & 1);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < TILE_KV / 16; ++step)
            mma<ptx::Major::k, ptx::Major::mn>(
                o, ptx::wgmma_descriptor_k128(p) + 2 * step,
                ptx::wgmma_descriptor(v, TILE_KV * 128, 1024, ptx::Swizzle::bytes128) + 128 * step, true);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
        if (threadIdx.x == 0 && block > 0) load_values(block - 1);
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
