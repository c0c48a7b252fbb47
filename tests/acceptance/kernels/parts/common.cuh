// Short names that most of these kernels share.
#include <cuda_bf16.h>

#include <ptxbench/ptx/address.cuh>
#include <ptxbench/ptx/barrier.cuh>
#include <ptxbench/ptx/descriptors.cuh>
#include <ptxbench/ptx/fence.cuh>
#include <ptxbench/ptx/matrix.cuh>
#include <ptxbench/ptx/mbarrier.cuh>
#include <ptxbench/ptx/tensor_map.cuh>
#include <ptxbench/ptx/tma.cuh>

using bf16 = __nv_bfloat16;

__device__ __forceinline__ uint32_t address(const void* shared) { return ptx::shared_address(shared); }

__device__ __forceinline__ void init(uint64_t& barrier, int arrivals) { ptx::mbarrier_init(address(&barrier), arrivals); }
__device__ __forceinline__ void wait(uint64_t& barrier, int parity) {
    ptx::mbarrier_wait_parity(address(&barrier), parity);
}
__device__ __forceinline__ void arrive(uint64_t& barrier) { ptx::mbarrier_arrive(address(&barrier)); }
__device__ __forceinline__ uint32_t expect(uint64_t& barrier, int bytes) {
    ptx::mbarrier_arrive_expect_tx(address(&barrier), bytes);
    return address(&barrier);
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
}

// Where a walker of a ring stands; the parity of a producer's wait is phase ^ 1.
template <int Stages>
struct Position {
    int stage = 0, phase = 0;
    __device__ void advance() {
        if (++stage == Stages) {
            stage = 0;
            phase ^= 1;
        }
    }
};

// A row-major bf16 matrix in boxes whose rows are as wide as the swizzle (128, 64 or 32 bytes).
inline int encode(CUtensorMap* map, const void* base, int rows, int columns, int box_rows, int swizzle = 128) {
    const cuuint64_t dims[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
    const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * 2};
    const cuuint32_t box[2] = {static_cast<cuuint32_t>(swizzle / 2), static_cast<cuuint32_t>(box_rows)};
    return ptx::encode_tiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, base, dims, strides, box,
                             swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                             : swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                             : CU_TENSOR_MAP_SWIZZLE_32B);
}

template <typename Kernel>
inline int allow_shared(Kernel kernel, size_t bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
}
