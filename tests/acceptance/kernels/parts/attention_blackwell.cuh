// Products over tiles of attention, 128 rows each, in tensor memory, and tiles that threads write, a row each.
constexpr int ROWS = 128, PANEL_BYTES = ROWS * 128, TILE_BYTES = 2 * PANEL_BYTES;

// d = X Y^T over D.
__device__ __forceinline__ void multiply_over_dim(uint32_t d, uint32_t x, uint32_t y) {
    for (int step = 0; step < DIM / 16; ++step) {
        const uint32_t panel = step / 4 * PANEL_BYTES;
        ptx::tcgen05_mma_f16_ss(d, ptx::tcgen05_descriptor_k128(x + panel) + step % 4 * 2,
                                ptx::tcgen05_descriptor_k128(y + panel) + step % 4 * 2,
                                ptx::tcgen05_instruction_bf16<ROWS, ROWS>(), step > 0);
    }
}

// 16 rows of a tile as the second operand of P Z, that is MN-major.
__device__ __forceinline__ uint64_t describe_rows(uint32_t z, int step) {
    return ptx::tcgen05_descriptor(z + step * 2048, PANEL_BYTES, 1024, ptx::Swizzle::bytes128);
}

// d (+)= P Z with P[128][128] in shared memory.
__device__ __forceinline__ void multiply_weights(uint32_t d, uint32_t p, uint32_t z, bool accumulate) {
    for (int step = 0; step < ROWS / 16; ++step)
        ptx::tcgen05_mma_f16_ss(d, ptx::tcgen05_descriptor_k128(p + step / 4 * PANEL_BYTES) + step % 4 * 2,
                                describe_rows(z, step), ptx::tcgen05_instruction_bf16<ROWS, DIM>(false, true),
                                accumulate || step > 0);
}

__device__ __forceinline__ void load_columns(float (&v)[32], uint32_t tmem) {
    uint32_t bits[32];
    ptx::tcgen05_ld_32x32b_x32(bits, tmem);
    ptx::tcgen05_wait_ld();
#pragma unroll
    for (int i = 0; i < 32; ++i) v[i] = __uint_as_float(bits[i]);
}

// Rounds 32 columns of this thread's row into a swizzled tile in shared memory.
__device__ __forceinline__ void put_columns(bf16* tile, const float (&v)[32], int column) {
    const uint32_t row = threadIdx.x;
    uint4* to = reinterpret_cast<uint4*>(tile) + column / PANEL * (PANEL_BYTES / 16) + row * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        to[(column % PANEL / 8 + i) ^ row % 8] = make_uint4(pack(v[i * 8], v[i * 8 + 1]), pack(v[i * 8 + 2], v[i * 8 + 3]),
                                                            pack(v[i * 8 + 4], v[i * 8 + 5]), pack(v[i * 8 + 6], v[i * 8 + 7]));
}

// Rounds 32 columns of this thread's row and stores them.
__device__ __forceinline__ void store_columns(bf16* to, const float (&v)[32], float factor) {
#pragma unroll
    for (int i = 0; i < 32; i += 2) reinterpret_cast<uint32_t*>(to)[i / 2] = pack(v[i] * factor, v[i + 1] * factor);
}
