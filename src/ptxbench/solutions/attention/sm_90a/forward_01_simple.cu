// O = softmax(Q K^T / sqrt(D)) V and LSE, the logarithm of the sums of exponentials, per batch and head; D = 128; bf16
// with fp32 accumulation, on Hopper's warpgroup matrix instruction.
//
// Step 1: the shortest correct kernel. One warpgroup owns 64 queries and walks over the keys and values in blocks of
// 128. Logits never leave the registers: S = Q K^T arrives in accumulators, becomes weights P = exp(S - maximum), and P
// goes into the product with V as its register operand, because accumulators and A registers have the same layout but
// for the width. When a block raises a row's maximum, what was summed so far is scaled down. Nothing overlaps yet.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/math.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>
#include <ptxbench/ptx/wgmma.cuh>

namespace {

constexpr bool CAUSAL = false;  // whether a query sees only the keys up to its own position

constexpr int HEAD_DIM = 128, TILE_Q = 64, TILE_KV = 128;
constexpr int HALF = 64;  // a row of 64 elements is 128 bytes, one swizzle atom: tiles are [2][rows][HALF]
constexpr float LN_2 = 0.6931471805599453f;
constexpr float SCALE = 0.08838834764831845f / LN_2;  // 1 / sqrt(HEAD_DIM), for powers of 2 instead of e

struct Shared {
    alignas(1024) __nv_bfloat16 q[2][TILE_Q][HALF];
    alignas(1024) __nv_bfloat16 k[2][TILE_KV][HALF];
    alignas(1024) __nv_bfloat16 v[2][TILE_KV][HALF];
    alignas(8) uint64_t q_full;
    uint64_t kv_full;
};

// S = Q K^T. Both tiles are K-major: 16 elements along D are 32 bytes, and after 4 steps comes the other half.
__device__ __forceinline__ void multiply_qk(float (&s)[TILE_KV / 2], const Shared& shared) {
#pragma unroll
    for (int step = 0; step < HEAD_DIM / 16; ++step) {
        const uint64_t q = ptx::wgmma_descriptor_k128(ptx::shared_address(shared.q[step / 4]));
        const uint64_t k = ptx::wgmma_descriptor_k128(ptx::shared_address(shared.k[step / 4]));
        ptx::wgmma_m64n128k16_bf16_ss(s, q + step % 4 * 2, k + step % 4 * 2, step > 0);
    }
}

// O += P V. V is stored with D innermost, that is N-major; 16 keys are two atoms of 8 rows.
__device__ __forceinline__ void multiply_pv(float (&o)[HEAD_DIM / 2], const uint32_t (&p)[TILE_KV / 16][4],
                                            const Shared& shared) {
    const uint64_t v =
        ptx::wgmma_descriptor(ptx::shared_address(shared.v), sizeof(shared.v[0]), 1024, ptx::Swizzle::bytes128);
#pragma unroll
    for (int step = 0; step < TILE_KV / 16; ++step)
        ptx::wgmma_m64n128k16_bf16_rs<ptx::Major::mn>(o, p[step], v + step * (2 * 1024 >> 4), true);
}

// Hides the keys beyond each query's position. `row` and `column` say where the thread's first accumulator lies.
__device__ __forceinline__ void mask(float (&s)[TILE_KV / 2], int row, int column) {
#pragma unroll
    for (int i = 0; i < TILE_KV / 2; ++i)
        if (column + i / 4 * 8 + i % 2 > row + i / 2 % 2 * 8) s[i] = -INFINITY;
}

// The maximum over the four threads that share a row.
__device__ __forceinline__ float row_maximum(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

__device__ __forceinline__ float row_sum(float x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

__device__ __forceinline__ uint32_t pack(float lower, float upper) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(lower, upper);
    return reinterpret_cast<const uint32_t&>(pair);
}

__global__ void __launch_bounds__(128)
attention(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
          const __grid_constant__ CUtensorMap map_v, __nv_bfloat16* O, float* LSE, int S) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const uint32_t q_full = ptx::shared_address(&shared.q_full), kv_full = ptx::shared_address(&shared.kv_full);
    const int q0 = blockIdx.x * TILE_Q % S, head0 = blockIdx.x * TILE_Q - q0;  // first query; first row of the head
    const int blocks = CAUSAL ? q0 / TILE_KV + 1 : S / TILE_KV;
    const int row = q0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;

    if (threadIdx.x == 0) {
        ptx::mbarrier_init(q_full, 1);
        ptx::mbarrier_init(kv_full, 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect_tx(q_full, sizeof(shared.q));
        ptx::tma_load_3d(ptx::shared_address(shared.q), &map_q, q_full, 0, head0 + q0, 0);
    }
    __syncthreads();
    ptx::mbarrier_wait_parity(q_full, 0);

    // Per thread: parts of two rows, 8 apart. `top` is the maximum of SCALE * S so far, `sum` this thread's part.
    float o[HEAD_DIM / 2] = {}, top[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    for (int block = 0; block < blocks; ++block) {
        if (threadIdx.x == 0) {
            ptx::mbarrier_arrive_expect_tx(kv_full, sizeof(shared.k) + sizeof(shared.v));
            ptx::tma_load_3d(ptx::shared_address(shared.k), &map_k, kv_full, 0, head0 + block * TILE_KV, 0);
            ptx::tma_load_3d(ptx::shared_address(shared.v), &map_v, kv_full, 0, head0 + block * TILE_KV, 0);
        }
        ptx::mbarrier_wait_parity(kv_full, block & 1);

        float s[TILE_KV / 2];
        ptx::wgmma_fence();
        multiply_qk(s, shared);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        if (CAUSAL && block == blocks - 1) mask(s, row, block * TILE_KV + column);

        float block_top[2] = {s[0], s[2]}, correction[2];
#pragma unroll
        for (int i = 0; i < TILE_KV / 2; ++i) block_top[i / 2 % 2] = fmaxf(block_top[i / 2 % 2], s[i]);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const float next = fmaxf(top[r], row_maximum(block_top[r]) * SCALE);
            correction[r] = ptx::exp2_approx(top[r] - next);  // 0 for the first block
            sum[r] *= correction[r];
            top[r] = next;
        }
#pragma unroll
        for (int i = 0; i < TILE_KV / 2; ++i) {
            s[i] = ptx::exp2_approx(fmaf(s[i], SCALE, -top[i / 2 % 2]));
            sum[i / 2 % 2] += s[i];
        }
#pragma unroll
        for (int i = 0; i < HEAD_DIM / 2; ++i) o[i] *= correction[i / 2 % 2];
        uint32_t p[TILE_KV / 16][4];
#pragma unroll
        for (int i = 0; i < TILE_KV / 4; ++i) p[i / 4][i % 4] = pack(s[2 * i], s[2 * i + 1]);

        ptx::wgmma_fence();
        multiply_pv(o, p, shared);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();  // every warp is done with the tiles before they are loaded again
    }

#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const float total = row_sum(sum[r]), inverse = __fdividef(1, total);
        const size_t at = head0 + row + r * 8;
        if (column == 0) LSE[at] = (top[r] + __log2f(total)) * LN_2;
#pragma unroll
        for (int j = 0; j < HEAD_DIM / 8; ++j)
            *reinterpret_cast<uint32_t*>(O + at * HEAD_DIM + j * 8 + column) =
                pack(o[j * 4 + r * 2] * inverse, o[j * 4 + r * 2 + 1] * inverse);
    }
}

// Rows of HEAD_DIM elements seen as two halves, so that one copy brings a whole tile: (column, row, half).
int encode_halves(CUtensorMap* map, const void* base, int rows, int box_rows) {
    const cuuint64_t dims[3] = {HALF, static_cast<cuuint64_t>(rows), 2};
    const cuuint64_t strides[2] = {HEAD_DIM * sizeof(__nv_bfloat16), HALF * sizeof(__nv_bfloat16)};
    const cuuint32_t box[3] = {HALF, static_cast<cuuint32_t>(box_rows), 2};
    return ptx::encode_tiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, base, dims, strides, box,
                             CU_TENSOR_MAP_SWIZZLE_128B);
}

}  // namespace

extern "C" int launch(const __nv_bfloat16* Q, const __nv_bfloat16* K, const __nv_bfloat16* V, __nv_bfloat16* O,
                      float* LSE, int B, int H, int S, int D, void* workspace, cudaStream_t stream) {
    CUtensorMap map_q, map_k, map_v;
    if (int error = encode_halves(&map_q, Q, B * H * S, TILE_Q)) return error;
    if (int error = encode_halves(&map_k, K, B * H * S, TILE_KV)) return error;
    if (int error = encode_halves(&map_v, V, B * H * S, TILE_KV)) return error;
    constexpr int bytes = sizeof(Shared);
    if (int error = cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) return error;
    attention<<<B * H * (S / TILE_Q), 128, bytes, stream>>>(map_q, map_k, map_v, O, LSE, S);
    return cudaGetLastError();
}
