// Moving 8x8 matrices of 16-bit elements between registers and shared memory. PTX ISA: ldmatrix, stmatrix.
//
// Lane l supplies the address of one 16-byte row: lanes 0-7 the rows of matrix 0, lanes 8-15 of matrix 1, and so on.
// In registers, lane l holds columns 2(l%4) and 2(l%4)+1 of row l/4 of each matrix, lower column in the lower half:
// the layout in which wgmma and mma.sync keep their fragments. With `_trans` each matrix is transposed on the way.
#pragma once
#include <cstdint>

namespace ptx {

__device__ __forceinline__ void stmatrix_x2(uint32_t row, const uint32_t (&m)[2]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(m[0]), "r"(m[1])
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x4(uint32_t row, const uint32_t (&m)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(m[0]), "r"(m[1]),
                 "r"(m[2]), "r"(m[3])
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x4_trans(uint32_t row, const uint32_t (&m)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(m[0]),
                 "r"(m[1]), "r"(m[2]), "r"(m[3])
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&m)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(row)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&m)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(row)
                 : "memory");
}

}  // namespace ptx
