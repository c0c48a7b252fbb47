// The keys of a query are shared out to several CTAs; each leaves an unnormalised part in fp32 with its maximum and sum,
// and a second kernel joins them.
#include "parts/common.cuh"
#include "parts/hopper.cuh"
#include "parts/attention.cuh"
#include "parts/attention_hopper.cuh"

constexpr int TILE_Q = 64, TILE_KV = 128, PARTS = 2;

struct Shared {
    alignas(1024) bf16 q[TILE_Q * DIM];
    alignas(1024) bf16 k[TILE_KV * DIM];
    alignas(1024) bf16 v[TILE_KV * DIM];
    uint64_t full;
};

struct Workspace {
    float* out;   // [PARTS][rows][DIM]
    float2* stat;  // [PARTS][rows]: maximum in powers of two, sum
    __host__ __device__ Workspace(void* base, size_t rows)
        : out(static_cast<float*>(base)), stat(reinterpret_cast<float2*>(out + PARTS * rows * DIM)) {}
};

__global__ void __launch_bounds__(128)
partial(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
        const __grid_constant__ CUtensorMap map_v, Workspace workspace, int S) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int head = blockIdx.y * S, q0 = blockIdx.x * TILE_Q, part = blockIdx.z, blocks = S / TILE_KV;
    const int first = blocks * part / PARTS, last = blocks * (part + 1) / PARTS;
    if (threadIdx.x == 0) {
        init(shared.full, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    float o[DIM / 2] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int block = first; block < last; ++block) {
        if (threadIdx.x == 0) {
            const int query_bytes = block == first ? sizeof(shared.q) : 0;
            const uint32_t full = expect(shared.full, query_bytes + sizeof(shared.k) + sizeof(shared.v));
            if (query_bytes) load_tile<TILE_Q>(address(shared.q), &map_q, full, head + q0);
            load_tile<TILE_KV>(address(shared.k), &map_k, full, head + block * TILE_KV);
            load_tile<TILE_KV>(address(shared.v), &map_v, full, head + block * TILE_KV);
        }
        wait(shared.full, block - first & 1);
        float s[TILE_KV / 2], block_top[2];
        ptx::wgmma_fence();
        multiply_over_dim<TILE_Q>(s, address(shared.q), address(shared.k));
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        row_maxima(block_top, s);
        for (int r = 0; r < 2; ++r) {
            const float next = fmaxf(top[r], block_top[r] * SCALE), correction = ptx::exp2_approx(top[r] - next);
            sum[r] *= correction;
#pragma unroll
            for (int i = 0; i < DIM / 2; ++i)
                if (i / 2 % 2 == r) o[i] *= correction;
            top[r] = next;
        }
#pragma unroll
        for (int i = 0; i < TILE_KV / 2; ++i) {
            s[i] = ptx::exp2_approx(s[i] * SCALE - top[i / 2 % 2]);
            sum[i / 2 % 2] += s[i];
        }
        uint32_t p[TILE_KV / 16][4];
        to_fragments(p, s);
        ptx::wgmma_fence();
        multiply_weights<TILE_KV>(o, p, address(shared.v));
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
    }
    const size_t rows = size_t(gridDim.y) * S, row = part * rows + head + q0;
#pragma unroll
    for (int i = 0; i < DIM / 2; i += 2)
        *reinterpret_cast<float2*>(workspace.out + (row + row_of(i)) * DIM + column_of(i)) = {o[i], o[i + 1]};
    for (int r = 0; r < 2; ++r) {
        const float total = sum_of_four(sum[r]);
        if (threadIdx.x % 4 == 0) workspace.stat[row + row_of(2 * r)] = {top[r], total};
    }
}

__global__ void join(Workspace workspace, bf16* O, float* LSE, size_t rows) {  // a row per CTA
    const size_t row = blockIdx.x;
    float top = -INFINITY, sum = 0, out = 0;
    for (int part = 0; part < PARTS; ++part) top = fmaxf(top, workspace.stat[part * rows + row].x);
    for (int part = 0; part < PARTS; ++part) {
        const float2 stat = workspace.stat[part * rows + row];
        const float factor = exp2f(stat.x - top);
        sum += factor * stat.y;
        out += factor * workspace.out[(part * rows + row) * DIM + threadIdx.x];
    }
    O[row * DIM + threadIdx.x] = __float2bfloat16_rn(out / sum);
    if (threadIdx.x == 0) LSE[row] = top * LN2 + logf(sum);
}

extern "C" size_t workspace_bytes(int B, int H, int S, int D) { return size_t(PARTS) * B * H * S * (D + 2) * sizeof(float); }

extern "C" int launch(const bf16* Q, const bf16* K, const bf16* V, bf16* O, float* LSE, int B, int H, int S, int D,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_q, map_k, map_v;
    if (int error = encode(&map_q, Q, B * H * S, D, TILE_Q)) return error;
    if (int error = encode(&map_k, K, B * H * S, D, TILE_KV)) return error;
    if (int error = encode(&map_v, V, B * H * S, D, TILE_KV)) return error;
    if (int error = allow_shared(partial, sizeof(Shared))) return error;
    const Workspace parts(workspace, size_t(B) * H * S);
    // A part without keys (S = 128) has weight 0.
    partial<<<dim3(S / TILE_Q, B * H, PARTS), 128, sizeof(Shared), stream>>>(map_q, map_k, map_v, parts, S);
    join<<<B * H * S, DIM, 0, stream>>>(parts, O, LSE, size_t(B) * H * S);
    return cudaGetLastError();
}
