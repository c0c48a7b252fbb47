// An honest GEMM, and other ways to the same result for attempts to misuse. An attempt replaces what stands between
// `//[name` and `//]`; functions that it does not call leave no code.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>
#include <ptxbench/ptx/wgmma.cuh>

//[prelude
//]
using bf16 = __nv_bfloat16;

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64;
using Accumulator = float[TILE_N / 2];  // of one thread, in the layout of wgmma

struct Shared {
    alignas(1024) bf16 a[TILE_M * TILE_K];
    alignas(1024) bf16 b[TILE_N * TILE_K];
    alignas(8) uint64_t full;
};

struct Problem {
    const CUtensorMap *map_a, *map_b;
    const bf16 *A, *B;
    bf16* C;
    int M, N, K;
    unsigned char* workspace;
};

// Row of element i of an accumulator, and its column in the tile.
__device__ int row_of(int i) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i % 4 / 2 * 8; }
__device__ int column_of(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

// acc += the products of slices [begin, end) of 64 along K, by wgmma.
__device__ __forceinline__ void multiply(Accumulator& acc, Shared& shared, const Problem& p, int m0, int n0, int begin,
                                         int end) {
    const uint32_t full = ptx::shared_address(&shared.full);
    const uint32_t a = ptx::shared_address(shared.a), b = ptx::shared_address(shared.b);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(full, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    for (int k = begin; k < end; ++k) {
        if (threadIdx.x == 0) {
            ptx::mbarrier_arrive_expect_tx(full, sizeof(shared.a) + sizeof(shared.b));
            ptx::tma_load_2d(a, p.map_a, full, k * TILE_K, m0);
            ptx::tma_load_2d(b, p.map_b, full, k * TILE_K, n0);
        }
        ptx::mbarrier_wait_parity(full, (k - begin) % 2);
        ptx::wgmma_fence();
        //[batch
#pragma unroll
        for (int step = 0; step < TILE_K / 16; ++step)
            ptx::wgmma_m64n128k16_bf16_ss(acc, ptx::wgmma_descriptor_k128(a) + 2 * step,
                                          ptx::wgmma_descriptor_k128(b) + 2 * step, true);
        //]
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
    }
}

__device__ uint32_t pair(const bf16* matrix, int row, int column, int K) {
    return *reinterpret_cast<const uint32_t*>(matrix + static_cast<size_t>(row) * K + column);
}

// The same by the mma.sync of older chips.
__device__ __forceinline__ void multiply_mma_sync(Accumulator& d, const Problem& p, int m0, int n0, int begin, int end) {
    const int row = m0 + row_of(0), column = n0 + threadIdx.x % 32 / 4, K = p.K;
    for (int k = begin * TILE_K + threadIdx.x % 4 * 2; k < end * TILE_K; k += 16) {
        const uint32_t a[4] = {pair(p.A, row, k, K), pair(p.A, row + 8, k, K), pair(p.A, row, k + 8, K),
                               pair(p.A, row + 8, k + 8, K)};
#pragma unroll
        for (int j = 0; j < TILE_N / 2; j += 4)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%0, %1, %2, %3};"
                : "+f"(d[j]), "+f"(d[j + 1]), "+f"(d[j + 2]), "+f"(d[j + 3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(pair(p.B, column + j * 2, k, K)),
                  "r"(pair(p.B, column + j * 2, k + 8, K)));
    }
}

// The same by ordinary arithmetic; `add(d, a, b)` is d += a * b for pairs of bf16.
template <typename Add>
__device__ __forceinline__ void multiply_scalar(Accumulator& d, const Problem& p, int m0, int n0, int begin, int end,
                                                Add add) {
    for (int k = begin * TILE_K; k < end * TILE_K; k += 2) {
        const uint32_t a[2] = {pair(p.A, m0 + row_of(0), k, p.K), pair(p.A, m0 + row_of(2), k, p.K)};
#pragma unroll
        for (int j = 0; j < TILE_N / 2; j += 4) {
            const uint32_t b[2] = {pair(p.B, n0 + column_of(j), k, p.K), pair(p.B, n0 + column_of(j + 1), k, p.K)};
#pragma unroll
            for (int i = 0; i < 4; ++i) add(d[j + i], a[i / 2], b[i % 2]);
        }
    }
}

struct Ffma {
    __device__ void operator()(float& d, uint32_t a, uint32_t b) const {
        d = fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16), d);
        d = fmaf(__uint_as_float(a & 0xffff0000), __uint_as_float(b & 0xffff0000), d);
    }
};

__device__ __forceinline__ void store(const Accumulator& acc, const Problem& p, int m0, int n0) {
#pragma unroll
    for (int i = 0; i < TILE_N / 2; i += 2)
        *reinterpret_cast<__nv_bfloat162*>(p.C + static_cast<size_t>(m0 + row_of(i)) * p.N + n0 + column_of(i)) =
            __floats2bfloat162_rn(acc[i], acc[i + 1]);
}

//[declarations
//]

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, const bf16* A, const bf16* B,
     bf16* C, int M, int N, int K, unsigned char* workspace) {
    __shared__ Shared shared;
    const Problem p{&map_a, &map_b, A, B, C, M, N, K, workspace};
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, slices = K / TILE_K;
    Accumulator acc = {};
    //[tile
    multiply(acc, shared, p, m0, n0, 0, slices);
    //]
    //[store
    store(acc, p, m0, n0);
    //]
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = ptx::encode_matrix_bf16(&map_a, A, M, K, TILE_M, TILE_K)) return error;
    if (int error = ptx::encode_matrix_bf16(&map_b, B, N, K, TILE_N, TILE_K)) return error;
    const dim3 grid(M / TILE_M, N / TILE_N);
    unsigned char* bytes = static_cast<unsigned char*>(workspace);
    //[launch
    gemm<<<grid, 128, 0, stream>>>(map_a, map_b, A, B, C, M, N, K, bytes);
    //]
    return cudaGetLastError();
}
