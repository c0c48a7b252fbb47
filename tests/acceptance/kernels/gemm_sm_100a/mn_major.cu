// C^T = B * A^T with both operands transposed on the way into shared memory (stmatrix.trans), so that tcgen05.mma reads
// them MN-major; no TMA. A row of the accumulator is a column of C: 16x64b reads, stores of single elements.
#include "parts/common.cuh"
#include "parts/blackwell.cuh"

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64;  // of C
constexpr int PANEL = TILE_K * 128;  // bytes of 64 columns along M or N: a row of 128 bytes per k

struct Shared {
    alignas(1024) uint8_t a[TILE_M / 64 * PANEL];
    alignas(1024) uint8_t b[TILE_N / 64 * PANEL];
    uint64_t done;
    uint32_t tmem;
};

// Eight rows of 64 elements of K become a column of eight atoms, 16 bytes wide: chunk `row0 / 8 % 8` of each of 64 rows.
__device__ __forceinline__ void transpose(uint32_t tile, const bf16* from, int row0, int K) {
    const uint32_t lane = threadIdx.x % 32, panel = tile + row0 / 64 * PANEL;
    const bf16* row = from + size_t(row0 + lane / 4) * K + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        uint32_t m[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) m[i] = *reinterpret_cast<const uint32_t*>(row + (half * 4 + i) * 8);
        const uint32_t k = half * 32 + lane;  // the row that this lane addresses
        ptx::stmatrix_x4_trans(panel + k * 128 + ((row0 / 8 % 8 ^ k % 8) << 4), m);
    }
}

__global__ void __launch_bounds__(128) gemm(const bf16* A, const bf16* B, bf16* C, int N, int K) {
    __shared__ Shared shared;
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t a = address(shared.a), b = address(shared.b);
    if (threadIdx.x == 0) {
        init(shared.done, 1);
        ptx::fence_mbarrier_init();
    }
    if (warp == 0) ptx::tcgen05_alloc(address(&shared.tmem), 64);
    sync_tmem();
    const uint32_t tmem = shared.tmem;
    for (int k = 0, phase = 0; k < K; k += TILE_K, phase ^= 1) {
        for (int row = warp * 8; row < TILE_M; row += 32) transpose(a, A + size_t(m0) * K + k, row, K);
        for (int row = warp * 8; row < TILE_N; row += 32) transpose(b, B + size_t(n0) * K + k, row, K);
        ptx::fence_proxy_async_shared();
        __syncthreads();
        if (threadIdx.x == 0) {
            ptx::tcgen05_fence_after_thread_sync();
            for (int step = 0; step < TILE_K / 16; ++step)  // 16 of K are two atoms of 1024 bytes
                ptx::tcgen05_mma_f16_ss(
                    tmem, ptx::tcgen05_descriptor(b + step * 2048, PANEL, 1024, ptx::Swizzle::bytes128),
                    ptx::tcgen05_descriptor(a + step * 2048, PANEL, 1024, ptx::Swizzle::bytes128),
                    ptx::tcgen05_instruction_bf16<TILE_N, TILE_M>(true, true), k > 0 || step > 0);
            commit(shared.done);
        }
        __syncwarp();
        wait_tmem(shared.done, phase);
    }
    for (int block = 0; block < 2; ++block)
        for (int column = 0; column < TILE_M; column += 8) {  // lane: row l/4 + 8 (l/2 % 2), columns l % 2 + 2 i
            uint32_t v[4];
            asm volatile("tcgen05.ld.sync.aligned.16x64b.x4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                         : "r"(tmem + (warp * 32 + block * 16 << 16) + column)
                         : "memory");
            ptx::tcgen05_wait_ld();
            const int n = n0 + warp * 32 + block * 16 + lane / 4 + lane / 2 % 2 * 8;
            for (int i = 0; i < 4; ++i)
                C[size_t(m0 + column + i * 2 + lane % 2) * N + n] = __float2bfloat16_rn(__uint_as_float(v[i]));
        }
    sync_tmem();
    if (warp == 0) ptx::tcgen05_dealloc(tmem, 64);
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    gemm<<<dim3(M / TILE_M, N / TILE_N), 128, 0, stream>>>(A, B, C, N, K);
    return cudaGetLastError();
}
