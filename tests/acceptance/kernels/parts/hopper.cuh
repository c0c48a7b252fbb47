// wgmma by the size of the accumulator, and the accumulator's layout.
#include <ptxbench/ptx/wgmma.cuh>

template <ptx::Major A = ptx::Major::k, ptx::Major B = ptx::Major::k, int Size>
__device__ __forceinline__ void mma(float (&d)[Size], uint64_t a, uint64_t b, bool accumulate) {
    if constexpr (Size == 32) ptx::wgmma_m64n64k16_bf16_ss<A, B>(d, a, b, accumulate);
    if constexpr (Size == 64) ptx::wgmma_m64n128k16_bf16_ss<A, B>(d, a, b, accumulate);
    if constexpr (Size == 96) ptx::wgmma_m64n192k16_bf16_ss<A, B>(d, a, b, accumulate);
    if constexpr (Size == 128) ptx::wgmma_m64n256k16_bf16_ss<A, B>(d, a, b, accumulate);
}

template <ptx::Major B = ptx::Major::k, int Size>
__device__ __forceinline__ void mma(float (&d)[Size], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
    if constexpr (Size == 32) ptx::wgmma_m64n64k16_bf16_rs<B>(d, a, b, accumulate);
    if constexpr (Size == 64) ptx::wgmma_m64n128k16_bf16_rs<B>(d, a, b, accumulate);
    if constexpr (Size == 128) ptx::wgmma_m64n256k16_bf16_rs<B>(d, a, b, accumulate);
}

// acc (+)= 64 rows of A times all rows of B over 64 of K, from K-major tiles with 128-byte swizzle.
template <int Size>
__device__ __forceinline__ void mma_k64(float (&acc)[Size], const bf16* a, const bf16* b, bool accumulate) {
    const uint64_t first = ptx::wgmma_descriptor_k128(address(a)), second = ptx::wgmma_descriptor_k128(address(b));
#pragma unroll
    for (int step = 0; step < 4; ++step) mma(acc, first + 2 * step, second + 2 * step, accumulate || step > 0);
}

// Row and column, in a 64-row tile, of element i of a thread's accumulator.
__device__ __forceinline__ int row_of(int i) { return threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + i / 2 % 2 * 8; }
__device__ __forceinline__ int column_of(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

// Rounds the tile at (m0, n0) and stores what lies inside C, pair by pair.
template <int Size>
__device__ __forceinline__ void store(const float (&acc)[Size], bf16* C, int m0, int n0, int M, int N) {
#pragma unroll
    for (int i = 0; i < Size; i += 2)
        if (m0 + row_of(i) < M && n0 + column_of(i) < N)
            *reinterpret_cast<uint32_t*>(C + size_t(m0 + row_of(i)) * N + n0 + column_of(i)) = pack(acc[i], acc[i + 1]);
}
