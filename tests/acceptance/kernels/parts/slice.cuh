// One 64x128 tile over a range of K, with a single stage: what split-K kernels share.
constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64;

struct Slice {
    alignas(1024) bf16 a[TILE_M * TILE_K];
    alignas(1024) bf16 b[TILE_N * TILE_K];
    uint64_t full;
};

// acc = A * B over the steps [first, last). All 128 threads; `slice` is free again afterwards.
__device__ __forceinline__ void multiply(float (&acc)[TILE_N / 2], Slice& slice, const CUtensorMap* map_a,
                                         const CUtensorMap* map_b, int m0, int n0, int first, int last) {
    if (threadIdx.x == 0) {
        init(slice.full, 1);
        ptx::fence_mbarrier_init();
    }
    __syncthreads();
    for (int k = first; k < last; ++k) {
        if (threadIdx.x == 0) {
            const uint32_t full = expect(slice.full, sizeof(slice.a) + sizeof(slice.b));
            ptx::tma_load_2d(address(slice.a), map_a, full, k * TILE_K, m0);
            ptx::tma_load_2d(address(slice.b), map_b, full, k * TILE_K, n0);
        }
        wait(slice.full, k - first & 1);
        ptx::wgmma_fence();
        mma_k64(acc, slice.a, slice.b, k > first);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
    }
}

// The share of `part` of `parts` in `steps`.
__device__ __forceinline__ int share(int steps, int part, int parts) { return steps * part / parts; }
