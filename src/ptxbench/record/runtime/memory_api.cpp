// Allocations, fills, copies and symbols.

#include <cstdlib>

#include "recorder.hpp"

using namespace ptxbench::record;

namespace {

// The address inside a symbol, or 0 after a noted error.
std::uint64_t symbol_address(const char* api, const void* variable, std::size_t bytes, std::size_t offset) {
    const Symbol* symbol = recorder().symbol(variable);
    if (symbol == nullptr) {
        recorder().fail(api, cudaErrorInvalidSymbol, "it is no __device__ or __constant__ variable of this source");
        return 0;
    }
    if (offset > symbol->bytes || bytes > symbol->bytes - offset) {
        recorder().fail(api, cudaErrorInvalidValue, "the range reaches beyond the variable " + symbol->name);
        return 0;
    }
    return symbol->base + offset;
}

}  // namespace

PTXBENCH_API cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
    return recorder().allocate("cudaMalloc", pointer, bytes);
}

PTXBENCH_API cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t) {
    return recorder().allocate("cudaMallocAsync", pointer, bytes);
}

PTXBENCH_API cudaError_t cudaFree(void* pointer) { return recorder().release("cudaFree", pointer); }

PTXBENCH_API cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) {
    return recorder().release("cudaFreeAsync", pointer);
}

// Pinned host memory is ordinary memory here: what is copied from it is kept at the time of the call.
PTXBENCH_API cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
    *pointer = std::malloc(bytes);
    if (*pointer == nullptr) return recorder().fail("cudaHostAlloc", cudaErrorMemoryAllocation, "out of host memory");
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }

PTXBENCH_API cudaError_t cudaFreeHost(void* pointer) {
    std::free(pointer);
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
    *free_bytes = *total_bytes = static_cast<std::size_t>(recorder().sheet["memory_bytes"]);
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    *attributes = {};
    if (is_device_address(address_of(pointer))) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->devicePointer = const_cast<void*>(pointer);
    } else {
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->device = cudaInvalidDeviceId;
        attributes->hostPointer = const_cast<void*>(pointer);
    }
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
    return recorder().fill("cudaMemset", address_of(to), static_cast<unsigned char>(value), 1, bytes, nullptr);
}

PTXBENCH_API cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
    return recorder().fill("cudaMemsetAsync", address_of(to), static_cast<unsigned char>(value), 1, bytes, stream);
}

PTXBENCH_API cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return recorder().copy("cudaMemcpy", to, from, bytes, kind, nullptr);
}

PTXBENCH_API cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                         cudaStream_t stream) {
    return recorder().copy("cudaMemcpyAsync", to, from, bytes, kind, stream);
}

PTXBENCH_API cudaError_t cudaMemcpyToSymbolAsync(const void* variable, const void* from, std::size_t bytes,
                                                 std::size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
    const std::uint64_t to = symbol_address("cudaMemcpyToSymbolAsync", variable, bytes, offset);
    if (to == 0) return recorder().last_error();
    return recorder().copy("cudaMemcpyToSymbolAsync", pointer_to(to), from, bytes, kind, stream);
}

PTXBENCH_API cudaError_t cudaMemcpyToSymbol(const void* variable, const void* from, std::size_t bytes,
                                            std::size_t offset, cudaMemcpyKind kind) {
    return cudaMemcpyToSymbolAsync(variable, from, bytes, offset, kind, nullptr);
}

PTXBENCH_API cudaError_t cudaGetSymbolAddress(void** pointer, const void* variable) {
    const std::uint64_t address = symbol_address("cudaGetSymbolAddress", variable, 0, 0);
    if (address == 0) return recorder().last_error();
    *pointer = pointer_to(address);
    return cudaSuccess;
}

PTXBENCH_API cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* variable) {
    const Symbol* symbol = recorder().symbol(variable);
    if (symbol == nullptr) return recorder().fail("cudaGetSymbolSize", cudaErrorInvalidSymbol, "no such variable");
    *bytes = symbol->bytes;
    return cudaSuccess;
}
