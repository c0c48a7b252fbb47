// Tensor maps in constant memory, and a launcher that sets up once what it keeps: driver entry point, attribute, stream
// and events. Halves of C are made on two streams that fork and join.
#include "parts/common.cuh"
#include "parts/hopper.cuh"

constexpr int TILE_M = 64, TILE_N = 128, TILE_K = 64, STAGES = 4;

__constant__ CUtensorMap maps[2];

struct Shared {
    alignas(1024) bf16 a[STAGES][TILE_M * TILE_K];
    alignas(1024) bf16 b[STAGES][TILE_N * TILE_K];
    uint64_t full[STAGES];
};

__global__ void __launch_bounds__(128) gemm(bf16* C, int first_m, int M, int N, int K) {
    extern __shared__ __align__(1024) uint8_t raw[];
    Shared& shared = *reinterpret_cast<Shared*>(raw);
    const int m0 = first_m + blockIdx.x * TILE_M, n0 = blockIdx.y * TILE_N, steps = K / TILE_K;
    const auto load = [&](int k) {
        const uint32_t full = expect(shared.full[k % STAGES], (TILE_M + TILE_N) * TILE_K * 2);
        ptx::tma_load_2d(address(shared.a[k % STAGES]), &maps[0], full, k * TILE_K, m0);
        ptx::tma_load_2d(address(shared.b[k % STAGES]), &maps[1], full, k * TILE_K, n0);
    };
    if (threadIdx.x == 0) {
        for (auto& full : shared.full) init(full, 1);
        ptx::fence_mbarrier_init();
        for (int k = 0; k < STAGES && k < steps; ++k) load(k);
    }
    __syncthreads();
    float acc[TILE_N / 2];
    for (int k = 0; k < steps; ++k) {
        wait(shared.full[k % STAGES], k / STAGES & 1);
        ptx::wgmma_fence();
        mma_k64(acc, shared.a[k % STAGES], shared.b[k % STAGES], k > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<0>();
        __syncthreads();
        if (threadIdx.x == 0 && k + STAGES < steps) load(k + STAGES);
    }
    store(acc, C, m0, n0, M, N);
}

struct Kept {
    cudaStream_t side;
    cudaEvent_t forked, joined;
    int error;
    Kept() {
        error = cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
        if (!error) error = cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
        if (!error) error = cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);
        if (!error) error = allow_shared(gemm, sizeof(Shared));
    }
};

extern "C" int launch(const bf16* A, const bf16* B, bf16* C, int M, int N, int K, void* workspace, cudaStream_t stream) {
    static Kept kept;
    if (kept.error) return kept.error;
    CUtensorMap host[2];
    if (int error = encode(&host[0], A, M, K, TILE_M)) return error;
    if (int error = encode(&host[1], B, N, K, TILE_N)) return error;
    if (int error = cudaMemcpyToSymbolAsync(maps, host, sizeof(host), 0, cudaMemcpyHostToDevice, stream)) return error;
    cudaEventRecord(kept.forked, stream);
    cudaStreamWaitEvent(kept.side, kept.forked, 0);
    const int upper = M / TILE_M / 2, lower = M / TILE_M - upper;
    gemm<<<dim3(upper, N / TILE_N), 128, sizeof(Shared), stream>>>(C, 0, M, N, K);
    gemm<<<dim3(lower, N / TILE_N), 128, sizeof(Shared), kept.side>>>(C, upper * TILE_M, M, N, K);
    cudaEventRecord(kept.joined, kept.side);
    return cudaStreamWaitEvent(stream, kept.joined, 0);
}
