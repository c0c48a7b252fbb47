// A pass for the maxima of all rows, then one in which O is summed up in tensor memory and never rescaled. P is put into
// tensor memory beside the scores and multiplied from there.
#include "parts/common.cuh"
#include "parts/blackwell.cuh"
#include "parts/attention.cuh"
#include "parts/attention_blackwell.cuh"

constexpr int CAUSAL = 0;
constexpr int SCORES = 0, WEIGHTS = 128, OUTPUT = 256, COLUMNS = 512;

struct Shared {
    alignas(1024) bf16 q[ROWS * DIM], k[ROWS * DIM], v[ROWS * DIM];
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

    int loads = 0, products = 0;
    const auto multiply_scores = [&](int block, bool with_values) {
        if (threadIdx.x == 0) {
            const uint32_t full = expect(shared.full, (1 + (loads == 0) + with_values) * TILE_BYTES);
            if (loads == 0) load_tile<ROWS>(address(shared.q), &map_q, full, head + q0);
            load_tile<ROWS>(address(shared.k), &map_k, full, head + block * ROWS);
            if (with_values) load_tile<ROWS>(address(shared.v), &map_v, full, head + block * ROWS);
            wait_tmem(shared.full, loads & 1);
            multiply_over_dim(tmem + SCORES, address(shared.q), address(shared.k));
            commit(shared.done);
        }
        ++loads;
        __syncwarp();
        wait_tmem(shared.done, products++ & 1);
    };
    const auto load_scores = [&](float(&s)[32], int block, int part) {
        load_columns(s, lanes + SCORES + part * 32);
        if (!CAUSAL || block < blocks - 1) return;
#pragma unroll
        for (int i = 0; i < 32; ++i)
            if (part * 32 + i > threadIdx.x) s[i] = -INFINITY;
    };

    float top = -INFINITY, sum = 0, s[32];
    for (int block = 0; block < blocks; ++block) {
        multiply_scores(block, false);
        for (int part = 0; part < 4; ++part) {
            load_scores(s, block, part);
#pragma unroll
            for (int i = 0; i < 32; ++i) top = fmaxf(top, s[i]);
        }
        sync_tmem();
    }
    for (int block = 0; block < blocks; ++block) {
        multiply_scores(block, true);
        for (int part = 0; part < 4; ++part) {
            load_scores(s, block, part);
            uint32_t packed[16];
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                s[i] = ptx::exp2_approx((s[i] - top) * SCALE);
                sum += s[i];
                if (i % 2) packed[i / 2] = pack(s[i - 1], s[i]);
            }
            ptx::tcgen05_st_32x32b_x16(lanes + WEIGHTS + part * 16, packed);
        }
        ptx::tcgen05_wait_st();
        sync_tmem();
        if (threadIdx.x == 0) {
            for (int step = 0; step < ROWS / 16; ++step)
                ptx::tcgen05_mma_f16_ts(tmem + OUTPUT, tmem + WEIGHTS + step * 8, describe_rows(address(shared.v), step),
                                        ptx::tcgen05_instruction_bf16<ROWS, DIM>(false, true), block > 0 || step > 0);
            commit(shared.done);
        }
        __syncwarp();
        wait_tmem(shared.done, products++ & 1);
        sync_tmem();
    }
    const size_t row = head + q0 + threadIdx.x;
    for (int part = 0; part < 4; ++part) {
        load_columns(s, lanes + OUTPUT + part * 32);
        store_columns(O + row * DIM + part * 32, s, 1 / sum);
    }
    LSE[row] = top * (SCALE * LN2) + logf(sum);
    sync_tmem();
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
