// A persistent grid whose CTAs take tiles from an atomic counter in the workspace. The next number is fetched while the
// tile is multiplied; results go through stmatrix to whole rows of 16-byte stores.
#include "parts/common.cuh"
#include "parts/blackwell.cuh"

constexpr int TILE_M = 128, TILE_N = 64, TILE_K = 64, STAGES = 3, CTAS = 3;

struct Shared {
    alignas(1024) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) bf16 b[STAGES][TILE_N * TILE_K];
    alignas(16) bf16 c[TILE_M][TILE_N + 8];
    uint64_t full[STAGES], empty[STAGES], done;
    uint32_t tmem;
    int next;
};

__device__ __forceinline__ void load_fragments(uint32_t (&v)[8], uint32_t tmem) {  // 16 lanes x 16 columns
    asm volatile("tcgen05.ld.sync.aligned.16x256b.x2.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]), "=r"(v[6]), "=r"(v[7])
                 : "r"(tmem)
                 : "memory");
}

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, bf16* C, int* counter, int M,
     int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = K / TILE_K, rows = M / TILE_M;
    const int tiles = rows * (N / TILE_N);
    if (threadIdx.x == 0) {
        for (auto& full : shared.full) init(full, 1);
        for (auto& empty : shared.empty) init(empty, 1);
        init(shared.done, 1);
        ptx::fence_mbarrier_init();
    }
    if (warp == 2) ptx::tcgen05_alloc(address(&shared.tmem), TILE_N);
    if (threadIdx.x == 96) shared.next = atomicAdd(counter, 1);
    sync_tmem();
    const uint32_t tmem = shared.tmem;

    Position<STAGES> at;
    for (int tile = shared.next, phase = 0; tile < tiles; phase ^= 1) {
        const int m0 = tile % rows * TILE_M, n0 = tile / rows * TILE_N;
        __syncthreads();  // everybody has read the number
        if (threadIdx.x == 96) shared.next = atomicAdd(counter, 1);
        if (threadIdx.x == 0) {
            for (int k = 0; k < steps; ++k, at.advance()) {
                wait(shared.empty[at.stage], at.phase ^ 1);
                const uint32_t full = expect(shared.full[at.stage], (TILE_M + TILE_N) * TILE_K * 2);
                ptx::tma_load_2d(address(shared.a[at.stage]), &map_a, full, k * TILE_K, m0);
                ptx::tma_load_2d(address(shared.b[at.stage]), &map_b, full, k * TILE_K, n0);
            }
        } else if (threadIdx.x == 32) {
            for (int k = 0; k < steps; ++k, at.advance()) {
                wait_tmem(shared.full[at.stage], at.phase);
                const uint64_t a = ptx::tcgen05_descriptor_k128(address(shared.a[at.stage]));
                const uint64_t b = ptx::tcgen05_descriptor_k128(address(shared.b[at.stage]));
                for (int step = 0; step < TILE_K / 16; ++step)
                    ptx::tcgen05_mma_f16_ss(tmem, a + 2 * step, b + 2 * step,
                                            ptx::tcgen05_instruction_bf16<TILE_M, TILE_N>(), k > 0 || step > 0);
                commit(shared.empty[at.stage]);
            }
            commit(shared.done);
        }
        __syncwarp();
        wait_tmem(shared.done, phase);
        for (int block = 0; block < 2; ++block)
            for (int column = 0; column < TILE_N; column += 16) {
                uint32_t v[8], packed[4];
                load_fragments(v, tmem + (warp * 32 + block * 16 << 16) + column);
                ptx::tcgen05_wait_ld();
#pragma unroll
                for (int i = 0; i < 4; ++i) packed[i] = pack(__uint_as_float(v[i * 2]), __uint_as_float(v[i * 2 + 1]));
                ptx::stmatrix_x4(address(&shared.c[warp * 32 + block * 16 + lane % 16][column + lane / 16 * 8]), packed);
            }
        sync_tmem();  // the accumulator is free, the rows are complete
        for (int i = threadIdx.x; i < TILE_M * TILE_N / 8; i += 128) {
            const int row = i / (TILE_N / 8), column = i % (TILE_N / 8) * 8;
            *reinterpret_cast<uint4*>(C + size_t(m0 + row) * N + n0 + column) =
                *reinterpret_cast<const uint4*>(&shared.c[row][column]);
        }
        tile = shared.next;
    }
    sync_tmem();
    if (warp == 2) ptx::tcgen05_dealloc(tmem, TILE_N);
}

extern "C" size_t workspace_bytes(int M, int N, int K) { return sizeof(int); }

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K, TILE_M)) return error;
    if (int error = encode(&map_b, B, N, K, TILE_N)) return error;
    if (int error = allow_shared(gemm, sizeof(Shared))) return error;
    int* counter = static_cast<int*>(workspace);
    if (int error = cudaMemsetAsync(counter, 0, sizeof(int), stream)) return error;
    gemm<<<CTAS, 128, sizeof(Shared), stream>>>(map_a, map_b, C, counter, M, N, K);
    return cudaGetLastError();
}
