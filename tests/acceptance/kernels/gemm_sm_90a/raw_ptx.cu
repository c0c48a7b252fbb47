// No header of the set, everything by hand: wgmma n96 over columns that it does not divide (TMA fills with zeros and clips),
// mbarrier tokens instead of parities, results by TMA store.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define TILE_M 64
#define TILE_N 96
#define TILE_K 64
#define A_BYTES (TILE_M * TILE_K * 2)
#define B_BYTES (TILE_N * TILE_K * 2)
#define D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)

static __device__ void wgmma(float* d, uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,"
        "%43,%44,%45,%46,%47}, %48, %49, 1, 1, 1, 0, 0;"
        : D16(0), D16(16), D16(32)
        : "l"(a), "l"(b));
}

static __device__ uint64_t descriptor(uint32_t address) {
    return uint64_t(1) << 62 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 16 | (address & 0x3ffff) >> 4;
}

static __device__ void load(uint32_t to, const CUtensorMap* map, uint32_t barrier, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}

__global__ void gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                     const __grid_constant__ CUtensorMap map_c, int K) {
    __shared__ __align__(1024) uint8_t a[A_BYTES];
    __shared__ __align__(1024) uint8_t b[B_BYTES];
    __shared__ __align__(128) __nv_bfloat162 c[TILE_M][TILE_N / 2];
    __shared__ uint64_t full;
    const uint32_t sa = (uint32_t)__cvta_generic_to_shared(a), sb = (uint32_t)__cvta_generic_to_shared(b);
    const uint32_t barrier = (uint32_t)__cvta_generic_to_shared(&full), sc = (uint32_t)__cvta_generic_to_shared(c);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 128;" :: "r"(barrier) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();

    float d[TILE_N / 2];
#pragma unroll
    for (int i = 0; i < TILE_N / 2; ++i) d[i] = 0;
    for (int k = 0; k < K; k += TILE_K) {
        uint64_t token;
        if (threadIdx.x == 0) {
            load(sa, &map_a, barrier, k, blockIdx.y * TILE_M);
            load(sb, &map_b, barrier, k, blockIdx.x * TILE_N);
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 %0, [%1], %2;" : "=l"(token) : "r"(barrier),
                         "r"(A_BYTES + B_BYTES) : "memory");
        } else {
            asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(token) : "r"(barrier) : "memory");
        }
        uint32_t done;
        do {
            asm volatile("{ .reg .pred p; mbarrier.try_wait.shared.b64 p, [%1], %2, 1000; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(barrier), "l"(token) : "memory");
        } while (!done);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int step = 0; step < TILE_K; step += 16) wgmma(d, descriptor(sa + step * 2), descriptor(sb + step * 2));
        asm volatile("wgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();
    }

    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, pair = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < TILE_N / 8; ++j) {
        c[row][j * 4 + pair] = __floats2bfloat162_rn(d[j * 4], d[j * 4 + 1]);
        c[row + 8][j * 4 + pair] = __floats2bfloat162_rn(d[j * 4 + 2], d[j * 4 + 3]);
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                     :: "l"(&map_c), "r"(blockIdx.x * TILE_N), "r"(blockIdx.y * TILE_M), "r"(sc) : "memory");
        asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}

static int encode(CUtensorMap* map, const void* base, int rows, int columns, int box_rows, int box_columns,
                  CUtensorMapSwizzle swizzle) {
    cuuint64_t dims[2] = {(cuuint64_t)columns, (cuuint64_t)rows}, strides[1] = {(cuuint64_t)columns * 2};
    cuuint32_t box[2] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    return cuTensorMapEncodeTiled(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void*)base, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

extern "C" int launch(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int M, int N, int K,
                      void* workspace, cudaStream_t stream) {
    CUtensorMap map_a, map_b, map_c;
    if (encode(&map_a, A, M, K, TILE_M, TILE_K, CU_TENSOR_MAP_SWIZZLE_128B)) return 1;
    if (encode(&map_b, B, N, K, TILE_N, TILE_K, CU_TENSOR_MAP_SWIZZLE_128B)) return 1;
    if (encode(&map_c, C, M, N, TILE_M, TILE_N, CU_TENSOR_MAP_SWIZZLE_NONE)) return 1;
    gemm<<<dim3((N + TILE_N - 1) / TILE_N, M / TILE_M), 128, 0, stream>>>(map_a, map_b, map_c, K);
    return cudaGetLastError();
}
