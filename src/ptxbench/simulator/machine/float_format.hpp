// Floating-point formats: flags and roundings of an instruction, conversions between f32 and the narrow formats.
#pragma once
#include <cfenv>
#include <cmath>
#include <limits>

#include "alu_lanes.hpp"

namespace ptx {

// Attribute 0 of a floating-point instruction. The integral forms belong to cvt.
enum Rounding : i32 { kNearest, kToZero, kDown, kUp, kIntegral = 4, kNearestAway = 8 };

// Bits of attribute 1, as lower/floating.py and lower/convert.py number them.
enum FloatFlag : i32 { kFtz = 1, kSat = 2, kRelu = 4, kNan = 8, kXorsign = 16, kSatfinite = 32, kAbs = 64 };

constexpr u32 kCanonicalNan = 0x7fffffff;

// The NaN that tensor copies write for what lies outside a tensor, whatever the type of its elements (an H200).
constexpr u16 kOutsideNan = 0x7ff7;

struct f16 { u16 bits; };
struct bf16 { u16 bits; };

// Sets the host's rounding mode for a scope. Operands and results of the loops between pass through memory, which the
// calls may change as far as the compiler knows, so no operation moves across them.
class RoundingScope {
 public:
  explicit RoundingScope(i32 rounding) : changed_(rounding & 3) {
    constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    if (changed_) std::fesetround(kModes[rounding & 3]);
  }
  ~RoundingScope() {
    if (changed_) std::fesetround(FE_TONEAREST);
  }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  bool changed_;
};

inline u32 bits_of(f32 value) { return std::bit_cast<u32>(value); }
inline u64 bits_of(f64 value) { return std::bit_cast<u64>(value); }
inline f32 float_of(u32 bits) { return std::bit_cast<f32>(bits); }

// Subnormals become zero of the same sign.
inline f32 flush(f32 value) {
  const u32 bits = bits_of(value);
  return float_of(bits & 0x7f800000 ? bits : bits & 0x80000000);
}

// To [0, 1]; NaN becomes +0.
template <class T>
inline T saturate_unit(T value) {
  return value >= T(1) ? T(1) : value > T(0) ? value : T(0);
}

inline f32 to_f32(f32 value) { return value; }
inline f32 to_f32(bf16 value) { return float_of(u32(value.bits) << 16); }

// Scaling by 2^112 moves the exponent, and makes subnormals normal.
inline f32 to_f32(f16 value) {
  const u32 magnitude = u32(value.bits & 0x7fff) << 13;
  const u32 scaled = bits_of(float_of(magnitude) * 0x1p112f);
  const u32 special = magnitude | 0x7f800000;
  return float_of((magnitude >= 0x0f800000 ? special : scaled) | u32(value.bits & 0x8000) << 16);
}

// To nearest, ties to even: 10 mantissa bits in the place of 23. NaN becomes one NaN.
inline u32 to_tf32(u32 bits) {
  constexpr u32 kDropped = 0x1fff, kInfinity = 0x7f800000;
  const u32 magnitude = bits & 0x7fffffff;
  if (magnitude > kInfinity) return kCanonicalNan & ~kDropped;
  return (bits + (magnitude < kInfinity ? 0xfff + (bits >> 13 & 1) : 0)) & ~kDropped;
}

// To nearest, ties to even; NaN becomes the canonical 0x7fff.
inline bf16 to_bf16(f32 value) {
  const u32 bits = bits_of(value);
  const u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return {u16((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded)};
}

// To nearest, ties to even; NaN becomes the canonical 0x7fff. Below the normal range, adding 0.5 aligns the bits of the
// result in the sum.
inline f16 to_f16(f32 value) {
  const u32 bits = bits_of(value), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
  const u32 normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
  const u32 subnormal = bits_of(float_of(magnitude) + 0.5f) - bits_of(0.5f);
  const u32 finite = magnitude < 0x38800000 ? subnormal : normal;
  const u32 result = magnitude >= 0x477ff000 ? 0x7c00 : finite;
  return {u16(magnitude > 0x7f800000 ? 0x7fff : result | sign)};
}

template <class T>
inline T narrow(f32 value) {
  if constexpr (std::is_same_v<T, f16>)
    return to_f16(value);
  else if constexpr (std::is_same_v<T, bf16>)
    return to_bf16(value);
  else
    return value;
}

// A binary format narrower than f64: `exponent` and `mantissa` bits, IEEE infinity and NaN or not.
struct Format {
  int exponent;
  int mantissa;
  bool infinity;  // exponent all ones is infinity and NaN
  u32 largest;    // bits of the largest finite magnitude
  u32 nan;        // what NaN becomes: a NaN, or the largest finite value if the format has none
};
constexpr Format kF16{5, 10, true, 0x7bff, 0x7fff};
constexpr Format kBf16{8, 7, true, 0x7f7f, 0x7fff};
constexpr Format kF32{8, 23, true, 0x7f7fffff, kCanonicalNan};
constexpr Format kE4m3{4, 3, false, 0x7e, 0x7f};
constexpr Format kE5m2{5, 2, true, 0x7b, 0x7f};
constexpr Format kE3m2{3, 2, false, 0x1f, 0x1f};
constexpr Format kE2m3{2, 3, false, 0x1f, 0x1f};
constexpr Format kE2m1{2, 1, false, 0x7, 0x7};

// Of f16 and bf16.
template <class T>
constexpr Format kFormat = std::is_same_v<T, bf16> ? kBf16 : kF16;

template <class T>
inline bool is_nan(T value) { return (value.bits & 0x7fff) > kFormat<T>.largest + 1; }

// Zero of what is negative; NaN becomes the canonical one.
template <class T>
inline T relu(T value) { return is_nan(value) ? T{0x7fff} : value.bits & 0x8000 ? T{0} : value; }

// The smaller or larger of two: a NaN loses, two become the canonical one; -0 is less than +0.
template <bool Max, class T>
inline T extreme_half(T a, T b) {
  if (is_nan(a) || is_nan(b)) return !is_nan(a) ? a : is_nan(b) ? T{0x7fff} : b;
  const f32 x = to_f32(a), y = to_f32(b);
  const bool a_first = Max ? x > y || (x == y && !(a.bits & 0x8000)) : x < y || (x == y && (a.bits & 0x8000));
  return a_first ? a : b;
}

// A rounding that a later rounding to a narrower format cannot tell from the exact value: an inexact result gets an odd
// last bit (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
// odd", 2008). `nearest` is the rounded value, `error` has the sign of what was lost.
template <class T, class Bits>
inline T to_odd(T nearest, Bits bits, T error) {
  const bool inexact = (error > 0) | (error < 0), away = (error > 0) == (nearest > 0);
  const Bits odd = away | (nearest == 0) ? bits + 1 : bits - 1;
  return inexact & !(bits & 1) ? std::bit_cast<T>(odd) : nearest;
}

// a + b; Knuth's two-sum gives the error exactly.
inline f64 add_to_odd(f64 a, f64 b) {
  const f64 sum = a + b, b_part = sum - a, error = (a - (sum - b_part)) + (b - b_part);
  return to_odd(sum, bits_of(sum), error);
}

inline f32 f32_to_odd(f64 value) {
  const f32 nearest = f32(value);
  const f32 error = value > f64(nearest) ? 1.0f : value < f64(nearest) ? -1.0f : 0.0f;
  // A value that vanished keeps its sign.
  const u32 bits = bits_of(nearest);
  return to_odd(nearest, bits, nearest == 0 ? std::fabs(error) : error);
}

// Rounds to a format; returns its bits with the sign in the format's top bit. `saturate` gives the largest finite value
// in place of infinity, and for formats without infinity always.
u32 encode(f64 value, const Format& format, i32 rounding, bool saturate);
f64 decode(u32 bits, const Format& format);

}  // namespace ptx
