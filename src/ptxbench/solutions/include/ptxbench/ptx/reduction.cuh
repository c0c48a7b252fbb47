// Additions to global memory that return nothing. PTX ISA: red (vectors of f32 from sm_90 on).
#pragma once

namespace ptx {

// Adds four floats to `to[0..3]`, which is 16-byte aligned. Each element is atomic by itself; relaxed, device scope.
__device__ __forceinline__ void reduce_add_f32x4(float* to, float x, float y, float z, float w) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x), "f"(y), "f"(z), "f"(w)
                 : "memory");
}

}  // namespace ptx
