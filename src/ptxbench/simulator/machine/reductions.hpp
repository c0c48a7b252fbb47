// The arithmetic of atomics and of reducing copies, on bit patterns.
#pragma once
#include "float_format.hpp"

namespace ptx {

// Attribute values; lower/spaces.py mirrors them.
enum class AtomicOp : u8 { kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor, kExch, kCas };
// kF32Flushed takes subnormals for zero, and makes zero of them.
enum class AtomicType : u8 {
  kB16, kB32, kB64, kU32, kU64, kS32, kS64, kF16, kBf16, kF16x2, kBf16x2, kF32, kF64, kF32Flushed
};

u32 bytes_of(AtomicType type);

// What memory holds after the operation; `c` is the new value of compare-and-swap, whose comparand is `b`.
u64 atomic_result(AtomicOp op, AtomicType type, u64 old, u64 b, u64 c = 0);

// The sum in memory, to nearest; NaN is the canonical one (an H200).
inline f32 sum_of(f32 a, f32 b) {
  const f32 sum = a + b;
  return sum != sum ? float_of(kCanonicalNan) : sum;
}
// The same where subnormals are taken for zero.
inline f32 flushed_sum_of(f32 a, f32 b) { return flush(sum_of(flush(a), flush(b))); }

// Whether reducing copies have the operation for the type (PTX ISA, cp.reduce.async.bulk); an H200 takes the others, which
// only a tensor map can ask for, for illegal instructions.
bool copies_reduce(AtomicOp op, AtomicType type);

// Applies the operation to consecutive elements that make up `bytes`; a rest shorter than an element is left alone.
void reduce_into(AtomicOp op, AtomicType type, u8* to, const u8* from, u32 bytes);

}  // namespace ptx
