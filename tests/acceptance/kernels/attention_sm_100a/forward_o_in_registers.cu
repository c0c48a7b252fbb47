// O is summed up in registers: every block's P V is a fresh product in tensor memory. P goes through shared memory. One
// warpgroup, a row of 128 queries each thread, no overlap.
#include "parts/common.cuh"
#include "parts/blackwell.cuh"
#include "parts/attention.cuh"
#include "parts/attention_blackwell.cuh"

constexpr int CAUSAL = 0;
constexpr int SCORES = 0, PRODUCT = 128, COLUMNS = 256;

struct Shared {
    alignas(1024) bf16 q[ROWS * DIM], k[ROWS * DIM], v[ROWS * DIM], p[ROWS * ROWS];
    uint64_t full, done;
    uint32_t tmem;
};

__global__ void __launch_bounds__(128)
attention(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
          const __grid_constant__ CUtensorMap map_v, bf16* O, float* LSE, int S) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int head = blockIdx.y * S, q0 = blockIdx.x * ROWS, blocks = (CAUSAL ? q0 + ROWS : S) / ROWS;
    const int warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        init(shared.full, 1);
        init(shared.done, 1);
        ptx::fence_mbarrier_init();
    }
    if (warp == 0) ptx::tcgen05_alloc(address(&shared.tmem), COLUMNS);
    sync_tmem();
    const uint32_t tmem = shared.tmem, lanes = tmem + (warp * 32 << 16);

    const auto load_scores = [&](float(&s)[32], int block, int part) {
        load_columns(s, lanes + SCORES + part * 32);
        if (!CAUSAL || block < blocks - 1) return;
#pragma unroll
        for (int i = 0; i < 32; ++i)
            if (part * 32 + i > threadIdx.x) s[i] = -INFINITY;
    };

    float o[4][32] = {}, top = -INFINITY, sum = 0;
    for (int block = 0; block < blocks; ++block) {
        if (threadIdx.x == 0) {
            const uint32_t full = expect(shared.full, (block == 0 ? 3 : 2) * TILE_BYTES);
            if (block == 0) load_tile<ROWS>(address(shared.q), &map_q, full, head + q0);
            load_tile<ROWS>(address(shared.k), &map_k, full, head + block * ROWS);
            load_tile<ROWS>(address(shared.v), &map_v, full, head + block * ROWS);
            wait_tmem(shared.full, block & 1);
            multiply_over_dim(tmem + SCORES, address(shared.q), address(shared.k));
            commit(shared.done);
        }
        __syncwarp();
        wait_tmem(shared.done, 0);  // two phases a block
        float s[32], next = top;
        for (int part = 0; part < 4; ++part) {
            load_scores(s, block, part);
#pragma unroll
            for (int i = 0; i < 32; ++i) next = fmaxf(next, s[i]);
        }
        const float correction = ptx::exp2_approx((top - next) * SCALE);
        sum *= correction;
        top = next;
        for (int part = 0; part < 4; ++part) {
            load_scores(s, block, part);
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                s[i] = ptx::exp2_approx((s[i] - top) * SCALE);
                sum += s[i];
            }
            put_columns(shared.p, s, part * 32);
        }
        ptx::fence_proxy_async_shared();
        sync_tmem();
        if (threadIdx.x == 0) {
            multiply_weights(tmem + PRODUCT, address(shared.p), address(shared.v), false);
            commit(shared.done);
        }
        __syncwarp();
        wait_tmem(shared.done, 1);
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            float product[32];
            load_columns(product, lanes + PRODUCT + part * 32);
#pragma unroll
            for (int i = 0; i < 32; ++i) o[part][i] = fmaf(o[part][i], correction, product[i]);
        }
        sync_tmem();
    }
    const size_t row = head + q0 + threadIdx.x;
    for (int part = 0; part < 4; ++part) store_columns(O + row * DIM + part * 32, o[part], 1 / sum);
    LSE[row] = top * (SCALE * LN2) + logf(sum);
    if (warp == 0) ptx::tcgen05_dealloc(tmem, COLUMNS);
}

extern "C" int launch(const bf16* Q, const bf16* K, const bf16* V, bf16* O, float* LSE, int B, int H, int S, int D,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_q, map_k, map_v;
    if (int error = encode(&map_q, Q, B * H * S, D, ROWS)) return error;
    if (int error = encode(&map_k, K, B * H * S, D, ROWS)) return error;
    if (int error = encode(&map_v, V, B * H * S, D, ROWS)) return error;
    if (int error = allow_shared(attention, sizeof(Shared))) return error;
    attention<<<dim3(S / ROWS, B * H), 128, sizeof(Shared), stream>>>(map_q, map_k, map_v, O, LSE, S);
    return cudaGetLastError();
}
