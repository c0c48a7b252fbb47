// Choosing one thread of a warp. PTX ISA: elect.sync (sm_90).
#pragma once
#include <cstdint>

namespace ptx {

// True in exactly one lane of a converged warp. The predicate result needs a selp, because asm operands are registers.
__device__ __forceinline__ bool elect_sync() {
    uint32_t chosen;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(chosen)::"memory");
    return chosen != 0;
}

}  // namespace ptx
