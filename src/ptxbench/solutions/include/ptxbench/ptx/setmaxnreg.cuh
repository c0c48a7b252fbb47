// Moving registers between warpgroups. PTX ISA: setmaxnreg (sm_90a, sm_100a).
//
// The compiler honours it only where it knows the register count at entry: give the kernel
// __launch_bounds__(threads, 1). Otherwise ptxas drops it (advisory C7508, shown with -Xptxas -v).
#pragma once
#include <cstdint>

namespace ptx {

// Gives registers back, down to `Count` per thread. All warps of a warpgroup execute it.
template <uint32_t Count>
__device__ __forceinline__ void setmaxnreg_dec() {
    static_assert(Count >= 24 && Count <= 256 && Count % 8 == 0, "24..256 in steps of 8");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}

// Takes registers from the CTA's pool, up to `Count` per thread; blocks until enough have been given back.
template <uint32_t Count>
__device__ __forceinline__ void setmaxnreg_inc() {
    static_assert(Count >= 24 && Count <= 256 && Count % 8 == 0, "24..256 in steps of 8");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

}  // namespace ptx
