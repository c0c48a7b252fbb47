#include "reductions.hpp"

#include <algorithm>
#include <bit>
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

template <class T>
u16 half_result(AtomicOp op, u64 old, u64 b) {
  const T x{u16(old)}, y{u16(b)};
  switch (op) {
    case AtomicOp::kMin: return extreme_half<false>(x, y).bits;
    case AtomicOp::kMax: return extreme_half<true>(x, y).bits;
    default: return narrow<T>(to_f32(x) + to_f32(y)).bits;
  }
}

template <class T>
u32 pair_result(AtomicOp op, u64 old, u64 b) {
  return half_result<T>(op, old, b) | u32(half_result<T>(op, old >> 16, b >> 16)) << 16;
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
    case AtomicType::kF16: return half_result<f16>(op, old, b);
    case AtomicType::kBf16: return half_result<bf16>(op, old, b);
    case AtomicType::kF16x2: return pair_result<f16>(op, old, b);
    case AtomicType::kBf16x2: return pair_result<bf16>(op, old, b);
    case AtomicType::kF32: return bits_of(sum_of(float_of(u32(old)), float_of(u32(b))));
    case AtomicType::kF32Flushed: return bits_of(flushed_sum_of(float_of(u32(old)), float_of(u32(b))));
    case AtomicType::kF64: return bits_of(std::bit_cast<f64>(old) + std::bit_cast<f64>(b));
  }
  return old;
}

bool copies_reduce(AtomicOp op, AtomicType type) {
  const bool ordered = op == AtomicOp::kMin || op == AtomicOp::kMax, wraps = op == AtomicOp::kInc || op == AtomicOp::kDec;
  switch (type) {
    case AtomicType::kU32: return true;
    case AtomicType::kS32:
    case AtomicType::kU64: return !wraps;
    case AtomicType::kS64: return ordered;
    case AtomicType::kF16:
    case AtomicType::kBf16: return ordered || op == AtomicOp::kAdd;
    case AtomicType::kF32:
    case AtomicType::kF32Flushed:
    case AtomicType::kF64: return op == AtomicOp::kAdd;
    default: return false;
  }
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
