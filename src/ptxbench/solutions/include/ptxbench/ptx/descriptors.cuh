// Descriptors: how wgmma and tcgen05.mma are told where an operand tile lies and what the product is.
//
// Shared-memory matrix descriptor, 64 bits (PTX ISA: "Matrix Descriptor Format"). Byte quantities are stored >> 4.
//
//   bits    wgmma (sm_90a)            tcgen05 (sm_100a)
//   0-13    start address             start address
//   16-29   leading byte offset       leading byte offset
//   32-45   stride byte offset        stride byte offset
//   46-47   0                         1 (descriptor version)
//   49-51   base offset               base offset (0 when swizzle atoms are aligned to their size)
//   62-63   swizzle                   -
//   61-63   -                         swizzle
//
// A swizzled K-major tile consists of 8-row atoms, each row as wide as the swizzle (32, 64 or 128 bytes). The stride
// byte offset is the distance between vertically adjacent atoms; the leading byte offset is not used. An MN-major tile
// uses the leading byte offset between atoms along M or N and the stride byte offset along K. Without swizzle atoms
// are 8 rows x 16 bytes, and for K-major tiles the leading byte offset is the distance along K.
//
// A step along K inside a 128-byte row moves only the start address: for 16-bit elements K=16 is 32 bytes, that is
// `descriptor + 2`. The hardware applies the swizzle to the address bits afterwards.
#pragma once
#include <cstdint>

namespace ptx {

enum class Swizzle { none, bytes32, bytes64, bytes128 };

__device__ constexpr uint64_t descriptor_field(uint32_t bytes) { return (bytes & 0x3FFFF) >> 4; }

// Descriptor for wgmma.mma_async. Addresses and offsets in bytes, multiples of 16.
__device__ constexpr uint64_t wgmma_descriptor(uint32_t address, uint32_t leading, uint32_t stride, Swizzle swizzle) {
    const uint64_t mode = swizzle == Swizzle::bytes128 ? 1 : swizzle == Swizzle::bytes64 ? 2
                        : swizzle == Swizzle::bytes32 ? 3 : 0;
    return descriptor_field(address) | descriptor_field(leading) << 16 | descriptor_field(stride) << 32 | mode << 62;
}

// Descriptor for tcgen05.mma and tcgen05.cp. Addresses and offsets in bytes, multiples of 16.
__device__ constexpr uint64_t tcgen05_descriptor(uint32_t address, uint32_t leading, uint32_t stride,
                                                 Swizzle swizzle) {
    const uint64_t mode = swizzle == Swizzle::bytes128 ? 2 : swizzle == Swizzle::bytes64 ? 4
                        : swizzle == Swizzle::bytes32 ? 6 : 0;
    return descriptor_field(address) | descriptor_field(leading) << 16 | descriptor_field(stride) << 32 |
           uint64_t{1} << 46 | mode << 61;
}

// K-major tile of 16-bit elements whose rows are 128 bytes (64 elements), written by TMA with 128-byte swizzle:
// atoms of 8 rows x 128 bytes, stacked 1024 bytes apart. `address` lies in a tile that is aligned to 1024 bytes.
__device__ constexpr uint64_t wgmma_descriptor_k128(uint32_t address) {
    return wgmma_descriptor(address, 16, 1024, Swizzle::bytes128);
}

__device__ constexpr uint64_t tcgen05_descriptor_k128(uint32_t address) {
    return tcgen05_descriptor(address, 16, 1024, Swizzle::bytes128);
}

// Instruction descriptor of tcgen05.mma, 32 bits (PTX ISA: "Instruction descriptor", kinds tf32, f16, f8f6f4, i8):
//
//   0-1 sparsity selector   2 sparse        3 saturate (i8)      4-5 D type       7-9 A type      10-12 B type
//   13 negate A             14 negate B     15 A is MN-major     16 B is MN-major
//   17-22 N / 8             24-28 M / 16    30-31 shift of .ws
//
// D type: 0 f16, 1 f32. A and B type for kind::f16: 0 f16, 1 bf16.
template <uint32_t M, uint32_t N>
__device__ constexpr uint32_t tcgen05_instruction_bf16(bool a_mn_major = false, bool b_mn_major = false) {
    static_assert(M == 64 || M == 128 || M == 256, "M is 64, 128, or 256 for a CTA pair");
    static_assert(N >= 8 && N <= 256 && N % (M == 64 ? 8 : 16) == 0, "N is 8..256 in steps of 8 (M=64) or 16");
    return 1u << 4 | 1u << 7 | 1u << 10 | uint32_t{a_mn_major} << 15 | uint32_t{b_mn_major} << 16 | (N / 8) << 17 |
           (M / 16) << 24;
}

}  // namespace ptx
