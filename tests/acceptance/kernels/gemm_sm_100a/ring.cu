// Four warps: one loads, one multiplies, all store. Tile, swizzle and depth vary, and the shape in which tensor memory is
// read: rows (32x32b) or fragments (16x256b), which a 64-row tile needs, for it fills half of each warp's lanes.
#include "parts/common.cuh"
#include "parts/blackwell.cuh"

constexpr int TILE_M = 128, TILE_N = 128, SWIZZLE = 128, STAGES = 4, FRAGMENTS = 0;
constexpr int TILE_K = SWIZZLE / 2;
constexpr int COLUMNS = TILE_N <= 32 ? 32 : TILE_N <= 64 ? 64 : TILE_N <= 128 ? 128 : 256;
constexpr auto MODE = SWIZZLE == 128  ? ptx::Swizzle::bytes128
                      : SWIZZLE == 64 ? ptx::Swizzle::bytes64
                                      : ptx::Swizzle::bytes32;
static_assert(TILE_M == 128 || FRAGMENTS == 1, "rows of a 64-row tile do not lie in all lanes");

struct Shared {
    alignas(1024) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) bf16 b[STAGES][TILE_N * TILE_K];
    uint64_t full[STAGES], empty[STAGES], done;
    uint32_t tmem;
};

// 16 lanes x 32 columns in the layout of mma fragments.
__device__ __forceinline__ void load_fragments(uint32_t (&v)[16], uint32_t tmem) {
    asm volatile(
        "tcgen05.ld.sync.aligned.16x256b.x4.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "[%16];"
        : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7]), "=r"(v[8]),
          "=r"(v[9]), "=r"(v[10]), "=r"(v[11]), "=r"(v[12]), "=r"(v[13]), "=r"(v[14]), "=r"(v[15])
        : "r"(tmem)
        : "memory");
}

__device__ void store_fragments(uint32_t tmem, bf16* C, int m0, int n0, int N) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int block = 0; block < TILE_M / 64; ++block)  // of 16 lanes in each warp's 32
        for (int column = 0; column < TILE_N; column += 32) {
            uint32_t v[16];
            load_fragments(v, tmem + (warp * 32 + block * 16 << 16) + column);
            ptx::tcgen05_wait_ld();
            const int row = m0 + warp * (TILE_M / 4) + block * 16 + lane / 4;
#pragma unroll
            for (int i = 0; i < 16; i += 2) {
                const int at = n0 + column + i / 4 * 8 + lane % 4 * 2;
                if (at < N)
                    *reinterpret_cast<uint32_t*>(C + size_t(row + i / 2 % 2 * 8) * N + at) =
                        pack(__uint_as_float(v[i]), __uint_as_float(v[i + 1]));
            }
        }
}

__device__ void store_rows(uint32_t tmem, bf16* C, int m0, int n0, int N) {
    for (int column = 0; column < TILE_N && n0 + column < N; column += 32) {
        uint32_t v[32];
        ptx::tcgen05_ld_32x32b_x32(v, tmem + (threadIdx.x / 32 * 32 << 16) + column);
        ptx::tcgen05_wait_ld();
        store_32(C + size_t(m0 + threadIdx.x) * N + n0 + column, v);
    }
}

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) {
        for (auto& full : shared.full) init(full, 1);
        for (auto& empty : shared.empty) init(empty, 1);
        init(shared.done, 1);
        ptx::fence_mbarrier_init();
    }
    if (warp == 3) ptx::tcgen05_alloc(address(&shared.tmem), COLUMNS);
    sync_tmem();
    const uint32_t tmem = shared.tmem;

    Position<STAGES> at;
    if (threadIdx.x == 0) {
        for (int k = 0; k < steps; ++k, at.advance()) {
            wait(shared.empty[at.stage], at.phase ^ 1);
            const uint32_t full = expect(shared.full[at.stage], (TILE_M + TILE_N) * SWIZZLE);
            ptx::tma_load_2d(address(shared.a[at.stage]), &map_a, full, k * TILE_K, m0);
            ptx::tma_load_2d(address(shared.b[at.stage]), &map_b, full, k * TILE_K, n0);
        }
    } else if (threadIdx.x == 32) {
        for (int k = 0; k < steps; ++k, at.advance()) {
            wait_tmem(shared.full[at.stage], at.phase);
            const uint64_t a = ptx::tcgen05_descriptor(address(shared.a[at.stage]), 16, 8 * SWIZZLE, MODE);
            const uint64_t b = ptx::tcgen05_descriptor(address(shared.b[at.stage]), 16, 8 * SWIZZLE, MODE);
            for (int step = 0; step < TILE_K / 16; ++step)
                ptx::tcgen05_mma_f16_ss(tmem, a + 2 * step, b + 2 * step, ptx::tcgen05_instruction_bf16<TILE_M, TILE_N>(),
                                        k > 0 || step > 0);
            commit(shared.empty[at.stage]);
        }
        commit(shared.done);
    }
    __syncwarp();
    wait_tmem(shared.done, 0);
    if constexpr (FRAGMENTS == 1)
        store_fragments(tmem, C, m0, n0, N);
    else
        store_rows(tmem, C, m0, n0, N);
    sync_tmem();
    if (warp == 3) ptx::tcgen05_dealloc(tmem, COLUMNS);
}

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M, SWIZZLE)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N, SWIZZLE)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    gemm<<<dim3(M / TILE_M, (N + TILE_N - 1) / TILE_N), 128, sizeof(Shared), stream>>>(map_a, map_b, C, N, K);
    return cudaGetLastError();
}
