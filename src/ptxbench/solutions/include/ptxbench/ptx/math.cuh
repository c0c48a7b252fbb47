// Approximate arithmetic of the special function unit. PTX ISA: ex2.
#pragma once

namespace ptx {

// 2^x, relative error about 2^-22; results and arguments below the smallest normal number become 0 (ftz), so that no
// extra scaling is needed around it.
__device__ __forceinline__ float exp2_approx(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

}  // namespace ptx
