// Two passes without atomics: one kernel walks over the queries for 128 keys (dK, dV), the other over the keys for 128
// queries (dQ). P and dS go through shared memory; all sums stay in tensor memory.
#include "parts/common.cuh"
#include "parts/blackwell.cuh"
#include "parts/attention.cuh"
#include "parts/attention_blackwell.cuh"

constexpr int CAUSAL = 0;
constexpr int S_AT = 0, DP_AT = 128, FIRST = 256, SECOND = 384, COLUMNS = 512;

struct Shared {
    alignas(1024) bf16 x1[ROWS * DIM], x2[ROWS * DIM];  // stay: K and V, or Q and dO
    alignas(1024) bf16 y1[ROWS * DIM], y2[ROWS * DIM];  // walked over: Q and dO, or K and V
    alignas(1024) bf16 ds[ROWS * ROWS], p[ROWS * ROWS];
    uint64_t full, done;
    uint32_t tmem;
};

struct Maps {
    CUtensorMap q, k, v, d_out;
};

// A thread has a row of the tile: a key (KEYS) or a query. With KEYS the tile is S^T, and `first` becomes dK and `second`
// dV; else `first` becomes dQ.
template <bool KEYS>
__global__ void __launch_bounds__(128)
gradients(const __grid_constant__ Maps maps, const float* LSE, const float* delta, bf16* first, bf16* second, int S) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int head = blockIdx.y * S, x0 = blockIdx.x * ROWS, x = x0 + threadIdx.x, warp = threadIdx.x / 32;
    const int begin = CAUSAL && KEYS ? x0 : 0, end = CAUSAL && !KEYS ? x0 + ROWS : S;
    if (threadIdx.x == 0) {
        init(shared.full, 1);
        init(shared.done, 1);
        ptx::fence_mbarrier_init();
    }
    if (warp == 0) ptx::tcgen05_alloc(address(&shared.tmem), COLUMNS);
    sync_tmem();
    const uint32_t tmem = shared.tmem, lanes = tmem + (warp * 32 << 16);

    for (int y0 = begin, phase = 0; y0 < end; y0 += ROWS, phase ^= 1) {
        if (threadIdx.x == 0) {
            const uint32_t full = expect(shared.full, (y0 == begin ? 4 : 2) * TILE_BYTES);
            if (y0 == begin) {
                load_tile<ROWS>(address(shared.x1), KEYS ? &maps.k : &maps.q, full, head + x0);
                load_tile<ROWS>(address(shared.x2), KEYS ? &maps.v : &maps.d_out, full, head + x0);
            }
            load_tile<ROWS>(address(shared.y1), KEYS ? &maps.q : &maps.k, full, head + y0);
            load_tile<ROWS>(address(shared.y2), KEYS ? &maps.d_out : &maps.v, full, head + y0);
            wait_tmem(shared.full, phase);
            multiply_over_dim(tmem + S_AT, address(shared.x1), address(shared.y1));
            multiply_over_dim(tmem + DP_AT, address(shared.x2), address(shared.y2));
            commit(shared.done);
        }
        __syncwarp();
        wait_tmem(shared.done, 0);  // two phases a tile
        for (int part = 0; part < 4; ++part) {
            float s[32], dp[32];
            load_columns(s, lanes + S_AT + part * 32);
            load_columns(dp, lanes + DP_AT + part * 32);
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                const int y = y0 + part * 32 + i, query = KEYS ? y : x, key = KEYS ? x : y;
                s[i] = CAUSAL && key > query ? 0 : ptx::exp2_approx(s[i] * SCALE - LSE[head + query] * LOG2E);
                dp[i] = s[i] * (dp[i] - delta[head + query]);
            }
            if (KEYS) put_columns(shared.p, s, part * 32);
            put_columns(shared.ds, dp, part * 32);
        }
        ptx::fence_proxy_async_shared();
        sync_tmem();
        if (threadIdx.x == 0) {
            multiply_weights(tmem + FIRST, address(shared.ds), address(shared.y1), y0 > begin);
            if (KEYS) multiply_weights(tmem + SECOND, address(shared.p), address(shared.y2), y0 > begin);
            commit(shared.done);
        }
        __syncwarp();
        wait_tmem(shared.done, 1);
        sync_tmem();
    }
    for (int part = 0; part < 4; ++part) {
        float sums[32];
        load_columns(sums, lanes + FIRST + part * 32);
        store_columns(first + size_t(head + x) * DIM + part * 32, sums, SCALE * LN2);
        if (!KEYS) continue;
        load_columns(sums, lanes + SECOND + part * 32);
        store_columns(second + size_t(head + x) * DIM + part * 32, sums, 1);
    }
    sync_tmem();
    if (warp == 0) ptx::tcgen05_dealloc(tmem, COLUMNS);
}

__global__ void prepare(const bf16* O, const bf16* dO, float* delta) {  // a warp per row
    const size_t row = size_t(blockIdx.x) * 4 + threadIdx.x / 32;
    float sum = 0;
    for (int i = threadIdx.x % 32; i < DIM; i += 32)
        sum += __bfloat162float(O[row * DIM + i]) * __bfloat162float(dO[row * DIM + i]);
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
    if (threadIdx.x % 32 == 0) delta[row] = sum;
}

extern "C" size_t workspace_bytes(int B, int H, int S, int D) { return size_t(B) * H * S * sizeof(float); }

extern "C" int launch(const bf16* Q, const bf16* K, const bf16* V, const bf16* O, const bf16* dO, const float* LSE,
                      bf16* dQ, bf16* dK, bf16* dV, int B, int H, int S, int D, void* workspace, cudaStream_t stream) {
    const int rows = B * H * S;
    Maps maps;
    if (int error = encode(&maps.q, Q, rows, D, ROWS)) return error;
    if (int error = encode(&maps.k, K, rows, D, ROWS)) return error;
    if (int error = encode(&maps.v, V, rows, D, ROWS)) return error;
    if (int error = encode(&maps.d_out, dO, rows, D, ROWS)) return error;
    if (int error = allow_shared(gradients<true>, sizeof(Shared))) return error;
    if (int error = allow_shared(gradients<false>, sizeof(Shared))) return error;
    float* delta = static_cast<float*>(workspace);
    const dim3 grid(S / ROWS, B * H);
    prepare<<<rows / 4, 128, 0, stream>>>(O, dO, delta);
    gradients<true><<<grid, 128, sizeof(Shared), stream>>>(maps, LSE, delta, dK, dV, S);
    gradients<false><<<grid, 128, sizeof(Shared), stream>>>(maps, LSE, delta, dQ, nullptr, S);
    return cudaGetLastError();
}
