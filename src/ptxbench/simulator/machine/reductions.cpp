#include "reductions.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "formats.hpp"

namespace ptx {
namespace {

template <class T>
T integer_result(AtomicOp op, T old, T b, T c) {
  switch (op) {
    case AtomicOp::kAdd: return T(u64(old) + u64(b));
    case AtomicOp::kMin: return std::min(old, b);
    case AtomicOp::kMax: return std::max(old, b);
    case AtomicOp::kInc: return old >= b ? T(0) : T(old + 1);
    case AtomicOp::kDec: return old == 0 || old > b ? b : T(old - 1);
    case AtomicOp::kAnd: return old & b;
    case AtomicOp::kOr: return old | b;
    case AtomicOp::kXor: return old ^ b;
    case AtomicOp::kExch: return b;
    case AtomicOp::kCas: return old == b ? c : old;
  }
  return old;
}

// min and max return the operand that is not NaN.
template <class T>
T float_result(AtomicOp op, T old, T b) {
  switch (op) {
    case AtomicOp::kMin: return std::fmin(old, b);
    case AtomicOp::kMax: return std::fmax(old, b);
    default: return old + b;
  }
}

u16 half_result(AtomicOp op, u64 old, u64 b) {
  return to_f16(float_result(op, to_f32(f16{u16(old)}), to_f32(f16{u16(b)}))).bits;
}
u16 bfloat_result(AtomicOp op, u64 old, u64 b) {
  return to_bf16(float_result(op, to_f32(bf16{u16(old)}), to_f32(bf16{u16(b)}))).bits;
}

}  // namespace

u32 bytes_of(AtomicType type) {
  switch (type) {
    case AtomicType::kB16:
    case AtomicType::kF16:
    case AtomicType::kBf16: return 2;
    case AtomicType::kB64:
    case AtomicType::kU64:
    case AtomicType::kS64:
    case AtomicType::kF64: return 8;
    default: return 4;
  }
}

u64 atomic_result(AtomicOp op, AtomicType type, u64 old, u64 b, u64 c) {
  switch (type) {
    case AtomicType::kB16: return integer_result<u16>(op, u16(old), u16(b), u16(c));
    case AtomicType::kB32:
    case AtomicType::kU32: return integer_result<u32>(op, u32(old), u32(b), u32(c));
    case AtomicType::kB64:
    case AtomicType::kU64: return integer_result<u64>(op, old, b, c);
    case AtomicType::kS32: return u32(integer_result<i32>(op, i32(old), i32(b), i32(c)));
    case AtomicType::kS64: return u64(integer_result<i64>(op, i64(old), i64(b), i64(c)));
    case AtomicType::kF16: return half_result(op, old, b);
    case AtomicType::kBf16: return bfloat_result(op, old, b);
    case AtomicType::kF16x2: return half_result(op, old, b) | u32(half_result(op, old >> 16, b >> 16)) << 16;
    case AtomicType::kBf16x2: return bfloat_result(op, old, b) | u32(bfloat_result(op, old >> 16, b >> 16)) << 16;
    case AtomicType::kF32:
      return std::bit_cast<u32>(float_result(op, std::bit_cast<float>(u32(old)), std::bit_cast<float>(u32(b))));
    case AtomicType::kF64:
      return std::bit_cast<u64>(float_result(op, std::bit_cast<double>(old), std::bit_cast<double>(b)));
  }
  return old;
}

void reduce_into(AtomicOp op, AtomicType type, u8* to, const u8* from, u32 bytes) {
  const u32 element = bytes_of(type);
  for (u32 at = 0; at + element <= bytes; at += element) {
    u64 old = 0, value = 0;
    std::memcpy(&old, to + at, element);
    std::memcpy(&value, from + at, element);
    old = atomic_result(op, type, old, value);
    std::memcpy(to + at, &old, element);
  }
}

}  // namespace ptx
