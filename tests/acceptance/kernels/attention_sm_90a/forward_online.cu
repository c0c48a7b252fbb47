// Online softmax in two warpgroups of 64 queries; two stages of keys and values. Tile of keys, mask, the tolerance before
// sums are rescaled (in powers of two) and the way to exponentials (special function unit, or a cubic in FMAs) vary.
#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/attention.cuh"
#include "parts/attention_hopper.cuh"

constexpr int TILE_KV = 128, CAUSAL = 0, LAZY = 0, POLYNOMIAL = 0;
constexpr int TILE_Q = 128, BYTES_KV = TILE_KV * DIM * 2;

struct Shared {
    alignas(1024) bf16 q[TILE_Q * DIM];
    alignas(1024) bf16 k[2][TILE_KV * DIM];
    alignas(1024) bf16 v[2][TILE_KV * DIM];
    uint64_t q_full, k_full[2], v_full[2];
};

// 2^x for x <= 0: a cubic on [0, 1), which meets 2^x at the Chebyshev nodes (relative error 1e-4), times a power of two.
__device__ __forceinline__ float exp2_cubic(float x) {
    x = fmaxf(x, -126.0f);
    const float whole = floorf(x), f = x - whole;
    const float cubic = fmaf(fmaf(fmaf(0.0789673f, f, 0.2246932f), f, 0.6963248f), f, 0.9999003f);
    return __int_as_float(__float_as_int(cubic) + (static_cast<int>(whole) << 23));
}

__device__ __forceinline__ float power_of_two(float x) { return POLYNOMIAL ? exp2_cubic(x) : ptx::exp2_approx(x); }

__global__ void __launch_bounds__(256, 1)
attention(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
          const __grid_constant__ CUtensorMap map_v, bf16* O, float* LSE, int S) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int head = blockIdx.y * S, q0 = blockIdx.x * TILE_Q, own = q0 + threadIdx.x / 128 * 64;
    const int blocks = (CAUSAL ? q0 + TILE_Q : S) / TILE_KV;
    const auto load = [&](int block) {
        const uint32_t k_full = expect(shared.k_full[block % 2], BYTES_KV);
        load_tile<TILE_KV>(address(shared.k[block % 2]), &map_k, k_full, head + block * TILE_KV);
        const uint32_t v_full = expect(shared.v_full[block % 2], BYTES_KV);
        load_tile<TILE_KV>(address(shared.v[block % 2]), &map_v, v_full, head + block * TILE_KV);
    };
    if (threadIdx.x == 0) {
        init(shared.q_full, 1);
        for (int i = 0; i < 2; ++i) {
            init(shared.k_full[i], 1);
            init(shared.v_full[i], 1);
        }
        ptx::fence_mbarrier_init();
        load_tile<TILE_Q>(address(shared.q), &map_q, expect(shared.q_full, sizeof(shared.q)), head + q0);
        for (int block = 0; block < 2 && block < blocks; ++block) load(block);
    }
    __syncthreads();
    wait(shared.q_full, 0);

    float o[DIM / 2] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};  // top in powers of two
    for (int block = 0; block < blocks; ++block) {
        const int buffer = block % 2, phase = block / 2 & 1;
        float s[TILE_KV / 2], block_top[2];
        wait(shared.k_full[buffer], phase);
        ptx::wgmma_fence();
        multiply_over_dim<TILE_Q>(s, address(shared.q) + threadIdx.x / 128 * 64 * 128, address(shared.k[buffer]));
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        if (CAUSAL && (block + 1) * TILE_KV > own) mask(s, own, block * TILE_KV);

        row_maxima(block_top, s);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            block_top[r] *= SCALE;
            if (block_top[r] <= top[r] + LAZY) continue;
            const float correction = ptx::exp2_approx(top[r] - block_top[r]);  // 0 for the first block
            sum[r] *= correction;
            top[r] = block_top[r];
#pragma unroll
            for (int i = 0; i < DIM / 2; ++i)
                if (i / 2 % 2 == r) o[i] *= correction;
        }
#pragma unroll
        for (int i = 0; i < TILE_KV / 2; ++i) {
            s[i] = power_of_two(fmaf(s[i], SCALE, -top[i / 2 % 2]));
            sum[i / 2 % 2] += s[i];
        }
        uint32_t p[TILE_KV / 16][4];
        to_fragments(p, s);
        wait(shared.v_full[buffer], phase);
        ptx::wgmma_fence();
        multiply_weights<TILE_KV>(o, p, address(shared.v[buffer]));
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
        if (threadIdx.x == 0 && block + 2 < blocks) load(block + 2);
    }

    sum[0] = sum_of_four(sum[0]);
    sum[1] = sum_of_four(sum[1]);
    store_rows(o, O, head + own, 1 / sum[0], 1 / sum[1]);
    if (threadIdx.x % 4 == 0)
        for (int r = 0; r < 2; ++r) LSE[head + own + row_of(2 * r)] = (top[r] + log2f(sum[r])) * LN2;
}

extern "C" int launch(const bf16* Q, const bf16* K, const bf16* V, bf16* O, float* LSE, int B, int H, int S, int D,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_q, map_k, map_v;
    if (int error = encode(&map_q, Q, B * H * S, D, TILE_Q)) return error;
    if (int error = encode(&map_k, K, B * H * S, D, TILE_KV)) return error;
    if (int error = encode(&map_v, V, B * H * S, D, TILE_KV)) return error;
    if (int error = allow_shared(attention, sizeof(Shared))) return error;
    attention<<<dim3(S / TILE_Q, B * H), 256, sizeof(Shared), stream>>>(map_q, map_k, map_v, O, LSE, S);
    return cudaGetLastError();
}
