// Shared-memory addresses as PTX wants them.
#pragma once
#include <cstdint>

namespace ptx {

// The 32-bit address of `pointer` inside the shared::cta window. Every wrapper that takes a shared-memory operand
// takes it in this form, so that the conversion is done once and not hidden in each call.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace ptx
