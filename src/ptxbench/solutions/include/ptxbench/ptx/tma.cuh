// Bulk asynchronous copies by the tensor memory accelerator. PTX ISA: cp.async.bulk, cp.async.bulk.tensor (sm_90).
//
// Operands: `map` is the generic address of a CUtensorMap, best a `const __grid_constant__` kernel parameter.
// Coordinates count elements, innermost dimension first, and may lie outside the tensor: loads fill with zeros (the
// full box still counts as delivered), stores are clipped. Shared addresses are 128-byte aligned; a tile with
// 128-byte swizzle wants 1024. One thread issues a copy.
//
// Loads complete on an mbarrier by bytes. Stores complete in bulk groups of the issuing thread.
#pragma once
#include <cuda.h>

#include <cstdint>

namespace ptx {

// Brings a tensor map into the descriptor cache.
__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void tma_load_2d(uint32_t destination, const CUtensorMap* map, uint32_t barrier, int x,
                                            int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y)
        : "memory");
}

__device__ __forceinline__ void tma_load_3d(uint32_t destination, const CUtensorMap* map, uint32_t barrier, int x,
                                            int y, int z) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

__device__ __forceinline__ void tma_load_4d(uint32_t destination, const CUtensorMap* map, uint32_t barrier, int x,
                                            int y, int z, int w) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
        "[%2];" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
}

// Delivers the box to the same shared offset of every CTA whose bit is set in `cta_mask`, and the bytes to the barrier
// at the same offset of each of them.
__device__ __forceinline__ void tma_load_2d_multicast(uint32_t destination, const CUtensorMap* map, uint32_t barrier,
                                                      int x, int y, uint16_t cta_mask) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
        "[%1, {%3, %4}], [%2], %5;" ::"r"(destination),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(cta_mask)
        : "memory");
}

__device__ __forceinline__ void tma_store_2d(const CUtensorMap* map, uint32_t source, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(source),
                 "r"(x), "r"(y)
                 : "memory");
}

__device__ __forceinline__ void tma_store_3d(const CUtensorMap* map, uint32_t source, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(source), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ __forceinline__ void tma_store_4d(const CUtensorMap* map, uint32_t source, int x, int y, int z, int w) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(source), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

// Adds the box to global memory, element by element, instead of overwriting it.
__device__ __forceinline__ void tma_reduce_add_2d(const CUtensorMap* map, uint32_t source, int x, int y) {
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(source), "r"(x), "r"(y)
                 : "memory");
}

// Copies `bytes` contiguous bytes (a multiple of 16, both sides 16-byte aligned) without a tensor map.
__device__ __forceinline__ void bulk_load(uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     destination),
                 "l"(source), "r"(bytes), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void bulk_store(void* destination, uint32_t source, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination), "r"(source),
                 "r"(bytes)
                 : "memory");
}

// Adds `bytes` / 4 contiguous fp32 numbers to those in global memory.
__device__ __forceinline__ void bulk_reduce_add_f32(void* destination, uint32_t source, uint32_t bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(destination),
                 "r"(source), "r"(bytes)
                 : "memory");
}

// Closes the caller's current bulk group.
__device__ __forceinline__ void bulk_commit_group() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most `Pending` of the caller's bulk groups are unfinished. Before a CTA ends, wait for 0.
template <int Pending>
__device__ __forceinline__ void bulk_wait_group() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

// The same, but only until the groups have *read* shared memory, so that it can be written again.
template <int Pending>
__device__ __forceinline__ void bulk_wait_group_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

}  // namespace ptx
