// Right: one warpgroup per 64x64 tile of C, one stage, inline PTX without any header of wrappers.
#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace {

constexpr int TILE = 64;  // rows of A and B, and elements along K: 128 bytes, the width of the swizzle

__device__ uint32_t address(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }

// K-major operand with 128-byte swizzle: start address, stride 1024 bytes between groups of 8 rows, swizzle mode 1.
__device__ uint64_t descriptor(const void* tile) {
    return (address(tile) & 0x3FFFF) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

__device__ void load(const void* to, const CUtensorMap* map, const uint64_t* barrier, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            address(to)),
        "l"(map), "r"(address(barrier)), "r"(x), "r"(y)
        : "memory");
}

__device__ void wait(const uint64_t* barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(address(barrier)),
        "r"(parity)
        : "memory");
}

#define ACC4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
__device__ __forceinline__ void wgmma(float (&d)[32], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
        : ACC4(0), ACC4(4), ACC4(8), ACC4(12), ACC4(16), ACC4(20), ACC4(24), ACC4(28)
        : "l"(a), "l"(b));
}

__global__ void __launch_bounds__(128)
gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, __nv_bfloat16* C, int N,
     int K) {
    __shared__ alignas(1024) __nv_bfloat16 a[TILE * TILE];
    __shared__ alignas(1024) __nv_bfloat16 b[TILE * TILE];
    __shared__ alignas(8) uint64_t full;
    const int m0 = blockIdx.x * TILE, n0 = blockIdx.y * TILE;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&full)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    float acc[32] = {};
    for (int k = 0; k < K / TILE; ++k) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&full)),
                         "r"(static_cast<uint32_t>(sizeof(a) + sizeof(b)))
                         : "memory");
            load(a, &map_a, &full, k * TILE, m0);
            load(b, &map_b, &full, k * TILE, n0);
        }
        wait(&full, k % 2);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < TILE / 16; ++step)  // 16 elements are 32 bytes: 2 in the descriptor's units
            wgmma(acc, descriptor(a) + 2 * step, descriptor(b) + 2 * step);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }

    const int row = m0 + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = n0 + threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < TILE / 8; ++j) {
        __nv_bfloat16* upper = C + static_cast<size_t>(row) * N + column + j * 8;
        *reinterpret_cast<__nv_bfloat162*>(upper) = __floats2bfloat162_rn(acc[4 * j], acc[4 * j + 1]);
        *reinterpret_cast<__nv_bfloat162*>(upper + static_cast<size_t>(8) * N) =
            __floats2bfloat162_rn(acc[4 * j + 2], acc[4 * j + 3]);
    }
}

int encode(CUtensorMap* map, const void* base, int rows, int columns) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (int error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found))
        return error;
    if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    const cuuint64_t dims[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
    const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * 2};
    const cuuint32_t box[2] = {TILE, TILE}, steps[2] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(base), dims, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (int error = encode(&map_a, A, M, K)) return error;
    if (int error = encode(&map_b, B, N, K)) return error;
    gemm<<<dim3(M / TILE, N / TILE), 128, 0, stream>>>(map_a, map_b, C, N, K);
    return cudaGetLastError();
}
