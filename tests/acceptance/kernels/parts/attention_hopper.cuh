// Products over tiles of attention, and reductions over the four threads that share a row of an accumulator.

// d = X Y^T over D: 64 rows of X (of a tile of RowsX) by all of Y.
template <int RowsX, int Size>
__device__ __forceinline__ void multiply_over_dim(float (&d)[Size], uint32_t x, uint32_t y) {
#pragma unroll
    for (int step = 0; step < DIM / 16; ++step)
        mma(d, ptx::wgmma_descriptor_k128(x + step / 4 * RowsX * 128) + step % 4 * 2,
            ptx::wgmma_descriptor_k128(y + step / 4 * Size * 2 * 128) + step % 4 * 2, step > 0);
}

// d[64][DIM] += P Z, where P, rounded, are A fragments of 64 rows and Rows columns, and Z a tile of Rows rows.
template <int Rows>
__device__ __forceinline__ void multiply_weights(float (&d)[DIM / 2], const uint32_t (&p)[Rows / 16][4], uint32_t z) {
    const uint64_t first = ptx::wgmma_descriptor(z, Rows * 128, 1024, ptx::Swizzle::bytes128);
#pragma unroll
    for (int step = 0; step < Rows / 16; ++step) mma<ptx::Major::mn>(d, p[step], first + step * 128, true);
}

// An accumulator's values, rounded, as A fragments.
template <int Size>
__device__ __forceinline__ void to_fragments(uint32_t (&p)[Size / 8][4], const float (&s)[Size]) {
#pragma unroll
    for (int i = 0; i < Size / 2; ++i) p[i / 4][i % 4] = pack(s[2 * i], s[2 * i + 1]);
}

__device__ __forceinline__ float maximum_of_four(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

__device__ __forceinline__ float sum_of_four(float x) {
    x += __shfl_xor_sync(0xffffffff, x, 1);
    return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// The maxima of a thread's two rows, 8 apart.
template <int Size>
__device__ __forceinline__ void row_maxima(float (&top)[2], const float (&s)[Size]) {
    top[0] = top[1] = -INFINITY;
#pragma unroll
    for (int i = 0; i < Size; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], s[i]);
    top[0] = maximum_of_four(top[0]);
    top[1] = maximum_of_four(top[1]);
}

// Hides keys behind the query; the tile of scores begins at (query, key).
template <int Size>
__device__ __forceinline__ void mask(float (&s)[Size], int query, int key) {
#pragma unroll
    for (int i = 0; i < Size; ++i)
        if (key + column_of(i) > query + row_of(i)) s[i] = -INFINITY;
}

// Rounds 64 rows, each times a factor, and stores them at `row`.
__device__ __forceinline__ void store_rows(const float (&d)[DIM / 2], bf16* to, size_t row, float upper, float lower) {
#pragma unroll
    for (int i = 0; i < DIM / 2; i += 2) {
        const float factor = i / 2 % 2 ? lower : upper;
        *reinterpret_cast<uint32_t*>(to + (row + row_of(i)) * DIM + column_of(i)) = pack(d[i] * factor, d[i + 1] * factor);
    }
}
