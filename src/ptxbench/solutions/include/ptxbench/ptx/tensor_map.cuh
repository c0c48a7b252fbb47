// Host side of TMA: making tensor maps without linking libcuda.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace ptx {

// Encodes a tiled tensor map of up to 5 dimensions, all arrays innermost first. `strides` holds the byte strides of
// dimensions 1..rank-1, multiples of 16; `box` is the tile in elements, at most 256 each, and with a swizzle its
// innermost extent is at most the swizzle's bytes. Returns a CUDA error code.
inline int encode_tiled(CUtensorMap* map, CUtensorMapDataType type, uint32_t rank, const void* base,
                        const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                        CUtensorMapSwizzle swizzle) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found);
    if (error != cudaSuccess) return error;
    if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
    const cuuint32_t element_strides[5] = {1, 1, 1, 1, 1};
    const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
    return encode(map, type, rank, const_cast<void*>(base), dims, strides, box, element_strides,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// Row-major bf16 matrix of `rows` x `columns`, cut into boxes of `box_rows` x `box_columns` with 128-byte swizzle
// (so `box_columns` is at most 64).
inline int encode_matrix_bf16(CUtensorMap* map, const void* base, int rows, int columns, int box_rows,
                              int box_columns) {
    const cuuint64_t dims[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
    const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * 2};
    const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)};
    return encode_tiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, base, dims, strides, box,
                        CU_TENSOR_MAP_SWIZZLE_128B);
}

}  // namespace ptx
